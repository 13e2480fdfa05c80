// report/rank_clock.cpp — see rank_clock.hpp.
//
// Two clocks are compared as in this example: the first sends when it shows 10.0 s and
// has the answer at 10.4 s; the second read 3.1 s in between. Its 3.1 s is then taken for
// the first one's 10.2 s, which is right to 0.2 s. Of kRounds such rounds the shortest
// counts, as it leaves the least room for error. In round k of the tree rank r, whose
// lowest bit is k, is compared with rank r - 2^k: of eight ranks 1 with 0, 3 with 2, 5
// with 4, 7 with 6 at the same time; then 2 with 0 and 6 with 4; then 4 with 0. What all
// found is told to all, and rank 7's offset is the sum of those of 7, 6 and 4.
#include "report/rank_clock.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace trireme::report {

namespace {

constexpr int kRounds = 16;

}  // namespace

double seconds_of(comm::Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

double reference_time(double own, const ClockReading& before, const ClockReading& after) {
  const double between = after.own - before.own;
  const double share =
      between > 0.0 ? std::clamp((own - before.own) / between, 0.0, 1.0) : 0.0;
  const double offset_before = before.reference - before.own;
  const double offset_after = after.reference - after.own;
  return own + offset_before + share * (offset_after - offset_before);
}

RankClock::RankClock(comm::Communicator& world, Clock clock)
    : world_(world), clock_(std::move(clock)) {
  if (!clock_) clock_ = [] { return seconds_of(comm::Clock::now()); };
  const int rank = world.rank();
  for (int stride = 1; stride < world.size(); stride *= 2) {
    const bool is_further = rank % (2 * stride) == stride;
    const bool is_nearer = rank % (2 * stride) == 0 && rank + stride < world.size();
    const int colour = is_further ? rank - stride : is_nearer ? rank : -1;
    auto pair = world.split(colour, rank, "clock reading");
    if (pair != nullptr) pairs_.push_back({std::move(pair), is_nearer});
  }
}

// Host values: a message of a device is not waited for by the host where it arrives.
ClockReading RankClock::compare(comm::Communicator& pair, bool is_nearer) const {
  double own[kRounds];
  double shortest = std::numeric_limits<double>::infinity(), middle = 0.0;
  std::int64_t token = 0, best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double begin = clock_();
    pair.broadcast(token, 0);
    own[round] = clock_();
    pair.broadcast(token, 1);
    const double end = clock_();
    if (!is_nearer || end - begin >= shortest) continue;
    shortest = end - begin;
    middle = 0.5 * (begin + end);
    best = round;
  }
  pair.broadcast(best, 0);
  // A sum with zero tells the other rank what this one found.
  middle = pair.all_reduce(is_nearer ? middle : 0.0);
  shortest = pair.all_reduce(is_nearer ? shortest : 0.0);
  return {.own = own[best], .reference = middle, .error = 0.5 * shortest};
}

ClockReading RankClock::read() {
  const int ranks = world_.size();
  world_.barrier();
  ClockReading mine{.own = clock_()};
  mine.reference = mine.own;
  for (const Pair& pair : pairs_) {
    const ClockReading found = compare(*pair.ranks, pair.is_nearer);
    if (!pair.is_nearer) mine = found;
  }
  // Of each rank, to the one that it was compared with.
  const std::vector<double> offsets = world_.gather(mine.reference - mine.own);
  const std::vector<double> errors = world_.gather(mine.error);
  const auto nearer = [](int rank) { return rank & (rank - 1); };
  for (int rank = nearer(world_.rank()); rank > 0 && rank < ranks; rank = nearer(rank)) {
    mine.reference += offsets[static_cast<std::size_t>(rank)];
    mine.error += errors[static_cast<std::size_t>(rank)];
  }
  return mine;
}

}  // namespace trireme::report
