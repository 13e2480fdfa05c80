// The board of a world of ranks: all groups write to it, others read it while they wait,
// and a rank that gives up shows it.
#include "comm/operation_board.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "comm/group.hpp"
#include "comm/mpi_communicator.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// One directory for all ranks, of which each has a slot.
class OperationBoardOfRanks : public testing::Test {
 protected:
  OperationBoardOfRanks() {
    MpiOptions options;
    options.wait = WaitPolicy::yield;
    world_ = make_mpi_world(options);
    std::string path;
    if (world_->rank() == 0) path = scratch_.emplace().path().string();
    world_->broadcast(path);
    directory_ = path;
    board_ = open_board(*world_, directory_, "here").board;
    world_->attach(board_);
    world_->barrier();
  }
  ~OperationBoardOfRanks() override {
    world_->attach(nullptr);
    world_->barrier();  // before the directory goes
  }
  // Until a condition holds on this rank, outside of all messages.
  template <class Condition>
  static bool comes_true(const Condition& condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return condition();
  }
  // How many ranks wait in `operation` of a group.
  int waiting(const std::string& operation, const std::string& group) const {
    int count = 0;
    for (const RankState& state : read_boards(directory_).ranks) {
      count += state.activity == RankActivity::waiting && state.operation == operation &&
                       state.group == group
                   ? 1
                   : 0;
    }
    return count;
  }
  template <class Call>
  static std::string message_of(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  std::optional<test::Scratch> scratch_;  // of rank 0
  std::filesystem::path directory_;
  std::shared_ptr<Communicator> world_;
  std::shared_ptr<OperationBoard> board_;
};

TEST_F(OperationBoardOfRanks, IsSharedByAllGroups) {
  const int ranks = world_->size();
  ASSERT_GE(ranks, 2);
  ASSERT_NE(board_, nullptr);
  const auto part = world_->split(0, 0, "part");
  const auto axes = world_->cartesian({ranks}, {{"axis", {true}}});
  std::vector<float> data(100);
  const Span span{data.data(), 100, DType::float32};
  for (const auto& [group, name] :
       {std::pair(part, "part"), std::pair(axes.front(), "axis")}) {
    if (world_->rank() == ranks - 1) {  // keeps the others waiting, and looks
      EXPECT_TRUE(comes_true([&] { return waiting("all_reduce", name) == ranks - 1; }));
      const BoardReading reading = read_boards(directory_);
      EXPECT_THAT(reading.problems, IsEmpty());
      ASSERT_EQ(reading.ranks.size(), static_cast<std::size_t>(ranks));
      EXPECT_EQ(reading.ranks.back().activity, RankActivity::computing);
      EXPECT_THAT(describe_now(reading.ranks.front(), reading.ranks.front().last_sign),
                  AllOf(HasSubstr("rank 0 (process "),
                        HasSubstr("in all_reduce 'a site' of group " + std::string(name) +
                                  " (call 1, 100 elements), since")));
    }
    Group(group).all_reduce(Exec(), span, Op::sum, "a site");
  }
  Group on_device(part);
  std::vector<ChannelEnd> channels;
  if (world_->rank() == 0) channels = {{ranks - 1}};
  if (world_->rank() == ranks - 1) channels = {{0}};
  on_device.open(channels);
  if (world_->rank() == ranks - 1) {
    EXPECT_TRUE(comes_true([&] { return waiting("recv", "part") == 1; }));
    on_device.send(Exec(), span, 0);
  } else if (world_->rank() == 0) {
    on_device.recv(Exec(), span, ranks - 1);
  }
  world_->barrier();
}

TEST_F(OperationBoardOfRanks, IsShownByWhoGivesUp) {
  const int ranks = world_->size();
  const auto group = world_->split(0, 0, "tensor");
  world_->set_timeout(0.5);
  if (world_->rank() == 1) {
    // All others have given up and gone on.
    EXPECT_TRUE(comes_true([&] { return waiting("barrier", "world") == ranks - 1; }));
    const std::string table = test::slurp(directory_ / kHangName);
    EXPECT_THAT(table,
                AllOf(ContainsRegex("waited [0-9.]+ s"), HasSubstr("rank 0 (process"),
                      HasSubstr("in barrier of group tensor (call 1), since"),
                      HasSubstr("rank 1 (process"), HasSubstr("not in a message since")));
  } else {
    EXPECT_THAT(
        message_of([&] { group->barrier(); }),
        AllOf(HasSubstr("barrier in group 'tensor'"), HasSubstr("hang_timeout"),
              ContainsRegex("of " + std::to_string(ranks) + " waited [0-9.]+ s")));
  }
  world_->set_timeout(0);
  if (world_->rank() == 1) group->barrier();  // which the others gave up
  world_->barrier();
}

// One rank takes its groups in another order: nobody's header can tell, the wait does.
TEST_F(OperationBoardOfRanks, ShowsAnotherOrderOfGroups) {
  const auto first = world_->split(0, 0, "first");
  const auto second = world_->split(0, 0, "second");
  const bool other = world_->rank() == 1;
  world_->set_timeout(1.0);
  EXPECT_THAT(message_of([&] { (other ? second : first)->barrier(); }),
              HasSubstr("hang_timeout"));
  world_->set_timeout(0);
  // Who went on at once would free those that still wait.
  EXPECT_TRUE(comes_true([&] {
    return waiting("barrier", "first") == 0 && waiting("barrier", "second") == 0;
  }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the others see it, too
  (other ? first : second)->barrier();
  world_->barrier();
  if (world_->rank() == 0) {
    EXPECT_THAT(test::slurp(directory_ / kHangName),
                AllOf(HasSubstr("in barrier of group first (call 1)"),
                      HasSubstr("in barrier of group second (call 1)")));
  }
}

}  // namespace
}  // namespace trireme::comm
