// Over the strict transport what NCCL would carry arrives, and what would wait for ever
// or read what is not there yet over NCCL fails and says so.
#include "support/strict_transport.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "comm/group.hpp"
#include "comm/mpi_communicator.hpp"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// EXPECT_THAT(call, refuses("why")).
template <class... Texts>
auto refuses(const Texts&... texts) {
  return ::testing::ThrowsMessage<Error>(AllOf(HasSubstr(texts)...));
}

// Pairs of neighbours; more ranks than that look on.
class StrictTransportPair : public testing::Test {
 protected:
  void SetUp() override {
    world_ = make_mpi_world(strict_options());
    world_->set_timeout(30.0);
    auto pair = world_->split(world_->rank() / 2, 0, "pair");
    ASSERT_EQ(pair->size(), 2);
    other_ = 1 - pair->rank();
    make_pair(std::move(pair));
  }
  void TearDown() override { world_->barrier(); }

  void make_pair(std::shared_ptr<Communicator> pair) {
    pair_ = std::make_unique<Group>(std::move(pair));
    pair_->open({{other_}, {other_, Channel::forward}, {other_, Channel::backward}});
  }
  // Of the call that was made last.
  std::string number_of_call() const {
    return fmt::format("number {})", pair_->control().calls());
  }
  Span own() { return {own_.data(), 8, DType::float32}; }
  Span got() { return {got_.data(), 8, DType::float32}; }
  Request send(Channel channel = Channel::main) {
    return pair_->start_send(exec_, own(), other_, "site", channel);
  }
  Request receive(Channel channel = Channel::main) {
    return pair_->start_recv(exec_, got(), other_, "site", channel);
  }

  Exec exec_;
  std::shared_ptr<Communicator> world_;
  std::unique_ptr<Group> pair_;
  int other_ = 0;
  std::vector<float> own_ = std::vector<float>(8, 1.0f);
  std::vector<float> got_ = std::vector<float>(8, 0.0f);
};

TEST_F(StrictTransportPair, CrossingSendsFailUnlessBegunTogether) {
  {
    [[maybe_unused]] Request sent = send(), received = receive();
    EXPECT_THAT([&] { sent.wait(exec_); },
                refuses("send in group 'pair' (site, number 1)",
                        "both send first on one channel", "together()"));
  }
  make_pair(world_->split(world_->rank() / 2, 0, "pair"));
  {
    [[maybe_unused]] Request received = receive(), sent = send();
    EXPECT_THAT([&] { received.wait(exec_); },
                refuses("recv in group 'pair' (site, number 1)",
                        "both receive first on one channel"));
  }
  make_pair(world_->split(world_->rank() / 2, 0, "pair"));
  Request sent, received;
  pair_->together([&] {
    sent = send();
    received = receive();
  });
  sent.wait(exec_);
  received.wait(exec_);
  EXPECT_THAT(got_, Each(1.0f));
}

// One rank has both in one call, the other in two: the calls of the two meet.
TEST_F(StrictTransportPair, OneEndMayBeginThemApart) {
  Request sent, received;
  const auto begin = [&] {
    sent = send();
    received = receive();
  };
  pair_->rank() == 0 ? pair_->together(begin) : begin();
  sent.wait(exec_);
  received.wait(exec_);
  EXPECT_THAT(got_, Each(1.0f));
}

TEST_F(StrictTransportPair, OppositeChannelsCross) {
  const bool is_first = pair_->rank() == 0;
  Request sent = send(is_first ? Channel::forward : Channel::backward);
  Request received = receive(is_first ? Channel::backward : Channel::forward);
  sent.wait(exec_);
  received.wait(exec_);
  EXPECT_THAT(got_, Each(1.0f));
}

