// What a team's threads join, against plain loops over them: sums, largest numbers and
// running statistics, one reduction after the other, in teams of one warp, of a few, and
// of as many as a row has. On a host a warp is one thread.
#include "kernels/impl/team_row.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

constexpr int kRounds = 12;
constexpr int kTeams = 3;
constexpr int kOfValue = 2;  // numbers of a value, at most

// The largest number, and the sum of exp(number - largest), as a softmax has them.
template <class A>
struct alignas(detail::kReducedAlignment<A, 2>) Statistics {
  static constexpr bool kIsSymmetric = false;
  A largest = Kokkos::Experimental::finite_min_v<A>;
  A sum{0};

  KOKKOS_INLINE_FUNCTION void raise(A to) {
    if (!(to > largest)) return;
    sum *= Kokkos::exp(largest - to);
    largest = to;
  }
  KOKKOS_INLINE_FUNCTION void add(A number) {
    raise(number);
    sum += Kokkos::exp(number - largest);
  }
  KOKKOS_INLINE_FUNCTION void join(const Statistics& other) {
    raise(other.largest);
    sum += other.sum * Kokkos::exp(other.largest - largest);
  }
};

// Small integers: their sums are exact, in any order.
KOKKOS_INLINE_FUNCTION int number_of(int round, int rank, int which) {
  return (37 * round + 101 * rank + 59 * which) % 203 - 101;
}

// What a thread adds in a round.
template <class A, int kSums>
KOKKOS_INLINE_FUNCTION void add(detail::Sums<A, kSums>& to, int round, int rank) {
  for (int k = 0; k < kSums; ++k) to.of[k] += static_cast<A>(number_of(round, rank, k));
}
// In some rounds zeros of both signs, in some NaN beside numbers.
template <class A>
KOKKOS_INLINE_FUNCTION void add(detail::Largest<A>& to, int round, int rank) {
  const bool is_odd = rank % 2 == 1;
  if (round % 3 == 0) {
    to.add(is_odd ? A{0} : -A{0});
  } else if (round % 3 == 1 && is_odd) {
    to.add(Kokkos::Experimental::quiet_NaN_v<A>);
  } else {
    to.add(static_cast<A>(number_of(round, rank, 0)));
  }
}
template <class A>
KOKKOS_INLINE_FUNCTION void add(Statistics<A>& to, int round, int rank) {
  to.add(static_cast<A>(number_of(round, rank, 0)) / 8);
}

template <class A, int kSums>
KOKKOS_INLINE_FUNCTION void leave(const detail::Sums<A, kSums>& value, double* to) {
  for (int k = 0; k < kSums; ++k) to[k] = value.of[k];
}
template <class A>
KOKKOS_INLINE_FUNCTION void leave(const detail::Largest<A>& value, double* to) {
  to[0] = value.of;
}
template <class A>
KOKKOS_INLINE_FUNCTION void leave(const Statistics<A>& value, double* to) {
  to[0] = value.largest;
  to[1] = value.sum;
}

// How far from a plain loop it may be.
template <class Value>
constexpr double kRelative = 0;
template <class A>
constexpr double kRelative<Statistics<A>> = 256 * test::rounding<A>();

enum class Way {
  in_turns,           // both values by reduce_in_turn()
  whatever_before,    // both by reduce()
  turn_after_reduce,  // the first by reduce(), which takes turn 0
};

struct Threads {
  int on_device, on_host;  // of a team
  bool warps_alone;        // each warp has a row
};

// Every thread joins two values a round and leaves them: left is (rounds, teams, threads,
// 2, kOfValue).
template <class First, class Second>
struct Reductions {
  Way way;
  bool warps_alone;
  double* left;
  int *size, *late;

