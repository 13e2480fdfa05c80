// plan/measure_machine.cpp — see measure_machine.hpp.
//
// A CPU is described by the same numbers as a GPU: its cores are the multiprocessors, and
// its one tile is so small that waves do not matter. Products, passes over memory and
// attention reach different shares of what is measured by itself, because a layer's
// matrices come from other caches than a benchmark's, and in types that a CPU widens they
// also convert; so the shares are taken from layers, for each type. First that of
// products, by products of a layer's shapes; then what is left of a layer with 64
// positions is passes over memory; then what is left of one with 1024 positions is
// attention.
//
// Ranks measure at the same time, as they share memory and cores when they train, and the
// slowest counts. Everything is measured several times in turn, and of each the median is
// taken, as a run's steps are typical ones and not the best: a share of two numbers of
// which one was disturbed is wrong by as much. Where a share comes out at its limit even
// then, the file says so.
#include "plan/measure_machine.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
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
// Of attention, which is what is left of a layer: also of what its rows took less.
constexpr double kMostOfProducts = 4.0;
constexpr index_t kWidth = 512;  // of the layers that are run
constexpr Tile kTileOfCores{.rows = 16, .columns = 16, .share = 1.0};

// Several calls, in seconds, shortest first.
template <class Call>
std::vector<double> sorted_seconds(const Exec& exec, const Call& call) {
  constexpr int kCalls = 25;
  std::vector<double> seconds;
  for (int i = 0; i < kCalls; ++i) {
    const double begin = steady_seconds();
    call();
    exec.fence("trireme::plan::measure_machine");
    seconds.push_back(steady_seconds() - begin);
  }
  std::ranges::sort(seconds);
  return seconds;
}

// A layer with little attention, and one that is mostly attention.
struct ProbedLayer {
  int width = 64, sequence = 1, micro = 1;
};
constexpr ProbedLayer kShallow{.width = kWidth, .sequence = 64, .micro = 16},
    kDeep{.width = kWidth / 2, .sequence = 1024, .micro = 1};

config::Deck deck_of(const ProbedLayer& layer, Precision compute) {
  config::Deck deck = config::parse(
      fmt::format("model: {{kind: gpt, layers: 1, hidden: {}, heads: {}, sequence: {}, "
                  "vocab: 1000}}\ndata: {{train: none}}\nbatch: {{micro: {}, global: "
                  "{}}}\nparallel: {{zero: 0}}\n",
                  layer.width, layer.width / 64, layer.sequence, layer.micro,
                  layer.micro),
      "layer");
  deck.precision.compute = compute;
  return deck;
}

double seconds_of(const ProbedLayer& layer, Precision compute) {
  const config::Deck deck = deck_of(layer, compute);
  constexpr std::size_t kLayer = 1;  // behind the embedding
  return step::make_replica(deck, comm::make_groups_of_one())
      ->time_block(kLayer, deck)
      .total();
}

// What the model says of a layer.
struct ModelledLayer {
  TallySeconds parts;
  double launches = 0.0;  // of passes over memory, in `parts`
};
ModelledLayer modelled(const Device& device, const ProbedLayer& layer,
                       Precision compute) {
  const config::Deck deck = deck_of(layer, compute);
  Workloads workloads(deck);
  const PassWork& passes = workloads.layer(workload_key(deck), 0).passes;
  const AttentionShape attention{.sequence = layer.sequence,
                                 .head_elements = deck.model.head_elements(),
                                 .type = step::compute_type(deck)};
  const Tally tally = passes.forward + passes.backward;
  Machine machine;
  machine.device = device;
  ModelledLayer result{.parts = tally_seconds(machine, {}, attention, tally)};
  machine.device.launch = 0.0;
  result.launches = result.parts.rows - tally_seconds(machine, {}, attention, tally).rows;
  return result;
}

DType type_of(Precision compute) {
  config::Deck deck;
  deck.precision.compute = compute;
  return step::compute_type(deck);
}

