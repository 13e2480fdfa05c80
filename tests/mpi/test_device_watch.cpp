// Messages that hang on the device, over a library of this test's
// (tests/support/fake_nccl.hpp): the watch finds them, names who is late, and ends what
// is under way, whether the rank's own thread comes to see it or waits for the device.
#include "comm/device_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "comm/group.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/operation_board.hpp"
#include "support/fake_nccl.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DeviceWatchOfRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    test::fake_nccl().expects_violations = true;
    MpiOptions options;
    options.wait = WaitPolicy::yield;
    options.transport = TransportKind::nccl;
    options.check_calls = false;  // as ranks make different calls
    options.end_job = [this] { ++ends_; };
    world_ = make_mpi_world(options);
    std::string path;
    if (world_->rank() == 0) path = scratch_.emplace().path().string();
    world_->broadcast(path);
    directory_ = path;
    board_ = open_board(*world_, directory_, "here").board;
    world_->attach(board_);
    control_ = make_mpi_world({.wait = WaitPolicy::yield});
    control_->set_timeout(60.0);
  }
  void TearDown() override {
    control_->barrier();  // others have seen what this rank notes
    world_->attach(nullptr);
    world_.reset();
    test::fake_nccl().asynchronous_error = 0;
    test::fake_nccl().take_violations();
    test::fake_nccl().expects_violations = false;
    control_->barrier();  // before the directory goes
  }
  template <class Condition>
  static bool comes_true(const Condition& condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return condition();
  }
  // What the next message of a group says when the watch has found something.
  std::string found(Group& group) {
    EXPECT_TRUE(comes_true([&] { return world_->has_given_up(); }));
    EXPECT_TRUE(world_->is_under_way());
    try {
      sum(group, "another").wait(exec_);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  Request sum(Group& group, Site site, index_t count = 100) {
    return group.start_all_reduce(exec_, {data_.data(), count, DType::float32}, Op::sum,
                                  site);
  }
  // The message of one rank goes its usual way out: groups are left by an exception.
  template <class Body>
  void in_group(const Body& body) {
    struct Left {};
    try {
      Group group(world_->split(0, world_->rank(), "gradient"));
      world_->set_timeout(0.5);
      for (int i = 0; i < 2; ++i) sum(group, "before").wait(exec_);
      body(group);
      throw Left{};
    } catch (const Left&) {
    }
  }

  std::optional<test::Scratch> scratch_;  // of rank 0
  std::filesystem::path directory_;
  std::shared_ptr<Communicator> world_, control_;
  std::shared_ptr<OperationBoard> board_;
  std::atomic<int> ends_{0};
  std::vector<float> data_ = std::vector<float>(1000);
  const Exec exec_;
};

TEST_F(DeviceWatchOfRanks, NamesTheRankThatDoesNotBegin) {
  const int late = world_->size() - 1;
  const int before = test::fake_nccl().aborted;
  in_group([&](Group& group) {
    if (world_->rank() == late) {
      control_->barrier();  // until all others have found it
      EXPECT_FALSE(world_->has_given_up());
      return;
    }
    [[maybe_unused]] const Request request = sum(group, "gradients");
    EXPECT_THAT(
        found(group),
        AllOf(HasSubstr("all_reduce 'gradients' of group 'gradient' (number 3 on its "
                        "communicator, 100 elements) has been under way on the device "
                        "for "),
              HasSubstr("the limit is run.hang_timeout"),
              HasSubstr("late: it has begun 2 operations there. rank " +
                        std::to_string(late) + " (process "),
              Not(HasSubstr("rank " + std::to_string(1 - late) + " does"))));
    control_->barrier();
    EXPECT_TRUE(comes_true([&] { return test::fake_nccl().aborted > before; }));
  });
  EXPECT_EQ(ends_, 0);  // as the rank's own thread had seen it
  if (world_->rank() == 0) {
    const std::string table = test::slurp(directory_ / kHangName);
    EXPECT_THAT(table, AllOf(HasSubstr("run.hang_timeout"),
                             HasSubstr("on its device: all_reduce 'gradients' of group "
                                       "gradient (number 3, 100 elements), since ")));
  }
}

TEST_F(DeviceWatchOfRanks, NamesTheRankThatDoesSomethingElse) {
  const int other = world_->size() - 1;
  const bool is_other = world_->rank() == other;
  in_group([&](Group& group) {
    [[maybe_unused]] const Request request =
        is_other ? sum(group, "gradients", 50) : sum(group, "weights");
    const std::string text = found(group);
    if (is_other) {
      EXPECT_THAT(text, AllOf(HasSubstr("'gradients'"), HasSubstr("50 elements"),
                              HasSubstr("rank 0 does something else there: all_reduce "
                                        "'weights' of group gradient (number 3, 100")));
    } else {
      EXPECT_THAT(text,
                  AllOf(HasSubstr("'weights'"),
                        HasSubstr("rank " + std::to_string(other) +
                                  " does something else there: all_reduce 'gradients' of "
                                  "group gradient (number 3, 50 elements)")));
    }
    control_->barrier();
  });
}

TEST_F(DeviceWatchOfRanks, NamesTheSenderThatIsLate) {
  try {
    Group group(world_->split(0, world_->rank(), "pipeline"));
    const int rank = world_->rank();
    std::vector<ChannelEnd> ends;
    if (rank < 2) ends = {{1 - rank, Channel::backward}};
    group.open(ends);
    world_->set_timeout(0.5);
    if (rank == 0) {
      [[maybe_unused]] const Request request =
          group.start_recv(exec_, {data_.data(), 70, DType::float32}, 1,
                           "activation gradients", Channel::backward);
      EXPECT_THAT(found(group),
                  AllOf(HasSubstr("recv 'activation gradients' of group 'pipeline' with "
                                  "rank 1 (number 1 on its communicator, 70 elements)"),
                        HasSubstr("late: it has begun 0 operations there. rank 1 ")));
    }
    control_->barrier();
    throw Error("over");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "over");
  }
}

