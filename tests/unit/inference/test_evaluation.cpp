// What an evaluation says of a model with several objectives, and what its progress
// keeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "comm/self_communicator.hpp"
#include "inference/evaluation.hpp"
#include "inference/evaluation_progress.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::inference {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

EvaluationSums sums_of_two() {
  return {.samples = 3,
          .objectives = {{30.0, 10.0}, {-2.0, 4.0}},
          .bytes = 40.0,
          .seconds = 1.0};
}

TEST(EvaluationOfObjectives, NamesEachWhereThereAreSeveral) {
  Evaluation evaluation;
  EvaluatedSet set;
  set.name = "text";
  set.sums = sums_of_two();
  set.losses = {3.5, {{"masked words", 3.0}, {"sentence order", 0.5}}};
  evaluation.sets = {set};
  const auto json = nlohmann::json::parse(evaluation.json());
  EXPECT_EQ(json["loss"], 3.5);
  EXPECT_EQ(json["perplexity"], std::exp(3.0));
  EXPECT_EQ(json["tokens"], 10);
  EXPECT_EQ(json["losses"]["sentence order"], 0.5);
  EXPECT_THAT(evaluation.text(),
              HasSubstr("3.500000 (masked words 3.000, sentence order 0.500)"));

  evaluation.sets[0].losses.parts.clear();
  EXPECT_THAT(evaluation.json(), Not(HasSubstr("losses")));
  EXPECT_THAT(evaluation.text(), HasSubstr("3.500000 nats per token"));
  evaluation.sets[0].sums.objectives[0] = {0.0, 0.0};
  EXPECT_THAT(evaluation.text(), HasSubstr("not known: no token counts"));
  EXPECT_THAT(evaluation.text(), HasSubstr("took"));
}

// What is predicted here and there says nothing of the text's bits.
TEST(EvaluationOfObjectives, OfSomeWordsHasNoBits) {
  Evaluation evaluation;
  EvaluatedSet set;
  set.name = "text";
  set.sums = sums_of_two();
  set.losses = {3.0, {}};
  evaluation.sets = {set};
  EXPECT_THAT(evaluation.text(), HasSubstr("  tokens            10, of 40 bytes\n"));
  EXPECT_THAT(evaluation.text(), HasSubstr("bits per byte"));
  EXPECT_EQ(nlohmann::json::parse(evaluation.json())["bytes"], 40);

  evaluation.sets[0].every_word = false;
  const auto json = nlohmann::json::parse(evaluation.json());
  EXPECT_EQ(json["perplexity"], std::exp(3.0));
  for (const char* key : {"bits_per_token", "bits_per_byte", "bytes"}) {
    EXPECT_TRUE(json[key].is_null()) << key;
  }
  EXPECT_THAT(evaluation.text(),
              AllOf(HasSubstr("  predicted         10 words\n"),
                    HasSubstr("  perplexity        20.0855 of the words that are "
                              "predicted\n"),
                    Not(HasSubstr("bits")), Not(HasSubstr("bytes"))));
}

TEST(EvaluationOfObjectives, ProgressKeepsTheSumsOfAll) {
  const test::Scratch scratch;
  const auto self = comm::make_self_communicator("test");
  const io::Path path = scratch / "progress.json";
  Log log;
  ProgressFile(*self, path, "{}", 2, 2).save(1, sums_of_two(), log);
  const ProgressFile again(*self, path, "{}", 2, 2);
  EXPECT_EQ(again.sums(0).objectives.size(), 0u);
  ASSERT_EQ(again.sums(1).objectives.size(), 2u);
  EXPECT_EQ(again.sums(1).objectives[1].sum, -2.0);
  EXPECT_EQ(again.sums(1).objectives[1].count, 4.0);
  EXPECT_EQ(again.sums(1).tokens(), 10.0);
  EXPECT_THAT(test::message_of<Error>([&] { ProgressFile(*self, path, "{}", 2, 1); }),
              HasSubstr("is not the progress"));
}

}  // namespace
}  // namespace trireme::inference