// Ranks begin each measurement together, and the slowest counts.
TypeTimes measure_type(comm::Communicator& world, const Exec& exec, Precision compute) {
  const DType type = type_of(compute);
  const auto slowest_rate = [&](double rate) {
    return world.all_reduce(rate, comm::Op::min);
  };
  const auto slowest = [&](double seconds) {
    return world.all_reduce(seconds, comm::Op::max);
  };
  TypeTimes times;
  times.peak = slowest_rate(kernels::measured_gemm_peak(exec, type));
  times.layer_products =
      slowest_rate(kernels::measured_layer_products(exec, type, kWidth));
  times.shallow = slowest(seconds_of(kShallow, compute));
  times.deep = slowest(seconds_of(kDeep, compute));
  times.update = slowest_rate(kernels::measured_update(exec, type));
  return times;
}

double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + std::ssize(numbers) / 2;
  std::ranges::nth_element(numbers, middle);
  return *middle;
}

// Layers by the products of the same round: what slows both down for a while, a clock or
// a neighbour, is no part of a share.
TypeTimes typical(const std::vector<TypeTimes>& rounds) {
  const auto of = [&](const auto& number) {
    std::vector<double> numbers;
    for (const TypeTimes& times : rounds) numbers.push_back(number(times));
    return median(std::move(numbers));
  };
  TypeTimes result;
  for (const TypeTimes& times : rounds) result.peak = std::max(result.peak, times.peak);
  result.layer_products = of([](const TypeTimes& t) { return t.layer_products; });
  result.update = of([](const TypeTimes& t) { return t.update; });
  result.shallow = of([](const TypeTimes& t) { return t.shallow * t.layer_products; }) /
                   result.layer_products;
  result.deep = of([](const TypeTimes& t) { return t.deep * t.layer_products; }) /
                result.layer_products;
  return result;
}

// Of all ranks, as one level: what a ring over them reaches, and what a message takes.
// The median counts, since ranks wait for each other in a step, too.
void measure_network(Machine& machine, const std::shared_ptr<comm::Communicator>& world,
                     const Exec& exec) {
  NetworkLevel level{.name = "ranks", .devices = world->size()};
  level.bandwidth = machine.device.bandwidth;
  if (world->size() > 1) {
    // One piece after the other, so that none lies in a cache, as gradients do not.
    constexpr index_t kElements = index_t{1} << 20, kPieces = 16;  // of 8 MiB
    comm::Group group(world);
    const DeviceArray<double> memory("trireme::plan::messages",
                                     extent(kPieces * kElements));
    kernels::fill<double>(exec, View1<double>(memory.data(), memory.extent(0)), 0.0);
    const auto seconds = [&](index_t count) {
      index_t piece = 0;
      const std::vector<double> all = sorted_seconds(exec, [&] {
        const View1<double> data(memory.data() + piece * kElements, extent(count));
        group.all_reduce(exec, comm::span_of(data));
        piece = (piece + 1) % kPieces;
      });
      return world->all_reduce(all[all.size() / 2], comm::Op::max);
    };
    const double n = world->size(), small = seconds(1), large = seconds(kElements);
    level.latency = small / (2.0 * std::log2(n));
    level.bandwidth = 2.0 * (n - 1.0) / n * sizeof(double) * as_double(kElements) /
                      std::max(large - small, 1e-9);
  }
  machine.network = {level};
}

}  // namespace

