// Wrong calls and peers that do not answer end in an error that says which, where and
// who.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "comm/communicator.hpp"
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
  const auto comm = world();
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
  EXPECT_THAT(message_of([&] { comm->group_end(exec); }),
              HasSubstr("without group_begin"));
  EXPECT_THAT(message_of([&] {
                comm->cartesian({p, 2}, {});
              }),
              HasSubstr("process grid"));
}

// An error that MPI finds (a message longer than its buffer) and one that we find
// (shorter).
TEST(WrongCallsMessages, OfTheWrongLength) {
  const auto comm = world();
  ASSERT_GE(comm->size(), 2);
  const Exec exec;
  std::vector<float> data(20);
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
    comm->barrier();
  }
}

TEST(WrongCallsTimeout, SaysWhoWaitsForWhat) {
  std::vector<float> data(4);
  const auto comm = world();
  ASSERT_GE(comm->size(), 2);
  const auto pair = comm->split(comm->rank() < 2 ? 0 : -1, 0, "pair");
  if (!pair) return comm->barrier();
  if (pair->rank() == 0) {
    pair->set_timeout(0.3);
    const auto start = std::chrono::steady_clock::now();
    const std::string message = message_of([&] {
      pair->recv(Exec(), {data.data(), 4, DType::float32}, 1);
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
  if (pair->rank() == 1) pair->send(Exec(), {data.data(), 4, DType::float32}, 0);
  pair->barrier();
}

TEST(WrongCallsOptions, CountsMustBePositive) {
  MpiOptions options;
  options.max_count = 0;
  EXPECT_THAT(message_of([&] { make_mpi_world(options); }), HasSubstr("max_count"));
}

}  // namespace
}  // namespace trireme::comm
