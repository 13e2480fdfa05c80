// job/placement.cpp — see placement.hpp.
//
// Every rank describes its own place, and all ranks get all descriptions: what follows
// is then computed from the same list everywhere and needs no message. A warning names
// one example, what it costs, and the option of a launcher or the key of the deck that
// mends it.
#include "job/placement.hpp"

#include <fmt/ranges.h>
#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/device.hpp"
#include "base/host_cores.hpp"
#include "base/plural.hpp"
#include "comm/rank_list.hpp"
#include "io/json.hpp"

namespace trireme::job {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Place, node, host, processor, device, device_id, near,
                                   cores, threads, node_cores, umask)

namespace {

// The cores of all threads that kernels run on: OMP_PROC_BIND gives each its own.
std::vector<int> cores_of_threads() {
  const int threads = Kokkos::DefaultHostExecutionSpace().concurrency();
  std::vector<std::vector<int>> allowed(static_cast<std::size_t>(threads));
  std::vector<int>* const of_thread = allowed.data();
  Kokkos::parallel_for("trireme::job::cores_of_threads",
                       Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace>(
                           0, threads, Kokkos::ChunkSize(1)),
                       [of_thread](const int i) { of_thread[i] = allowed_cores(); });
  Kokkos::DefaultHostExecutionSpace().fence("trireme::job::cores_of_threads");
  std::set<int> cores;
  for (const std::vector<int>& some : allowed) cores.insert(some.begin(), some.end());
  return {cores.begin(), cores.end()};
}

}  // namespace

std::string core_list(const std::vector<int>& cores) {
  return fmt::format("{}", fmt::join(comm::runs_of(cores), "+"));
}

Placement::Placement(std::vector<Place> places) : places_(std::move(places)) {
  std::map<int, std::vector<int>> nodes;
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    nodes[places_[rank].node].push_back(static_cast<int>(rank));
  }
  for (auto& [node, ranks] : nodes) members_.push_back(std::move(ranks));
}

Placement Placement::gather(comm::Environment& environment, const Machine& machine) {
  const Device device = current_device().value_or(Device{});
  const Place mine{
      .node = environment.node().first,
      .host = environment.host_name(),
      .processor = machine.device.empty() ? machine.cpu : machine.device,
      .device = device.address,
      .device_id = device.uuid,
      .near = cores_near(device.address),
      .cores = cores_of_threads(),
      .threads = machine.threads,
      .node_cores = static_cast<int>(std::max(1l, ::sysconf(_SC_NPROCESSORS_ONLN))),
      .umask = current_umask()};
  std::vector<Place> places;
  for (const std::string& text :
       environment.world()->gather(io::json_text(nlohmann::json(mine)))) {
    places.push_back(io::parse_json<nlohmann::json>(text));
  }
  return Placement(std::move(places));
}

std::string Placement::binding_of(const std::vector<int>& ranks) const {
  const Place& first = place_of(ranks.front());
  const auto all = [&](const auto& same) {
    return std::ranges::all_of(ranks, same, [this](int rank) { return place_of(rank); });
  };
  const bool same_threads =
      all([&](const Place& place) { return place.threads == first.threads; });
  const bool same_cores =
      all([&](const Place& place) { return place.cores == first.cores; });
  std::string text = format_plural(ranks.size(), "rank");
  if (same_threads) text += " of " + format_plural(first.threads, "thread");
  text += same_cores && same_threads && ranks.size() > 1 ? ": all on cores " : ": cores ";
  std::vector<std::string> cores;
  for (const int rank : ranks) {
    const Place& place = place_of(rank);
    cores.push_back(core_list(place.cores));
    if (!same_threads)
      cores.back() += fmt::format(" ({})", format_plural(place.threads, "thread"));
    if (same_cores && same_threads) break;
  }
  return text + fmt::format("{}", fmt::join(cores, ", "));
}

// The domain is left out where it is the one that machines with one have.
std::string Placement::devices_of(const std::vector<int>& ranks) const {
  std::vector<std::string> addresses;
  for (const int rank : ranks) {
    const std::string& address = place_of(rank).device;
    addresses.push_back(address.starts_with("0000:") ? address.substr(5) : address);
  }
  return fmt::format("{}: {} {}", format_plural(std::ssize(ranks), "rank"),
                     addresses.size() == 1 ? "GPU" : "GPUs", fmt::join(addresses, ", "));
}

std::vector<std::string> Placement::bindings() const {
  return patterns_of_nodes(
      [this](const std::vector<int>& ranks) { return binding_of(ranks); });
}

std::vector<std::string> Placement::devices() const {
  if (places_.front().device.empty()) return {};
  return patterns_of_nodes(
      [this](const std::vector<int>& ranks) { return devices_of(ranks); });
}

template <class TextOf>
std::vector<std::string> Placement::patterns_of_nodes(const TextOf& text_of) const {
  std::map<std::string, std::size_t> nodes_of;  // of which this is said
  std::vector<std::string> patterns;            // in the order of their first nodes
  for (const std::vector<int>& ranks : members_) {
    patterns.push_back(text_of(ranks));
    if (nodes_of[patterns.back()]++ > 0) patterns.pop_back();
  }
  if (members_.size() == 1) return patterns;
  for (std::string& pattern : patterns) {
    pattern = fmt::format("{} of {}", format_plural(nodes_of[pattern], "node"), pattern);
  }
  return patterns;
}

std::vector<std::string> Placement::warnings(const comm::GridShape& grid) const {
  std::vector<std::string> all = {tensor_warning(grid), cores_warning(),
                                  distance_warning(), difference_warning()};
  std::erase(all, std::string());
  return all;
}

