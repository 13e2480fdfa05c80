// plan/measure_machine.cpp — see measure_machine.hpp.
//
// A CPU is described by the same numbers as a GPU: its cores are the multiprocessors, and
// its one tile is so small that waves do not matter. Products, passes over memory and
// attention reach different shares of what is measured by itself, because a layer's
// matrices come from other caches than a benchmark's; so the shares are taken from
// layers. First that of products, by products of a layer's shapes; then what is left of a
// layer with 64 positions is passes over memory; then what is left of one with 1024
// positions is attention. Ranks measure at the same time, as they share memory and cores
// when they train, and the slowest counts.
#include "plan/measure_machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/machine.hpp"
#include "base/wall_time.hpp"
#include "comm/group.hpp"
#include "comm/process_groups.hpp"
#include "comm/transport.hpp"
#include "config/enums.hpp"
#include "config/load.hpp"
#include "config/text.hpp"
#include "kernels/initialize.hpp"
#include "kernels/machine_peaks.hpp"
#include "plan/counts.hpp"
#include "plan/kernel_model.hpp"
#include "plan/workload.hpp"
#include "step/deck_model.hpp"
#include "step/replica.hpp"

namespace trireme::plan {

namespace {

using config::Precision;

constexpr double kLeastShare = 0.01;
constexpr double kMostOfMemory = 20.0;  // rows that lie in caches
constexpr index_t kWidth = 512;         // of the layers that are run
constexpr Tile kTileOfCores{.rows = 16, .columns = 16, .share = 1.0};

// The shortest of several calls, in seconds.
template <class Call>
double shortest_seconds(const Exec& exec, const Call& call) {
  constexpr int kCalls = 16;
  double least = 1e30;
  for (int i = 0; i < kCalls; ++i) {
    const double begin = steady_seconds();
    call();
    exec.fence("trireme::plan::measure_machine");
    least = std::min(least, steady_seconds() - begin);
  }
  return least;
}

double share_of(double expected, double taken, double most = 1.0) {
  return taken > 0.0 ? std::clamp(expected / taken, kLeastShare, most) : most;
}

// What a layer takes on this rank, and what the model says of its parts.
struct LayerProbe {
  double seconds = 0.0;
  TallySeconds modelled;
  double launches = 0.0;  // of passes over memory, in `modelled`
};
LayerProbe probe_layer(const Machine& machine, Precision compute, int sequence,
                       int micro) {
  config::Deck deck = config::parse(
      fmt::format("model: {{kind: gpt, layers: 1, hidden: 512, heads: 8, sequence: {}, "
                  "vocab: 1000}}\ndata: {{train: none}}\nbatch: {{micro: {}, global: "
                  "{}}}\nparallel: {{zero: 0}}\n",
                  sequence, micro, micro),
      "layer");
  deck.precision.compute = compute;
  const auto replica = step::make_replica(deck, comm::make_groups_of_one());
  constexpr std::size_t kLayer = 1;  // behind the embedding
  Workloads workloads(deck);
  const PassWork& passes = workloads.of(workload_key(deck)).layer.passes;
  const AttentionShape attention{.sequence = sequence,
                                 .head_elements = deck.model.head_elements(),
                                 .type = step::compute_type(deck)};
  const Tally tally = passes.forward + passes.backward;
  LayerProbe probe{.seconds = replica->time_block(kLayer, deck).total(),
                   .modelled = tally_seconds(machine, {}, attention, tally)};
  Machine without = machine;
  without.device.launch = 0.0;
  probe.launches =
      probe.modelled.rows - tally_seconds(without, {}, attention, tally).rows;
  return probe;
}

// Of a type, with the shares of the others as they are.
void measure_shares(Machine& machine, const Exec& exec, Precision compute,
                    double ByType::*of) {
  Device& device = machine.device;
  config::Deck deck;
  deck.precision.compute = compute;
  const DType type = step::compute_type(deck);
  const double layer = kernels::measured_layer_products(exec, type, kWidth);
  // A peak that is lower than what a layer reaches was disturbed.
  device.gemm_peak.*of = std::max(kernels::measured_gemm_peak(exec, type), layer);
  device.gemm_share.*of = share_of(layer, device.gemm_peak.*of);
  device.update_share.*of =
      share_of(kernels::measured_update(exec, type), device.bandwidth, kMostOfMemory);
  device.row_share.*of = device.attention_share.*of = 1.0;
  const LayerProbe shallow = probe_layer(machine, compute, 64, 16);
  const double of_rows = shallow.seconds - shallow.modelled.products -
                         shallow.modelled.attention - shallow.launches;
  device.row_share.*of =
      share_of(shallow.modelled.rows - shallow.launches, of_rows, kMostOfMemory);
  const LayerProbe deep = probe_layer(machine, compute, 1024, 1);
  device.attention_share.*of =
      share_of(deep.modelled.attention,
               deep.seconds - deep.modelled.products - deep.modelled.rows);
}

void measure_device(Machine& machine, const Exec& exec) {
  Device& device = machine.device;
  device.tiles = {kTileOfCores};
  device.bandwidth = kernels::measured_memory_bandwidth(exec);
  device.launch = kernels::measured_launch(exec);
  for (const auto& [compute, of] : {std::pair{Precision::fp32, &ByType::fp32},
                                    {Precision::bf16, &ByType::bf16},
                                    {Precision::fp16, &ByType::fp16}}) {
    measure_shares(machine, exec, compute, of);
  }
}

// Of all ranks, as one level: what a ring over them reaches, and what a message takes.
void measure_network(Machine& machine, const std::shared_ptr<comm::Communicator>& world,
                     const Exec& exec) {
  NetworkLevel level{.name = "ranks", .devices = world->size()};
  level.bandwidth = machine.device.bandwidth;
  if (world->size() > 1) {
    constexpr index_t kElements = index_t{1} << 21;
    comm::Group group(world);
    const DeviceArray<double> memory("trireme::plan::messages", extent(kElements));
    const auto seconds = [&](index_t count) {
      const View1<double> data(memory.data(), extent(count));
      kernels::fill<double>(exec, data, 0.0);
      return world->all_reduce(
          shortest_seconds(exec, [&] { group.all_reduce(exec, comm::span_of(data)); }),
          comm::Op::max);
    };
    const double n = world->size(), small = seconds(1), large = seconds(kElements);
    level.latency = small / (2.0 * std::log2(n));
    level.bandwidth = 2.0 * (n - 1.0) / n * sizeof(double) * as_double(kElements) /
                      std::max(large - small, 1e-9);
  }
  machine.network = {level};
}

}  // namespace

Machine measure_machine(const std::shared_ptr<comm::Communicator>& world) {
  TRIREME_REQUIRE_INPUT(kHostExecution,
                        "--measure measures hosts; a machine with GPUs is described by "
                        "hand, as inputs/machines/ has some");
  const Exec exec;
  const trireme::Machine host = find_machine();
  Machine machine;
  machine.name = host.host;
  machine.device.name = host.cpu.empty() ? "CPU" : host.cpu;
  machine.device.multiprocessors = host.threads;
  machine.device.memory =
      static_cast<double>(host.memory_bytes) / static_cast<double>(world->size());
  measure_device(machine, exec);
  measure_network(machine, world, exec);
  Device& device = machine.device;
  const auto slowest = [&](double& rate) {
    rate = world->all_reduce(rate, comm::Op::min);
  };
  slowest(device.bandwidth);
  for (ByType* const rates : {&device.gemm_peak, &device.gemm_share, &device.row_share,
                              &device.update_share, &device.attention_share}) {
    for (double* const rate : {&rates->fp32, &rates->bf16, &rates->fp16}) slowest(*rate);
  }
  device.nominal_peak = device.gemm_peak;
  return machine;
}

std::string machine_text(const Machine& machine) {
  const auto number = [](double value) { return config::number_text(value); };
  const Device& device = machine.device;
  const auto by_type = [&](const ByType& of) {
    std::string text;
    for (const auto& [name, rate] :
         {std::pair{"fp32", of.fp32}, {"bf16", of.bf16}, {"fp16", of.fp16}}) {
      if (rate <= 0.0) continue;
      text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", name, number(rate));
    }
    return "{" + text + "}";
  };
  std::string text = "# Measured by trireme plan --measure. FLOP/s, bytes/s, seconds.\n";
  text += fmt::format("name: {}\ndevice:\n  name: {}\n", config::yaml_text(machine.name),
                      config::yaml_text(device.name));
  const auto add = [&](const char* key, const std::string& value) {
    text += fmt::format("  {}: {}\n", key, value);
  };
  add("memory", number(device.memory));
  add("multiprocessors", fmt::format("{}", device.multiprocessors));
  add("nominal_peak", by_type(device.nominal_peak) + "  # as measured");
  add("gemm_peak", by_type(device.gemm_peak));
  add("gemm_share", by_type(device.gemm_share));
  add("attention_share", by_type(device.attention_share));
  text += "  tiles:\n";
  for (const Tile& tile : device.tiles) {
    text += fmt::format("    - {{rows: {}, columns: {}, share: {}}}\n", tile.rows,
                        tile.columns, number(tile.share));
  }
  add("wave", number(device.wave));
  add("launch", number(device.launch));
  add("bandwidth", number(device.bandwidth));
  add("row_share", by_type(device.row_share));
  add("update_share", by_type(device.update_share));
  text += "network:\n  levels:\n";
  for (const NetworkLevel& level : machine.network) {
    text += fmt::format("    - {{name: {}, devices: {}, bandwidth: {}, latency: {}}}\n",
                        config::yaml_text(level.name), level.devices,
                        number(level.bandwidth), number(level.latency));
  }
  return text;
}

}  // namespace trireme::plan
