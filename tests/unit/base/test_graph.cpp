// Graph: nothing runs while it is recorded, replays run in the queue's order and read
// what changes from memory; on a host, what a device could not replay is refused.
#include "base/graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/early_start.hpp"
#include "base/error.hpp"
#include "support/arrays.hpp"

namespace trireme {
namespace {

struct Add {
  View1<float> to;
  View1<const float> by;
  KOKKOS_FUNCTION void operator()(index_t i) const { to(i) = 2 * to(i) + by(i); }
};

void add(const Exec& exec, const test::Array<float>& to, const test::Array<float>& by,
         index_t count = 3) {
  launch(exec, {"trireme::test::add", {.bytes = 4 * count}}, count,
         Add{to.vector(), by.cvector()});
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(GraphReplays, RunInOrderAndReadMemory) {
  const Exec exec;
  const test::Array<float> to({1, 2, 3});
  test::Array<float> by({1, 1, 1});
  add(exec, to, by);
  EXPECT_EQ(to.values(), (std::vector<double>{3, 5, 7}));
  Graph graph;
  EXPECT_FALSE(graph.is_recorded());
  graph.record(exec, [&](const Exec& on) {
    add(on, to, by);
    add(on, to, by);
  });
  EXPECT_TRUE(graph.is_recorded());
  exec.fence("test");
  EXPECT_EQ(to.values(), (std::vector<double>{3, 5, 7})) << "the recording ran";
  graph.replay(exec);
  exec.fence("test");
  EXPECT_EQ(to.values(), (std::vector<double>{15, 23, 31}));
  by.set({0, 0, 1});
  graph.replay(exec);
  add(exec, to, by);
  exec.fence("test");
  EXPECT_EQ(to.values(), (std::vector<double>{120, 184, 255}));
  Graph moved = std::move(graph);
  EXPECT_TRUE(moved.is_recorded());
  moved.record(exec, [&](const Exec& on) { add(on, to, by); });
  moved.replay(exec);
  exec.fence("test");
  EXPECT_EQ(to.values(), (std::vector<double>{240, 368, 511}));
}

TEST(GraphReplays, OfNothingAreRefused) {
  const Exec exec;
  Graph graph;
  EXPECT_THAT(message_of([&] { graph.replay(exec); }),
              testing::HasSubstr("not recorded"));
  EXPECT_THAT(message_of([&] {
                graph.record(exec, [](const Exec&) { TRIREME_REQUIRE(false, "no"); });
              }),
              testing::HasSubstr("no"));
  EXPECT_FALSE(graph.is_recorded());
}

struct AddEarly {
  View1<float> to;
  View1<const float> by;
  bool is_backward = false;
  static constexpr index_t kTeams = 2000, kOfTeam = 64;
  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    let_next_start();
    const auto rank = static_cast<index_t>(team.league_rank());
    const index_t first = kOfTeam * (is_backward ? kTeams - 1 - rank : rank);
    ask_for_line(&by(static_cast<std::size_t>(first)));
    wait_for_previous();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, kOfTeam), [&](index_t i) {
      to(first + i) = 2 * to(first + i) + by(first + i);
    });
  }
};

// Launches go through the array from either end in turns, so that the first teams of one
// need what the last teams of the other write: what does not wait is seen.
TEST(GraphReplays, KernelsThatStartEarlyFindWhatTheOnesBeforeHaveWritten) {
  const Exec exec;
  constexpr index_t kCount = AddEarly::kTeams * AddEarly::kOfTeam;
  constexpr int kLaunches = 16, kReplays = kHostExecution ? 2 : 20;
  const std::vector<double> zeros(extent(kCount), 0.0);
  test::Array<float> to(zeros);
  const test::Array<float> by(extent(kCount), 1.0);
  const auto launches = [&](const Exec& on) {
    add(on, to, by, kCount);  // says nothing: the next one starts when it has ended
    for (int i = 1; i < kLaunches; ++i) {
      launch_early_teams(on, {"trireme::test::add_early", {.bytes = 4 * kCount}},
                         AddEarly::kTeams, static_cast<int>(AddEarly::kOfTeam),
                         AddEarly{to.vector(), by.cvector(), i % 2 == 1});
    }
  };
  Graph graph;
  launches(exec);
  graph.record(exec, launches);
  exec.fence("test");
  for (int replay = 0; replay < kReplays; ++replay) {
    to.set(zeros);
    graph.replay(exec);
    exec.fence("test");
    EXPECT_THAT(to.values(), testing::Each((1 << kLaunches) - 1)) << "replay " << replay;
  }
}

// A device replays the old launches then, and says nothing.
TEST(GraphReplays, OfOtherLaunchesAreRefusedOnAHost) {
  if (!kHostExecution) return;
  const Exec exec;
  const test::Array<float> to({1, 2, 3}), by({1, 1, 1});
  int launches = 1;
  index_t count = 3;
  Graph graph;
  graph.record(exec, [&](const Exec& on) {
    for (int i = 0; i < launches; ++i) add(on, to, by, count);
  });
  graph.replay(exec);
  launches = 2;
  EXPECT_THAT(message_of([&] { graph.replay(exec); }),
              testing::HasSubstr("trireme::test::add has 1 call more and +12 B"));
  launches = 1;
  count = 2;
  EXPECT_THAT(message_of([&] { graph.replay(exec); }),
              testing::HasSubstr("trireme::test::add has 0 calls more and -4 B"));
  EXPECT_EQ(to.values(), (std::vector<double>{3, 5, 7})) << "a refused replay ran";
  count = 3;
  graph.replay(exec);
  exec.fence("test");
  EXPECT_EQ(to.values(), (std::vector<double>{7, 11, 15}));
}

}  // namespace
}  // namespace trireme
