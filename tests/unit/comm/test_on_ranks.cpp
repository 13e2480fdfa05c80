// What rank 0, or every rank, does for all, alone: the answer, and errors of the right
// kind.
#include "comm/on_ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/error.hpp"
#include "comm/self_communicator.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::comm {
namespace {

using test::message_of;

TEST(OnRanks, AnswersAndErrorsPassThrough) {
  const auto world = make_self_communicator("world");
  int calls = 0;
  on_first_rank(*world, [&] { ++calls; });
  on_every_rank(*world, [&] { ++calls; });
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(on_first_rank(*world, [] { return std::string("=yes"); }), "=yes");
  EXPECT_EQ(on_first_rank(*world, [] { return std::string(); }), "");
  for (const bool every : {false, true}) {
    const auto fails = [&](const auto& error) {
      return [&world, error, every] {
        if (every) {
          on_every_rank(*world, [&] { throw error; });
        } else {
          on_first_rank(*world, [&]() -> std::string { throw error; });
        }
      };
    };
    EXPECT_EQ(message_of<InputError>(fails(InputError("yours"))), "yours");
    EXPECT_EQ(message_of<Error>(fails(Error("ours"))), "ours");
    EXPECT_THAT(message_of<Error>(fails(std::runtime_error("theirs"))),
                testing::HasSubstr("theirs"));
    try {
      fails(Error("ours"))();
    } catch (const InputError&) {
      FAIL() << "an Error became an InputError: status 2 instead of 1";
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace trireme::comm