std::vector<std::string> set_shares(Device& device, const TypeTimes& times,
                                    Precision compute) {
  const DType type = type_of(compute);
  const auto member = [&](ByType& numbers) -> double& {
    return compute == Precision::fp32   ? numbers.fp32
           : compute == Precision::bf16 ? numbers.bf16
                                        : numbers.fp16;
  };
  std::set<std::string> doubts;
  const auto set = [&](const char* name, ByType& shares, double expected, double taken,
                       double most) {
    double& share = member(shares);
    share = taken > 0.0 ? expected / taken : 2.0 * most;
    const std::string key = fmt::format("{}.{}", name, ByType::key_of(type));
    if (share < kLeastShare || share > most) {
      doubts.insert(key);
    } else {
      doubts.erase(key);
    }
    share = std::clamp(share, kLeastShare, most);
  };
  // A peak that is lower than what a layer reaches is none.
  member(device.gemm_peak) = std::max(times.peak, times.layer_products);
  set("gemm_share", device.gemm_share, times.layer_products, member(device.gemm_peak),
      1.0);
  set("update_share", device.update_share, times.update, device.bandwidth, kMostOfMemory);
  member(device.row_share) = member(device.attention_share) = 1.0;
  // Each layer has a little of what the other has much of.
  constexpr int kTurns = 4;
  for (int turn = 0; turn < kTurns; ++turn) {
    const ModelledLayer shallow = modelled(device, kShallow, compute);
    set("row_share", device.row_share,
        member(device.row_share) * (shallow.parts.rows - shallow.launches),
        times.shallow - shallow.parts.products - shallow.parts.attention -
            shallow.launches,
        kMostOfMemory);
    const ModelledLayer deep = modelled(device, kDeep, compute);
    set("attention_share", device.attention_share,
        member(device.attention_share) * deep.parts.attention,
        times.deep - deep.parts.products - deep.parts.rows, kMostOfProducts);
  }
  return {doubts.begin(), doubts.end()};
}

void round_measured(Machine& machine) {
  const auto round = [](double& number) {
    number = config::parse_number(fmt::format("{:.2e}", number)).value();
  };
  Device& device = machine.device;
  for (ByType* const numbers :
       {&device.nominal_peak, &device.gemm_peak, &device.gemm_share,
        &device.attention_share, &device.row_share, &device.update_share}) {
    for (double* const number : {&numbers->fp32, &numbers->bf16, &numbers->fp16}) {
      round(*number);
    }
  }
  for (double* const number : {&device.wave, &device.launch, &device.bandwidth}) {
    round(*number);
  }
  for (NetworkLevel& level : machine.network) {
    round(level.bandwidth);
    round(level.latency);
  }
}

double memory_of_rank(double bytes, const std::vector<std::string>& hosts, int rank) {
  const auto sharing = std::ranges::count(hosts, hosts.at(extent(rank)));
  return bytes / static_cast<double>(sharing);
}

MeasuredMachine measure_machine(const std::shared_ptr<comm::Communicator>& world,
                                int rounds) {
  TRIREME_REQUIRE_INPUT(kHostExecution,
                        "--measure measures hosts; a machine with GPUs is described by "
                        "hand, as inputs/machines/ has some");
  const Exec exec;
  const trireme::Machine host = find_machine();
  MeasuredMachine measured;
  Machine& machine = measured.machine;
  machine.name = host.host;
  Device& device = machine.device;
  device.name = host.cpu.empty() ? "CPU" : host.cpu;
  device.multiprocessors = host.threads;
  const double mine = memory_of_rank(static_cast<double>(host.memory_bytes),
                                     world->gather(host.host), world->rank());
  device.memory = world->all_reduce(mine, comm::Op::min);
  device.tiles = {kTileOfCores};
  std::map<Precision, std::vector<TypeTimes>> times;
  std::vector<double> bandwidths, launches;
  for (int round = 0; round < rounds; ++round) {
    bandwidths.push_back(
        world->all_reduce(kernels::measured_memory_bandwidth(exec), comm::Op::min));
    launches.push_back(world->all_reduce(kernels::measured_launch(exec), comm::Op::max));
    for (const Precision compute : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      times[compute].push_back(measure_type(*world, exec, compute));
    }
  }
  device.bandwidth = median(bandwidths);
  device.launch = median(launches);
  for (const auto& [compute, of] : times) {
    const std::vector<std::string> doubts = set_shares(device, typical(of), compute);
    measured.doubts.insert(measured.doubts.end(), doubts.begin(), doubts.end());
  }
  device.nominal_peak = device.gemm_peak;  // no maker tells it of cores that are rented
  measure_network(machine, world, exec);
  round_measured(machine);
  return measured;
}

std::string machine_text(const Machine& machine, const std::vector<std::string>& doubts) {
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
  if (!doubts.empty()) {
    text += fmt::format(
        "# Something else used the host meanwhile: these came out at their limits, and "
        "no "
        "prediction\n# by this file is to be trusted. Measure again: {}.\n",
        fmt::join(doubts, ", "));
  }
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
