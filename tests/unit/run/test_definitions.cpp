// Which definitions of dropout's words and of samples a run goes on with, and what it
// says of them.
#include "run/definitions.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "data/masked_vocabulary.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::run {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DefinitionsOfDropout, NewRunIsOfTheProgramsOwn) {
  ckpt::TrainingState state;
  EXPECT_THAT(adopt_dropout_words(state, true), IsEmpty());
  EXPECT_EQ(state.numbers.at("dropout_words"), 2);
  EXPECT_EQ(state.numbers.at("dropout_words_since"), 0);
  state.step = 5;
  EXPECT_THAT(adopt_dropout_words(state, true), IsEmpty());
  EXPECT_EQ(state.numbers.at("dropout_words_since"), 0);
}

TEST(DefinitionsOfDropout, OldRunGoesOnWithTheNewOnes) {
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

TEST(DefinitionsOfDropout, RunWithoutDropoutHasNothingToSay) {
  ckpt::TrainingState state;
  state.step = 500;
  EXPECT_THAT(adopt_dropout_words(state, false), IsEmpty());
  EXPECT_EQ(state.numbers.at("dropout_words_since"), 500);
}

TEST(DefinitionsOfDropout, LaterDefinitionIsRefused) {
  ckpt::TrainingState state;
  state.step = 500;
  state.version = "trireme 9.0";
  state.numbers["dropout_words"] = 3;
  EXPECT_THAT([&] { adopt_dropout_words(state, true); },
              ::testing::ThrowsMessage<InputError>(HasSubstr(
                  "Continue the run with the program that wrote it (trireme 9.0)")));
}

TEST(DefinitionsOfDropout, DamagedVersionIsRefused) {
  for (const double version : {0.0, -1e300, 1.5, std::nan("")}) {
    ckpt::TrainingState state;
    state.step = 500;
    state.numbers["dropout_words"] = version;
    EXPECT_THAT([&] { adopt_dropout_words(state, true); },
                ::testing::ThrowsMessage<InputError>(
                    HasSubstr("dropout_words is " + fmt::format("{}", version) +
                              ", which is no version: it is damaged")));
  }
}

// Data sets of some corpora, and of one more for validation where `validates` says so.
class DefinitionsOfSamples : public ::testing::Test {
 protected:
  data::Datasets datasets_of(const data::SampleRules& rules, int count,
                             bool validates = false) {
    data::Datasets sets;
    std::vector<data::Dataset::Part> parts;
    for (int i = 0; i < count; ++i) {
      sets.corpora.push_back(corpus());
      const auto& made = sets.corpora.back();
      parts.push_back({made, {0, made->token_count()}, 1.0});
    }
    sets.train =
        std::make_unique<data::Dataset>(parts, rules, data::Order::shuffled, "train");
    const auto held_out = validates ? corpus() : sets.corpora.front();
    const std::vector<data::Dataset::Part> part = {
        {held_out, {0, held_out->token_count()}, 1.0}};
    sets.validation.push_back(
        {"held out", std::make_unique<data::Dataset>(part, rules, data::Order::sequential,
                                                     "held out")});
    return sets;
  }
  static data::SampleRules masked(bool pack) {
    const data::MaskedVocabulary vocabulary{
        .begins_word = std::vector<std::uint8_t>(700, 1),
        .is_structural = std::vector<std::uint8_t>(700, 0),
        .ordinary = {5, 6, 7}};
    return data::sample_rules(
        data::MaskedRules{
            .sequence = 16,
            .predictions = 4,
            .pack = pack,
            .vocabulary = std::make_shared<const data::MaskedVocabulary>(vocabulary)},
        7);
  }

 private:
  std::shared_ptr<const data::Corpus> corpus() {
    const std::string name = fmt::format("c{}.h5", made_++);
    const std::string text = io::read_file(test::fixture("sample.txt")).substr(0, 400);
    test::make_corpus(scratch_, name, {text, fmt::format("Number {}.", made_), text},
                      test::trained_tokenizer());
    return std::make_shared<const data::Corpus>(scratch_ / name);
  }
  test::Scratch scratch_;
  int made_ = 0;
};

TEST_F(DefinitionsOfSamples, AreOnRecordFromTheStart) {
  ckpt::TrainingState state;
  const data::Datasets sets = datasets_of(masked(false), 2);
  EXPECT_THAT(adopt_sample_rules(state, sets), IsEmpty());
  EXPECT_EQ(state.numbers.at("sample_rules"), 2);
  EXPECT_EQ(state.numbers.at("sample_rules_since"), 0);
  state.step = 5;
  EXPECT_THAT(adopt_sample_rules(state, sets), IsEmpty());
  EXPECT_EQ(state.numbers.at("sample_rules_since"), 0);
  state.numbers["sample_rules"] = 3;
  state.version = "trireme 9.0";
  EXPECT_THAT([&] { adopt_sample_rules(state, sets); },
              ::testing::ThrowsMessage<InputError>(HasSubstr(
                  "samples are by rules of version 3; this program knows them up to 2. "
                  "Continue the run with the program that wrote it (trireme 9.0)")));
}

// A run of an earlier version, of several corpora or with another for validation.
TEST_F(DefinitionsOfSamples, OldBlendIsToldThatSamplesAreOthers) {
  for (const bool validates : {false, true}) {
    ckpt::TrainingState state;
    state.step = 500;
    state.version = "trireme 0.0";
    const data::Datasets sets = datasets_of(masked(false), validates ? 1 : 2, validates);
    const std::string told = adopt_sample_rules(state, sets);
    EXPECT_THAT(told,
                HasSubstr("by version 2 of the rules from step 501 on, and by 1 before"));
    if (validates) {
      EXPECT_THAT(told, HasSubstr("samples of data.validation are made"));
      EXPECT_THAT(told, HasSubstr("samples of training are the same"));
    } else {
      EXPECT_THAT(told, HasSubstr("the program that wrote the checkpoint (trireme 0.0)"));
    }
    EXPECT_EQ(state.numbers.at("sample_rules_since"), 500);
    EXPECT_THAT(adopt_sample_rules(state, sets), IsEmpty());
  }
}

// The file of training may be opened once more, by data.validation.
TEST_F(DefinitionsOfSamples, SameFileIsTheSameCorpus) {
  ckpt::TrainingState state;
  state.step = 500;
  data::Datasets sets = datasets_of(masked(false), 1);
  const auto again = std::make_shared<const data::Corpus>(sets.corpora.front()->path());
  const std::vector<data::Dataset::Part> part = {{again, {0, again->token_count()}, 1.0}};
  sets.validation.front().samples = std::make_unique<data::Dataset>(
      part, masked(false), data::Order::sequential, "held out");
  EXPECT_THAT(adopt_sample_rules(state, sets), IsEmpty());
}

// Of one corpus alone, of packed windows and of other kinds samples are what they were.
TEST_F(DefinitionsOfSamples, SaysNothingWhereSamplesAreTheSame) {
  const data::SampleRules gpt = data::sample_rules(data::NextTokenRules{16, false}, 7);
  const data::Datasets all[] = {datasets_of(masked(false), 1),
                                datasets_of(masked(true), 2), datasets_of(gpt, 2, true)};
  for (const data::Datasets& sets : all) {
    ckpt::TrainingState state;
    state.step = 500;
    EXPECT_THAT(adopt_sample_rules(state, sets), IsEmpty());
    const int own = sets.train->rules().version();
    EXPECT_EQ(state.numbers.at("sample_rules"), own);
    // By version 1 they have been made since the first step.
    EXPECT_EQ(state.numbers.at("sample_rules_since"), own == 1 ? 0 : 500);
  }
}

}  // namespace
}  // namespace trireme::run
