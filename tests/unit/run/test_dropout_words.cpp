// Which definition of dropout's words a run goes on with, and what it says of it.
#include "run/dropout_words.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"

namespace trireme::run {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DropoutWordsOfRun, NewRunIsOfTheProgramsOwn) {
  ckpt::TrainingState state;
  EXPECT_THAT(adopt_dropout_words(state, true), IsEmpty());
  EXPECT_EQ(state.numbers.at("dropout_words"), 2);
  EXPECT_EQ(state.numbers.at("dropout_words_since"), 0);
  state.step = 5;
  EXPECT_THAT(adopt_dropout_words(state, true), IsEmpty());
  EXPECT_EQ(state.numbers.at("dropout_words_since"), 0);
}

TEST(DropoutWordsOfRun, OldRunGoesOnWithTheNewOnes) {
  ckpt::TrainingState state;
  state.step = 500;
  EXPECT_THAT(
      adopt_dropout_words(state, true),
      HasSubstr("by definition 2 from step 501 on: the checkpoint, of step 500, is "
                "of a run whose masks were of definition 1"));
  EXPECT_EQ(state.numbers.at("dropout_words"), 2);
  EXPECT_EQ(state.numbers.at("dropout_words_since"), 500);
  state.step = 600;
  EXPECT_THAT(adopt_dropout_words(state, true), IsEmpty());
  EXPECT_EQ(state.numbers.at("dropout_words_since"), 500);
}

TEST(DropoutWordsOfRun, RunWithoutDropoutHasNothingToSay) {
  ckpt::TrainingState state;
  state.step = 500;
  EXPECT_THAT(adopt_dropout_words(state, false), IsEmpty());
  EXPECT_EQ(state.numbers.at("dropout_words_since"), 500);
}

TEST(DropoutWordsOfRun, LaterDefinitionIsRefused) {
  ckpt::TrainingState state;
  state.step = 500;
  state.version = "trireme 9.0";
  state.numbers["dropout_words"] = 3;
  EXPECT_THAT([&] { adopt_dropout_words(state, true); },
              ::testing::ThrowsMessage<InputError>(HasSubstr(
                  "Continue the run with the program that wrote it (trireme 9.0)")));
}

}  // namespace
}  // namespace trireme::run
