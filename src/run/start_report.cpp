// run/start_report.cpp — see start_report.hpp.
#include "run/start_report.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/version.hpp"
#include "base/wall_time.hpp"
#include "ckpt/build_identity.hpp"
#include "config/deck.hpp"
#include "job/job_clock.hpp"

namespace trireme::run {

RunEnvironment describe_environment(const comm::Environment& environment,
                                    const comm::GridShape& grid, const Machine& machine,
                                    const job::Placement& placement,
                                    const std::string& command_line) {
  RunEnvironment result;
  result.build = ckpt::build_identity();
  result.grid = comm::to_string(grid);
  result.ranks = environment.world_size();
  result.threads = machine.threads;
  for (const job::Place& place : placement.places()) {
    result.hosts.push_back(place.host);
    if (!machine.device.empty()) result.devices.push_back(place.processor);
    result.places.push_back(
        fmt::format("{}: cores {}", place.host, job::core_list(place.cores)));
  }
  std::sort(result.hosts.begin(), result.hosts.end());
  result.hosts.erase(std::unique(result.hosts.begin(), result.hosts.end()),
                     result.hosts.end());
  result.started = iso_time(wall_seconds());
  result.command_line = command_line;
  result.job = job::slurm_job([](const char* name) { return std::getenv(name); });
  return result;
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
  info.machine = machine;
  info.gemm_tflops = gemm_tflops;
  for (const auto& corpus : datasets.corpora)
    info.corpora.push_back(corpus->path().string());
  info.corpus_tokens = datasets.train->windows() * datasets.train->sequence();
  for (const data::ValidationSet& set : datasets.validation) {
    info.validation.push_back(
        {set.name, data::validated_samples(deck, set) * set.samples->sequence()});
  }
  info.first_step = first_step;
  return info;
}

}  // namespace trireme::run