// A thread that waits for the device does not come back by itself.
TEST_F(DeviceWatchOfRanks, EndsTheJobWhereTheThreadWaits) {
  in_group([&](Group& group) {
    if (world_->rank() > 0) return control_->barrier();
    Request request = sum(group, "gradients");
    const auto begin = Clock::now();
    request.wait(exec_);  // in place of kernels that wait for the result, and a fence
    const std::chrono::duration<double> waited = Clock::now() - begin;
    EXPECT_GT(waited.count(), 0.5 + 1.0);
    EXPECT_LT(waited.count(), 30.0);
    EXPECT_TRUE(comes_true([&] { return ends_ == 1; }));
    EXPECT_THAT(found(group), HasSubstr("'gradients'"));
    control_->barrier();
  });
  EXPECT_EQ(ends_, world_->rank() == 0 ? 1 : 0);
}

// Nor does one that waits for other ranks, but it looks.
TEST_F(DeviceWatchOfRanks, EndsAWaitOverMpi) {
  in_group([&](Group& group) {
    if (world_->rank() > 0) return control_->barrier();
    [[maybe_unused]] const Request request = sum(group, "gradients");
    world_->set_timeout(1.5);  // for the barrier, too, which begins later
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    EXPECT_THAT([&] { world_->barrier(); },
                ::testing::ThrowsMessage<Error>(AllOf(
                    HasSubstr("'gradients'"), HasSubstr("under way on the device"))));
    control_->barrier();
  });
  EXPECT_EQ(ends_, 0);
}

TEST_F(DeviceWatchOfRanks, EndsOnAnErrorOfTheLibrary) {
  in_group([&](Group& group) {
    world_->set_timeout(0.0);  // nothing has to take long
    control_->barrier();
    test::fake_nccl().asynchronous_error = test::kRemoteError;
    EXPECT_THAT(found(group),
                AllOf(HasSubstr("group 'gradient'"), HasSubstr("remote process exited"),
                      HasSubstr("Another rank has ended"), Not(HasSubstr("late"))));
    control_->barrier();
  });
}

// What the device waits for by itself, kernels that come before, is not its messages'.
TEST_F(DeviceWatchOfRanks, LetsSlowRanksBe) {
  Group group(world_->split(0, world_->rank(), "gradient"));
  world_->set_timeout(0.6);
  for (int i = 0; i < 4; ++i) {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(world_->rank() == 0 ? 300 : 10));
    sum(group, "gradients").wait(exec_);
  }
  EXPECT_FALSE(world_->has_given_up());
  EXPECT_FALSE(world_->is_under_way());
  // How far everybody is can be read.
  control_->barrier();
  EXPECT_TRUE(comes_true([&] {
    for (const RankState& state : read_boards(directory_).ranks) {
      if (state.lanes.size() != 1 || state.lanes[0].ended != 4) return false;
    }
    return true;
  }));
  control_->barrier();
}

}  // namespace
}  // namespace trireme::comm
