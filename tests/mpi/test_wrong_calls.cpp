// Wrong calls and peers that do not answer end in an error that says which, where and
// who.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "comm/group.hpp"
#include "comm/mpi_communicator.hpp"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::shared_ptr<Communicator> world() {
  MpiOptions options;
  options.wait = WaitPolicy::yield;
  return make_mpi_world(options);
}

TEST(WrongCallsArguments, AreNamed) {
  const auto control = world();
  Group on_device(control);
  Group* const comm = &on_device;
  const int p = comm->size();
  std::vector<float> data(static_cast<std::size_t>(10 * p));
  std::vector<double> wide(static_cast<std::size_t>(10 * p));
  const Span all{data.data(), 10 * p, DType::float32};
  const Exec exec;
  EXPECT_THAT(message_of([&] { comm->broadcast(exec, all, p); }),
              AllOf(HasSubstr("broadcast"), HasSubstr("'world'"),
                    HasSubstr("rank " + std::to_string(p))));
  EXPECT_THAT(message_of([&] { comm->send(exec, all, comm->rank()); }),
              HasSubstr("sends to itself"));
  EXPECT_THAT(message_of([&] {
                comm->all_gather(exec, ConstSpan{wide.data(), 10, DType::float64}, all);
              }),
              AllOf(HasSubstr("all_gather"), HasSubstr("float64"), HasSubstr("float32")));
  EXPECT_THAT(message_of([&] {
                comm->all_gather(exec, ConstSpan{data.data(), 11, DType::float32}, all);
              }),
              HasSubstr("a block of 11"));
  EXPECT_THAT(message_of([&] {
                comm->reduce_scatter(exec, all, Span{wide.data(), 9, DType::float32});
              }),
              HasSubstr("a block of 9"));
  EXPECT_THAT(
      message_of([&] {
        comm->reduce_scatter(exec, all, Span{data.data() + 3, 10, DType::float32});
      }),
      p == 1 ? HasSubstr("overlaps") : HasSubstr("overlaps the input"));
  EXPECT_THAT(message_of([&] { comm->all_to_all(exec, all, all); }),
              HasSubstr("overlap"));
  EXPECT_THAT(message_of([&] {
                comm->all_reduce(exec, {nullptr, 5, DType::float32});
              }),
              HasSubstr("without memory"));
  EXPECT_THAT(message_of([&] {
                control->cartesian({p, 2}, {});
              }),
              HasSubstr("process grid"));
}

// An error that MPI finds (a message longer than its buffer) and one that we find
// (shorter).
TEST(WrongCallsMessages, OfTheWrongLength) {
  const auto control = world();
  Group on_device(control);
  Group* const comm = &on_device;
  ASSERT_GE(comm->size(), 2);
  const Exec exec;
  std::vector<float> data(20);
  std::vector<ChannelEnd> channels;
  if (comm->rank() < 2) channels = {{1 - comm->rank()}};
  comm->open(channels);
  for (const index_t expected : {5, 20}) {
    const index_t sent = expected == 5 ? 10 : 3;
    if (comm->rank() == 0) comm->send(exec, {data.data(), sent, DType::float32}, 1);
    if (comm->rank() == 1) {
      const std::string message = message_of([&] {
        comm->recv(exec, {data.data(), expected, DType::float32}, 0);
      });
      EXPECT_THAT(message, AllOf(HasSubstr("recv"), HasSubstr("'world'")));
      EXPECT_THAT(message, HasSubstr(expected == 5 ? "truncat"
                                                   : "sent 12 bytes, rank 1 expects 80"));
    }
    control->barrier();
  }
}

// Both ends of a channel are opened before its first message, by the whole group.
TEST(WrongCallsChannels, AreOpenedByBothEnds) {
  const auto control = world();
  Group group(control);
  ASSERT_GE(group.size(), 2);
  const int rank = group.rank();
  std::vector<float> data(4);
  const Span span{data.data(), 4, DType::float32};
  const int other = rank == 0 ? 1 : 0;
  EXPECT_THAT(message_of([&] { group.send(Exec(), span, other, "here"); }),
              HasSubstr(fmt::format("send in group 'world' (here): rank {} has no open "
                                    "channel 'main' to rank {}",
                                    rank, other)));
  // One end alone, which all learn of.
  std::vector<ChannelEnd> channels;
  if (rank == 1) channels = {{0, Channel::forward}};
  EXPECT_THAT(message_of([&] { group.open(channels); }),
              HasSubstr("the channel 'forward' between ranks 1 and 0 only the first"));
  if (rank == 0) channels = {{1, Channel::backward}};
  EXPECT_THAT(message_of([&] { group.open(channels); }), HasSubstr("only the first"));
  EXPECT_THAT(message_of([&] { group.open({{rank}}); }),
              HasSubstr("a channel of rank 0 to itself"));
  EXPECT_THAT(message_of([&] { group.open({{group.size()}}); }),
              HasSubstr("is not one of its"));
  channels.clear();
  if (rank < 2) channels = {{other, Channel::forward}};
  for (int times = 0; times < 2; ++times) group.open(channels);
  if (rank == 0) group.send(Exec(), span, 1, "", Channel::forward);
  if (rank == 1) group.recv(Exec(), span, 0, "", Channel::forward);
  EXPECT_THAT(
      message_of([&] { group.recv(Exec(), span, other, "here", Channel::backward); }),
      HasSubstr("no open channel 'backward'"));
  control->barrier();
}

