// run/start_report.cpp — see start_report.hpp.
#include "run/start_report.hpp"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "base/device.hpp"
#include "base/version.hpp"
#include "base/wall_time.hpp"
#include "ckpt/build_identity.hpp"
#include "comm/nccl_environment.hpp"
#include "comm/nccl_link.hpp"
#include "config/deck.hpp"
#include "job/job_clock.hpp"

namespace trireme::run {

nlohmann::ordered_json describe_environment(const comm::GridShape& grid,
                                            kernels::NarrowProducts products,
                                            const std::string& instructions,
                                            const Machine& machine,
                                            const job::Placement& placement,
                                            const std::string& command_line) {
  nlohmann::ordered_json json = {{"started", iso_time(wall_seconds())},
                                 {"command_line", command_line}};
  const std::string job =
      job::slurm_job([](const char* name) { return std::getenv(name); });
  if (!job.empty()) json["job"] = job;
  for (const auto& [name, value] : ckpt::build_identity()) json["build"][name] = value;
  json["grid"] = comm::to_string(grid);
  json["matrix_products"] = kernels::name_of(products);
  json["product_instructions"] = instructions;
  json["ranks"] = placement.places().size();
  json["threads_per_rank"] = machine.threads;
  json["peak_bytes_before_model"] = peak_process_bytes();
  if (const DeviceBytes bytes = device_bytes(); bytes.total > 0) {
    json["device_bytes_before_model"] = bytes.total - bytes.free;
  }
  std::set<std::string> hosts, processors;
  for (const job::Place& place : placement.places()) {
    hosts.insert(place.host);
    if (place.device.empty()) processors.insert(place.processor);
  }
  json["hosts"] = hosts;
  if (!processors.empty()) json["processors"] = processors;  // where no GPUs compute
  for (const job::Place& place : placement.places()) {
    if (!place.device.empty()) {
      json["devices"].push_back({{"host", place.host},
                                 {"name", place.processor},
                                 {"address", place.device},
                                 {"uuid", place.device_id}});
    }
    json["places"].push_back(
        fmt::format("{}: cores {}", place.host, job::core_list(place.cores)));
  }
  return json;
}

nlohmann::ordered_json describe_messages(comm::TransportKind transport) {
  nlohmann::ordered_json json = {{"transport", comm::name_of(transport)}};
  if (transport != comm::TransportKind::nccl) return json;
  json["version"] = comm::nccl_version();
  for (const auto& [name, value] : comm::nccl_variables())
    json["variables"][name] = value;
  return json;
}

std::vector<report::CorpusEpochs> corpus_epochs(const data::Datasets& datasets,
                                                index_t samples) {
  const std::vector<double> epochs = datasets.train->epochs(samples);
  std::vector<report::CorpusEpochs> corpora;
  for (std::size_t i = 0; i < epochs.size(); ++i) {
    corpora.push_back({datasets.corpora[i]->path().string(), epochs[i]});
  }
  return corpora;
}

report::BannerInfo describe_run(const config::Deck& deck, const data::Datasets& datasets,
                                const Machine& machine, const job::Placement& placement,
                                std::int64_t parameters, std::int64_t first_step,
                                double gemm_tflops) {
  report::BannerInfo info;
  info.deck = deck;
  info.version = program_version();
  info.build = ckpt::build_identity();
  info.parameters = parameters;
  info.hosts = placement.nodes();
  if (deck.parallel.ranks() > 1) info.bindings = placement.bindings();
  info.devices = placement.devices();
  info.machine = machine;
  info.gemm_tflops = gemm_tflops;
  info.corpora = corpus_epochs(datasets, deck.run.steps.steps * deck.batch.global);
  info.corpus_tokens = datasets.train->tokens();
  for (const data::ValidationSet& set : datasets.validation) {
    info.validation.push_back(
        {set.name, set.samples->tokens_of(data::validated_samples(deck, set))});
  }
  info.first_step = first_step;
  return info;
}

}  // namespace trireme::run
