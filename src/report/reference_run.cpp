// report/reference_run.cpp — see reference_run.hpp.
#include "report/reference_run.hpp"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/files.hpp"
#include "io/json.hpp"
#include "report/efficiency.hpp"

namespace trireme::report {

namespace {

double number_at(const nlohmann::json& file, const char* pointer) {
  const nlohmann::json::json_pointer at(pointer);
  if (!file.contains(at) || !file[at].is_number()) {
    throw io::JsonError(0, 0, fmt::format("no number at {}", pointer));
  }
  return file[at].get<double>();
}

}  // namespace

ReferenceRun read_reference(const std::string& path, double flops_of_sample) {
  namespace fs = std::filesystem;
  constexpr double kRounding = 1e-9;
  fs::path file = path;
  if (fs::is_directory(file)) file /= kEfficiencyName;
  TRIREME_REQUIRE_INPUT(fs::exists(file),
                        "run.reference: there is no '{}'; name a run directory whose run "
                        "has written a checkpoint or ended, or its {}",
                        file.string(), kEfficiencyName);
  ReferenceRun run{.path = file.string()};
  double samples = 0.0, flops = 0.0;
  try {
    const auto json = io::parse_json<nlohmann::json>(io::read_file(file));
    samples = number_at(json, "/samples");
    // What was left out in fp16 was computed all the same.
    flops = number_at(json, "/identity/quantities_flops/model_flops") +
            number_at(json, "/identity/quantities_flops/executed_flops") *
                number_at(json, "/identity/factors/6/lost/skipped_updates");
    run.kernel_seconds_of_sample = number_at(json, "/device_seconds/parts/passes") +
                                   number_at(json, "/device_seconds/parts/optimizer");
  } catch (const io::JsonError& error) {
    throw InputError(fmt::format("run.reference: '{}' is no {} of this program: {}",
                                 file.string(), kEfficiencyName, error.what()));
  }
  TRIREME_REQUIRE_INPUT(samples > 0.0 && run.kernel_seconds_of_sample > 0.0,
                        "run.reference: the run of '{}' has no steps to compare with",
                        file.string());
  TRIREME_REQUIRE_INPUT(
      std::abs(flops / samples - flops_of_sample) <= kRounding * flops_of_sample,
      "run.reference: a sample takes {:.6g} FLOPs in the run of '{}', and {:.6g} here: "
      "it "
      "trained another model, or with other samples",
      flops / samples, file.string(), flops_of_sample);
  run.kernel_seconds_of_sample /= samples;
  return run;
}

}  // namespace trireme::report
