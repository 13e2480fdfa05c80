// plan/calibration.cpp — see calibration.hpp.
//
// A share says what a class of kernels reaches; beside that the model has launches and
// waves of tiles, which no share changes. So a share is found in some rounds, each of
// which sets it by what the round before made of it: they come together at once where
// kernels are long. A level of the network is as slow as the messages of the run that go
// over it; levels that the run does not reach stay as they are in the file.
#include "plan/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "io/json.hpp"
#include "plan/counts.hpp"
#include "plan/performance_model.hpp"
#include "schedule/balance.hpp"
#include "step/deck_model.hpp"
#include "step/pipeline.hpp"

namespace trireme::plan {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;
constexpr int kRounds = 8;
// Of a share or a rate: what a measurement can change it to.
constexpr double kLeastChange = 1e-3, kMostChange = 1e3;

const Json& member(const Json& of, const char* key, const std::string& file) {
  const auto found = of.find(key);
  TRIREME_REQUIRE_INPUT(found != of.end() && !found->is_null(),
                        "'{}' has no '{}': it is no efficiency.json of a start that "
                        "has ended",
                        file, key);
  return *found;
}

double number_or_zero(const Json& of, const char* key) {
  const auto found = of.find(key);
  return found != of.end() && found->is_number() ? found->get<double>() : 0.0;
}

double& of(ByType& numbers, config::Precision compute) {
  switch (compute) {
    case config::Precision::bf16:
      return numbers.bf16;
    case config::Precision::fp16:
      return numbers.fp16;
    default:
      return numbers.fp32;
  }
}

double change_of(double predicted, double measured) {
  if (predicted <= 0.0 || measured <= 0.0) return 1.0;
  return std::clamp(predicted / measured, kLeastChange, kMostChange);
}

// What the model says of the run's step, in the parts that RunTimes has.
struct Predicted {
  double products = 0.0, attention = 0.0, rows = 0.0, update = 0.0;
  double tensor_messages = 0.0, gradient_messages = 0.0;
  double step = 0.0;
};

Predicted predict(PerformanceModel& model, const config::Deck& deck) {
  const StepKernels kernels = model.step_kernels(deck);
  const Prediction prediction = model.predict(deck, Schedule::of_run);
  return {.products = kernels.passes.products,
          .attention = kernels.passes.attention,
          .rows = kernels.passes.rows,
          .update = kernels.update.kernels(),
          .tensor_messages = kernels.passes.tensor_messages,
          .gradient_messages = prediction.parts.data_messages,
          .step = prediction.seconds()};
}

// The level that a group's messages go over, and by how much it is slower.
void slow_down(Machine& machine, const GroupPlace& place, double factor) {
  for (NetworkLevel& level : machine.network) {
    const bool is_last = &level == &machine.network.back();
    if (!is_last && fewest_inside(place, level.devices) < place.ranks) continue;
    level.bandwidth /= factor;
    level.latency *= factor;
    return;
  }
}

}  // namespace