TEST(WrongCallsTimeout, SaysWhoWaitsForWhat) {
  std::vector<float> data(4);
  const auto comm = world();
  ASSERT_GE(comm->size(), 2);
  const auto pair = comm->split(comm->rank() < 2 ? 0 : -1, 0, "pair");
  if (!pair) return comm->barrier();
  Group on_device(pair);
  on_device.open({{1 - pair->rank()}});
  if (pair->rank() == 0) {
    pair->set_timeout(0.3);
    const auto start = std::chrono::steady_clock::now();
    const std::string message = message_of([&] {
      on_device.recv(Exec(), {data.data(), 4, DType::float32}, 1);
    });
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    EXPECT_THAT(message, AllOf(HasSubstr("recv in group 'pair'"),
                               HasSubstr("rank 0 of 2"), HasSubstr("hang_timeout")));
    EXPECT_GT(waited.count(), 0.29);
    EXPECT_LT(waited.count(), 20.0);
    pair->set_timeout(0);
  }
  comm->barrier();
  // The message that was given up is taken after all, before its memory goes.
  if (pair->rank() == 1) on_device.send(Exec(), {data.data(), 4, DType::float32}, 0);
  pair->barrier();
}

// What rank 1 calls differs from what the others call: every rank learns who called what,
// and the group can go on.
class WrongCallsCompared : public testing::Test {
 protected:
  using Call = std::function<void(Group&)>;

  static Span span(index_t count, DType type = DType::float32) {
    static std::vector<double> memory(1000);
    return {memory.data(), count, type};
  }
  void expect_named(const std::string& call, const Call& others, const std::string& odd,
                    const Call& of_rank_one) {
    const std::string message =
        message_of([&] { (comm_->rank() == 1 ? of_rank_one : others)(group_); });
    const std::string rest = comm_->size() == 2   ? "rank 0"
                             : comm_->size() == 3 ? "ranks 0, 2"
                                                  : "ranks 0, 2-3";
    EXPECT_THAT(message, AllOf(HasSubstr("group 'world'"), HasSubstr(rest + ": call "),
                               HasSubstr(", " + call), HasSubstr("rank 1: call "),
                               HasSubstr(", " + odd)));
    EXPECT_EQ(comm_->all_reduce(std::int64_t{1}), comm_->size());
  }

  std::shared_ptr<Communicator> comm_ = make_mpi_world(
      {.wait = WaitPolicy::yield, .max_count = index_t{1} << 30, .check_calls = true});
  Group group_{comm_};
};

TEST_F(WrongCallsCompared, NameWhoCalledWhat) {
  const Exec exec;
  const Call sum = [&](Group& comm) { comm.all_reduce(exec, span(40), Op::sum, "here"); };
  const std::string sum_text = "all_reduce of 40 float32, sum (here)";
  comm_->barrier();
  sum(group_);
  expect_named(sum_text, sum, "all_reduce of 41 float32, sum (here)",
               [&](Group& comm) { comm.all_reduce(exec, span(41), Op::sum, "here"); });
  expect_named(sum_text, sum, "all_reduce of 0 float32, sum (here)",
               [&](Group& comm) { comm.all_reduce(exec, span(0), Op::sum, "here"); });
  expect_named(sum_text, sum, "all_reduce of 40 float64, sum (here)", [&](Group& comm) {
    comm.all_reduce(exec, span(40, DType::float64), Op::sum, "here");
  });
  expect_named(sum_text, sum, "all_reduce of 40 float32, maximum (here)",
               [&](Group& comm) { comm.all_reduce(exec, span(40), Op::max, "here"); });
  expect_named(sum_text, sum, "all_reduce of 40 float32, sum (there)", [&](Group& comm) {
    comm.start_all_reduce(exec, span(40), Op::sum, "there");
  });
  expect_named(sum_text, sum, "barrier", [](Group& comm) { comm.control().barrier(); });
  expect_named(sum_text, sum, "gather of host values of 8 bytes",
               [](Group& comm) { comm.control().gather(1.0); });
  expect_named(sum_text, sum, "split into groups 'parts'",
               [](Group& comm) { comm.control().split(0, 0, "parts"); });
  expect_named(
      "broadcast of 40 float32 from rank 0 (here)",
      [&](Group& comm) { comm.broadcast(exec, span(40), 0, "here"); },
      "broadcast of 40 float32 from rank 1",
      [&](Group& comm) { comm.broadcast(exec, span(40), 1); });
}

TEST(WrongCallsOptions, ComparisonIsChosen) {
  EXPECT_TRUE(choose_call_checks("1"));
  EXPECT_FALSE(choose_call_checks("0"));
#ifdef NDEBUG
  EXPECT_FALSE(choose_call_checks(nullptr));
#else
  EXPECT_TRUE(choose_call_checks(nullptr));
#endif
  EXPECT_THROW(choose_call_checks("yes"), InputError);
}

TEST(WrongCallsOptions, CountsMustBePositive) {
  MpiOptions options;
  options.max_count = 0;
  EXPECT_THAT(message_of([&] { make_mpi_world(options); }), HasSubstr("max_count"));
}

}  // namespace
}  // namespace trireme::comm
