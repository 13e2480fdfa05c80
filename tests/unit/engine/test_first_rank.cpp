// What rank 0 does for all, alone: the answer, and errors of the right kind.
#include "engine/first_rank.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/error.hpp"
#include "comm/self_communicator.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::engine {
namespace {

using test::message_of;

TEST(FirstRank, AnswersAndErrorsPassThrough) {
  const auto world = comm::make_self_communicator("world");
  EXPECT_EQ(on_first_rank(*world, [] { return std::string("=yes"); }), "=yes");
  EXPECT_EQ(on_first_rank(*world, [] { return std::string(); }), "");
  const auto fails = [&](const auto& error) {
    return
        [&world, error] { on_first_rank(*world, [&]() -> std::string { throw error; }); };
  };
  EXPECT_EQ(message_of<InputError>(fails(InputError("yours"))), "yours");
  EXPECT_EQ(message_of<Error>(fails(Error("ours"))), "ours");
  EXPECT_EQ(message_of<Error>(fails(std::runtime_error("theirs"))), "theirs");
  try {
    fails(Error("ours"))();
  } catch (const InputError&) {
    FAIL() << "an Error became an InputError: status 2 instead of 1";
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace trireme::engine