RunTimes run_times(const std::string& text, const std::string& file) {
  const Json json = io::parse_json_file<Json>(text, file);
  TRIREME_REQUIRE_INPUT(
      json.is_object() && json.contains("schema_version") && json.contains("identity"),
      "'{}' is no efficiency.json of a run", file);
  try {
    const int schema = io::json_value<int>(json, "schema_version");
    TRIREME_REQUIRE_INPUT(schema == kSchemaVersion,
                          "'{}' has schema_version {}; this program reads {}", file,
                          schema, kSchemaVersion);
    const Json& run = member(json, "run", file);
    const Json& classes = io::json_list(member(json, "kernels", file), "classes");
    TRIREME_REQUIRE_INPUT(!classes.empty(),
                          "'{}' has no times of kernels: it was written before the start "
                          "had ended, or after a single step",
                          file);
    const Json& seconds = member(json, "device_seconds", file);
    const double steps = io::json_value<double>(json, "steps");
    RunTimes times{.file = file, .devices = io::json_value<int>(run, "devices")};
    times.compute = io::json_value<std::string>(run, "compute");
    times.step = io::json_value<double>(member(json, "rates", file), "step_seconds_mean");
    for (const Json& one : classes) {
      const auto name = io::json_value<std::string>(one, "name");
      double& part = name == "products"    ? times.products
                     : name == "attention" ? times.attention
                     : name == "optimizer" ? times.update
                                           : times.rows;
      part += io::json_value<double>(one, "seconds");
    }
    const double each = steps * times.devices;
    TRIREME_REQUIRE_INPUT(each > 0.0 && times.step > 0.0, "'{}' has no steps", file);
    const Json& parts = member(seconds, "parts", file);
    times.beside =
        (number_or_zero(parts, "host") + number_or_zero(parts, "input")) / each;
    const auto transfer_of = [&](const char* axis) {
      const Json& messages = member(seconds, "messages", file);
      const auto found = messages.find(axis);
      if (found == messages.end()) return 0.0;
      const double skew = number_or_zero(*found, "sampled_skew_seconds");
      const double transfer = number_or_zero(*found, "sampled_transfer_seconds");
      const double share = skew + transfer > 0.0 ? transfer / (skew + transfer) : 1.0;
      return share * number_or_zero(*found, "device_seconds") / each;
    };
    times.tensor_messages = transfer_of("tensor");
    times.gradient_messages = transfer_of("gradient");
    return times;
  } catch (const io::JsonError& error) {
    throw InputError(error.in_file(file));
  }
}

Calibration calibrate(const Machine& machine, const config::Deck& deck,
                      const RunTimes& run) {
  TRIREME_REQUIRE_INPUT(deck.parallel.ranks() == run.devices,
                        "'{}' is of a run on {}, the deck beside it is for {}", run.file,
                        format_plural(run.devices, "device"), deck.parallel.ranks());
  const std::string compute(name_of(step::compute_type(deck)));
  TRIREME_REQUIRE_INPUT(compute == run.compute,
                        "'{}' is of a run in {}, the deck beside it computes in {}",
                        run.file, run.compute, compute);
  Calibration result{
      .machine = machine, .file = run.file, .measured = run.step, .factors = {}};
  config::Deck dealt = deck;
  const schedule::Split split = step::pipeline_layout(deck).split;
  dealt.parallel.stages = {split.begin(), split.end()};
  Machine& device = result.machine;
  device.software.microbatch_seconds = run.beside / as_double(deck.microbatches());
  PerformanceModel model(device, dealt);
  const Predicted first = predict(model, dealt);
  const auto factor = [&](const char* part, double measured, double predicted) {
    if (measured <= 0.0 || predicted <= 0.0) return;
    result.factors.push_back({part, measured / predicted});
  };
  factor("products", run.products, first.products);
  factor("attention", run.attention, first.attention);
  factor("other kernels of passes", run.rows, first.rows);
  factor("update", run.update, first.update);
  factor("tensor messages", run.tensor_messages, first.tensor_messages);
  factor("gradient messages", run.gradient_messages, first.gradient_messages);
  const Places places = places_of(dealt);
  if (first.tensor_messages > 0.0) {
    slow_down(device, places.tensor,
              1.0 / change_of(first.tensor_messages, run.tensor_messages));
  }
  for (int round = 0; round < kRounds; ++round) {
    model.set_machine(device);
    const Predicted now = predict(model, dealt);
    const auto adjust = [&](ByType& share, double predicted, double measured) {
      of(share, deck.precision.compute) *= change_of(predicted, measured);
    };
    adjust(device.device.gemm_share, now.products, run.products);
    adjust(device.device.attention_share, now.attention, run.attention);
    adjust(device.device.row_share, now.rows, run.rows);
    adjust(device.device.update_share, now.update, run.update);
    // Gradients that go over the tensor groups' level have had their factor there.
    if (now.gradient_messages > 0.0 && first.tensor_messages <= 0.0) {
      slow_down(device, places.gradient,
                1.0 / change_of(now.gradient_messages, run.gradient_messages));
    }
  }
  model.set_machine(device);
  result.reproduced = predict(model, dealt).step;
  return result;
}

}  // namespace trireme::plan