TEST_F(StrictTransportPair, AnOutputIsPoisonedUntilItIsWaitedFor) {
  std::vector<float> sums(5, 1.0f), all(10, 0.0f);
  Request a = pair_->start_all_reduce(exec_, {sums.data(), 5, DType::float32});
  Request b = pair_->start_all_gather(exec_, {own_.data(), 5, DType::float32},
                                      {all.data(), 10, DType::float32});
  for (const float x : sums) EXPECT_TRUE(std::isnan(x));
  for (const float x : all) EXPECT_TRUE(std::isnan(x));
  a.wait(exec_);
  EXPECT_THAT(sums, Each(2.0f));
  b.wait(exec_);
  EXPECT_THAT(all, Each(1.0f));
}

TEST_F(StrictTransportPair, AnInputIsNotWritten) {
  std::vector<float> all(16);
  Request gather =
      pair_->start_all_gather(exec_, own(), {all.data(), 16, DType::float32}, "weights");
  own_[3] = 2.0f;
  EXPECT_THAT([&] { gather.wait(exec_); },
              refuses("all_gather in group 'pair' (weights, " + number_of_call(),
                      "its input was written while it was under way"));
}

TEST_F(StrictTransportPair, AnOutputIsNotWritten) {
  std::vector<float> all(10);
  Request gather = pair_->start_all_gather(exec_, {own_.data(), 5, DType::float32},
                                           {all.data(), 10, DType::float32}, "weights");
  all[9] = 2.0f;
  EXPECT_THAT([&] { gather.wait(exec_); },
              refuses("all_gather in group 'pair' (weights, " + number_of_call(),
                      "its output was written while it was under way"));
}

TEST_F(StrictTransportPair, WaitsComeAfterTheGroupCall) {
  Request sum;
  pair_->together([&] {
    sum = pair_->start_all_reduce(exec_, own());
    EXPECT_THAT(
        [&] {
          Request early = pair_->start_all_reduce(exec_, got());
          early.wait(exec_);
        },
        refuses("is waited for within the group call that begins it"));
  });
  sum.wait(exec_);
  EXPECT_THAT(own_, Each(2.0f));
}

TEST_F(StrictTransportPair, AGroupCallEndsWhereItsBodyThrows) {
  EXPECT_THROW(pair_->together([] { throw Error("begun by nobody"); }), Error);
  pair_->all_reduce(exec_, own());  // is not waited for within that call
  EXPECT_THAT(own_, Each(2.0f));
}

// The second message is the one that crosses, and is named so.
TEST_F(StrictTransportPair, MessagesAreNumbered) {
  Request sent, received;
  pair_->together([&] {
    sent = send();
    received = receive();
  });
  sent.wait(exec_);
  received.wait(exec_);
  [[maybe_unused]] Request again = send(), back = receive();
  EXPECT_THAT([&] { again.wait(exec_); },
              refuses("send in group 'pair' (site, number 3)"));
}

TEST_F(StrictTransportPair, AllBeginTheSameCollectives) {
  std::vector<float> all(16);
  const auto call = [&] {
    if (pair_->rank() == 0) {
      pair_->all_reduce(exec_, own(), Op::sum, "here");
    } else {
      pair_->all_gather(exec_, own(), {all.data(), 16, DType::float32}, "there");
    }
  };
  const std::int64_t next = pair_->control().calls() + 1;
  EXPECT_THAT(
      call,
      refuses("group 'pair' make different calls",
              fmt::format("rank 0: call {}, all_reduce of 8 float32, sum (here)", next),
              fmt::format("rank 1: call {}, all_gather of 16 float32 (there)", next)));
  pair_->all_reduce(exec_, own());
  EXPECT_THAT(own_, Each(2.0f));
}

TEST_F(StrictTransportPair, WantsCallsToBeCompared) {
  MpiOptions unchecked = strict_options();
  unchecked.check_calls = false;
  const auto world = make_mpi_world(unchecked);
  EXPECT_THAT([&] { Group group(world); }, refuses("compare what they call"));
}

TEST_F(StrictTransportPair, HasNo16BitIntegers) {
  std::vector<std::uint16_t> data(3);
  EXPECT_THAT(
      [&] {
        pair_->all_reduce(exec_, {data.data(), 3, DType::uint16});
      },
      refuses("NCCL has no 16-bit integers"));
}

}  // namespace
}  // namespace trireme::comm
