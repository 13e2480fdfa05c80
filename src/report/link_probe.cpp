// report/link_probe.cpp — see link_probe.hpp.
//
// The best of several counts, of a rank; then the slowest rank, of all. A pipeline's
// stages send forward all at once, each to the next one, over the channel that belongs to
// no way of the passes.
#include "report/link_probe.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "base/wall_time.hpp"
#include "comm/group.hpp"

namespace trireme::report {

namespace {

constexpr index_t kElements = index_t{2} << 20;  // 8 MiB
constexpr int kLargeRounds = 5, kSmallRounds = 20;

using Memory = DeviceArray<float>;

double best_of(const Exec& exec, int rounds, const std::function<void()>& send) {
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    send();
    exec.fence("trireme::report::probe_links");
    best = std::min(best, seconds_since(begin));
  }
  return best;
}

// Sends so many numbers once.
std::function<void(index_t)> sender(const Exec& exec, comm::Group& group,
                                    const Memory& memory, bool is_pipeline) {
  if (!is_pipeline) {
    return [&exec, &group, memory](index_t count) {
      group.all_reduce(exec, {memory.data(), count, DType::float32});
    };
  }
  const int stage = group.rank(), last = group.size() - 1;
  std::vector<comm::ChannelEnd> ends;
  if (stage > 0) ends.push_back({stage - 1});
  if (stage < last) ends.push_back({stage + 1});
  group.open(ends);
  return [&exec, &group, memory, stage, last](index_t count) {
    comm::Request sent, received;
    group.together([&] {
      if (stage > 0) {
        received = group.start_recv(
            exec, {memory.data() + kElements, count, DType::float32}, stage - 1);
      }
      if (stage < last) {
        sent = group.start_send(exec, comm::Span{memory.data(), count, DType::float32},
                                stage + 1);
      }
    });
    received.wait(exec);
    sent.wait(exec);
  };
}

// Groups along one axis, of which this rank is in one; null: in none.
struct Probed {
  std::string axis;
  int ranks = 1;
  std::shared_ptr<comm::Group> group;
};

// The same axes on all ranks, as the grid is one. Of tied parameters the first: a rank
// may be in groups of several, and these would wait for each other.
std::vector<Probed> probed_groups(const comm::ProcessGroups& groups) {
  std::vector<Probed> probed;
  for (const auto& group :
       {groups.tensor, groups.context, groups.gradient, groups.pipeline, groups.model}) {
    if (group->size() > 1) probed.push_back({group->name(), group->size(), group});
  }
  if (groups.tied_parameters().empty()) return probed;
  const comm::TiedParameter& tied = groups.tied_parameters().front();
  probed.push_back({comm::kTied, static_cast<int>(tied.stages.size()),
                    groups.tied_if_held(tied.name)});
  return probed;
}

}  // namespace

std::vector<LinkSpeed> probe_links(const Exec& exec, const comm::ProcessGroups& groups) {
  comm::Communicator& world = *groups.world;
  const Memory memory("trireme::report::link_probe", 2 * kElements);
  std::vector<LinkSpeed> speeds;
  for (const Probed& probed : probed_groups(groups)) {
    std::function<void(index_t)> send = [](index_t) {};
    if (probed.group != nullptr) {
      send = sender(exec, *probed.group, memory, probed.group == groups.pipeline);
    }
    send(kElements);  // connections are made
    world.barrier();
    const double small = best_of(exec, kSmallRounds, [&] { send(1); });
    world.barrier();
    const double large = best_of(exec, kLargeRounds, [&] { send(kElements); });
    const std::vector<double> all = world.gather(large);
    const auto slowest = std::ranges::max_element(all);
    speeds.push_back(
        {.axis = probed.axis,
         .ranks = probed.ranks,
         .latency = world.all_reduce(small, comm::Op::max),
         .bytes_per_second = static_cast<double>(kElements * sizeof(float)) / *slowest,
         .slowest_rank = static_cast<int>(slowest - all.begin())});
  }
  return speeds;
}

}  // namespace trireme::report