  KOKKOS_FUNCTION void operator()(const TeamMember& member) const {
    const int threads = member.team_size(), thread = member.team_rank();
    const TeamRow team =
        warps_alone
            ? TeamRow{member, true, 0, thread % kWarp, kWarp, nullptr}
            : TeamRow{member, true, 0, thread, threads, detail::memory_to_reduce(member)};
    if (thread == 0 && member.league_rank() == 0) *size = threads;
    for (int round = 0; round < kRounds; ++round) {
      // Another warp each time is late, which the others have to wait for.
      if (thread / kWarp == round % (threads / kWarp)) {
        for (int i = 0; i < 100; ++i) Kokkos::atomic_inc(late);
      }
      First first;
      add(first, round, team.rank);
      Second second;
      add(second, round, team.rank);
      first = way == Way::in_turns ? detail::reduce_in_turn(team, first, 0)
                                   : detail::reduce(team, first);
      second = way == Way::whatever_before ? detail::reduce(team, second)
                                           : detail::reduce_in_turn(team, second, 1);
      const int item = (round * kTeams + member.league_rank()) * threads + thread;
      leave(first, left + 2 * kOfValue * item);
      leave(second, left + 2 * kOfValue * item + kOfValue);
    }
  }
};

// One value of a round: the plain loop's, and the same bits for all threads of all teams.
template <class Value>
void expect_one(const double* left, int round, int joined, int results) {
  Value all;
  for (int rank = 0; rank < joined; ++rank) add(all, round, rank);
  double want[kOfValue] = {};
  leave(all, want);
  for (int k = 0; k < kOfValue; ++k) {
    EXPECT_NEAR(left[k], want[k], kRelative<Value> * std::abs(want[k]));
    for (int i = 1; i < results; ++i) {
      ASSERT_EQ(std::bit_cast<std::uint64_t>(left[2 * kOfValue * i + k]),
                std::bit_cast<std::uint64_t>(left[k]))
          << "thread " << i;
    }
  }
}

template <class First, class Second>
void expect_joined(Way way, const Threads& threads) {
  SCOPED_TRACE(::testing::Message()
               << threads.on_device << " threads, way " << static_cast<int>(way));
  const int most = kHostExecution ? threads.on_host : threads.on_device;
  const Array<double> left(std::size_t{2} * kOfValue * kRounds * kTeams * most);
  const Array<int> size(1), late(1);
  const Reductions<First, Second> reductions{way, threads.warps_alone,
                                             left.vector().data(), size.vector().data(),
                                             late.vector().data()};
  launch_teams<Kokkos::LaunchBounds<kMostRowThreads, 1>>(
      Exec(), "trireme::test::reductions", kTeams, threads.on_device, reductions,
      detail::kReduceScratch, threads.on_host);
  const std::vector<double> got = left.values();
  const auto found = static_cast<int>(size.values()[0]);
  if (!kHostExecution) {
    ASSERT_EQ(found, threads.on_device);
  }
  ASSERT_GT(found, 0);
  ASSERT_LE(found, most);
  const int joined = threads.warps_alone ? kWarp : found;
  const int results = kTeams * found;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round);
    const double* const first =
        got.data() + std::ptrdiff_t{2} * kOfValue * round * results;
    expect_one<First>(first, round, joined, results);
    expect_one<Second>(first + kOfValue, round, joined, results);
  }
}

template <class First, class Second>
void expect_joined_in_every_way() {
  for (const Way way : {Way::in_turns, Way::whatever_before, Way::turn_after_reduce}) {
    for (const Threads& threads : {Threads{32, 1, false}, Threads{96, 2, false},
                                   Threads{512, 4, false}, Threads{128, 2, true}}) {
      expect_joined<First, Second>(way, threads);
    }
  }
}

TEST(TeamRow, SumsAreThoseOfAPlainLoop) {
  expect_joined_in_every_way<detail::Sums<float, 1>, detail::Sums<float, 2>>();
  expect_joined_in_every_way<detail::Sums<double, 1>, detail::Sums<double, 2>>();
}
TEST(TeamRow, LargestIsThatOfAPlainLoop) {
  expect_joined_in_every_way<detail::Largest<float>, detail::Sums<double, 2>>();
  expect_joined_in_every_way<detail::Sums<float, 2>, detail::Largest<double>>();
}
TEST(TeamRow, RunningStatisticsAreThoseOfAPlainLoop) {
  expect_joined_in_every_way<Statistics<float>, detail::Largest<float>>();
  expect_joined_in_every_way<detail::Sums<double, 1>, Statistics<double>>();
}

}  // namespace
}  // namespace trireme::kernels