// Tensor groups exchange activations four times per layer, data groups gradients once
// per step: the first belong where memory is shared.
std::string Placement::tensor_warning(const comm::GridShape& grid) const {
  int crossing = 0;
  std::vector<int> example;
  for (int rank = 0; rank < grid.size(); ++rank) {
    if (comm::coordinates_of(grid, rank).tensor != 0) continue;
    const std::vector<int> group = comm::members_of(grid, {comm::Axis::tensor}, rank);
    const auto node_of = [&](int member) {
      return places_[static_cast<std::size_t>(member)].node;
    };
    const int first = node_of(group.front());
    if (std::ranges::count(group, first, node_of) == std::ssize(group)) continue;
    if (crossing++ == 0) example = group;
  }
  if (crossing == 0) return {};
  std::vector<std::string> hosts;
  for (const int rank : example) {
    const std::string& host = places_[static_cast<std::size_t>(rank)].host;
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  std::size_t smallest = members_.front().size();
  bool in_blocks = true;  // each node has consecutive ranks
  for (const std::vector<int>& ranks : members_) {
    smallest = std::min(smallest, ranks.size());
    in_blocks =
        in_blocks && ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
  }
  std::string advice;
  if (static_cast<std::size_t>(grid.tensor) > smallest) {
    advice = fmt::format(
        "Set parallel.tensor to {} or less (a node has {}), or start more ranks on each "
        "node",
        smallest, format_plural(smallest, "rank"));
  } else if (!in_blocks) {
    advice =
        "Start neighbouring ranks on the same node (srun --distribution=block, mpiexec "
        "-ppn N)";
  } else if (grid.order.front() != comm::Axis::tensor) {
    advice = "Put tensor first in parallel.order";
  } else {
    advice = fmt::format(
        "Start a multiple of {} on each node (srun --ntasks-per-node, mpiexec -ppn)",
        format_plural(grid.tensor, "rank"));
  }
  return fmt::format(
      "{} of {} tensor groups {} on more than one node ({}: on {}), so that messages of "
      "every layer go over the network. {}.",
      crossing, grid.size() / grid.tensor, crossing == 1 ? "is" : "are",
      comm::rank_list(example), fmt::join(hosts, ", "), advice);
}

// Threads that share a core take turns, and all ranks wait for the slowest.
std::string Placement::cores_warning() const {
  for (const std::vector<int>& ranks : members_) {
    std::set<int> cores;
    std::size_t threads = 0;
    for (const int rank : ranks) {
      const Place& place = places_[static_cast<std::size_t>(rank)];
      cores.insert(place.cores.begin(), place.cores.end());
      threads += static_cast<std::size_t>(place.threads);
    }
    if (threads <= cores.size()) continue;
    const Place& first = places_[static_cast<std::size_t>(ranks.front())];
    const bool has_room = static_cast<std::size_t>(first.node_cores) >= threads;
    return fmt::format(
        "on {} {} of {} share {} ({}): they take turns. {}", first.host,
        format_plural(threads, "thread"), format_plural(ranks.size(), "rank"),
        format_plural(cores.size(), "core"), core_list({cores.begin(), cores.end()}),
        has_room ? fmt::format("The node has {}: give each rank its own (srun "
                               "--cpus-per-task={} --cpu-bind=cores, mpiexec -bind-to "
                               "core:{}; is OMP_PROC_BIND set without that?).",
                               format_plural(first.node_cores, "core"), first.threads,
                               first.threads)
                 : "Start fewer ranks, or set OMP_NUM_THREADS lower.");
  }
  return {};
}

// A rank far from its device launches and copies across the sockets, and its messages go
// by another's network card.
std::string Placement::distance_warning() const {
  std::vector<int> far;
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    const Place& place = places_[rank];
    const bool is_near = std::ranges::any_of(place.cores, [&](int core) {
      return std::ranges::find(place.near, core) != place.near.end();
    });
    if (!place.near.empty() && !is_near) far.push_back(static_cast<int>(rank));
  }
  if (far.empty()) return {};
  const Place& first = place_of(far.front());
  return fmt::format(
      "{} {} far from {} (rank {} on {}: cores {}, and its GPU {} is nearest to {}). "
      "Bind "
      "ranks beside their GPUs: slurm/machines/perlmutter.sh and selene.sh show how.",
      comm::rank_list(far), far.size() == 1 ? "runs" : "run",
      far.size() == 1 ? "its GPU" : "their GPUs", far.front(), first.host,
      core_list(first.cores), first.device, core_list(first.near));
}

std::string Placement::difference_warning() const {
  std::vector<std::string> hosts, what;
  const auto report = [&](const char* name, const auto& text_of) {
    std::vector<std::string> texts;
    for (const Place& place : places_) texts.push_back(text_of(place));
    if (comm::all_same(texts)) return;
    what.push_back(fmt::format("{}: {}", name, comm::grouped_by_text(texts, hosts)));
  };
  for (const Place& place : places_) hosts.push_back(place.host);
  report("processors (the slowest sets the pace)",
         [](const Place& place) { return place.processor; });
  report("threads (the rank with fewest sets the pace)",
         [](const Place& place) { return format_plural(place.threads, "thread"); });
  report("permissions of files they make (umask)",
         [](const Place& place) { return fmt::format("{:03o}", place.umask); });
  if (what.empty()) return {};
  return fmt::format("ranks differ in {}", fmt::join(what, "; in "));
}

}  // namespace trireme::job
