// What may change between two starts of a run.
#include "config/compare.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deck_testing.hpp"

namespace trireme::config {
namespace {

using ::testing::HasSubstr;

Comparison after(const std::vector<std::string>& overrides) {
  return compare_for_resume(small_with({}), small_with(overrides));
}

TEST(CompareStarts, SameDeckIsFine) {
  const Deck deck = small_with({"optimizer.lr=0.001", "run.time_limit=2h"});
  // As it comes back from the checkpoint's text.
  const auto result = compare_for_resume(parse_resolved(resolved_text(deck)), deck);
  EXPECT_TRUE(result.errors.empty());
  EXPECT_TRUE(result.changes.empty());
}

TEST(CompareStarts, FreeKeys) {
  const auto result = after(
      {"parallel.tensor=2", "parallel.zero=0", "batch.micro=4", "memory.recompute=full",
       "run.log_every=1", "run.time_limit=1h", "run.stop_after=7 samples",
       "run.dir=elsewhere", "checkpoint.every=7", "checkpoint.keep=9"});
  EXPECT_TRUE(result.errors.empty()) << format_errors(result.errors);
  EXPECT_THAT(result.changes, ::testing::Contains("parallel.tensor: 1 -> 2"));
  EXPECT_THAT(result.changes, ::testing::Contains("run.time_limit: none -> 1h"));
  EXPECT_THAT(result.changes, ::testing::Contains("run.stop_after: never -> 7 samples"));
}

// The deck of an earlier release has that release's defaults: a new one is a change, and
// the log is where its user learns of it.
TEST(CompareStarts, ADefaultThatIsAnotherNowIsSaid) {
  const auto result =
      compare_for_resume(small_with({"precision.attention=own"}), small_with({}));
  EXPECT_TRUE(result.errors.empty()) << format_errors(result.errors);
  EXPECT_THAT(result.changes, ::testing::ElementsAre("precision.attention: own -> auto"));
}

// What was measured is kept as long as it would be measured of the same passes.
TEST(CompareStarts, MeasuredStagesAreTakenFromTheCheckpoint) {
  const std::vector<std::string> keys = {"parallel.pipeline=2",
                                         "parallel.balance=measured"};
  Deck checkpoint = small_with(keys);
  EXPECT_TRUE(checkpoint.parallel.is_to_be_measured());
  const index_t layers = checkpoint.model.layers;
  checkpoint.parallel.stages = {layers, 0};
  const auto taken = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = keys;
    all.insert(all.end(), more.begin(), more.end());
    Deck deck = small_with(all);
    take_measured_stages(parse_resolved(resolved_text(checkpoint)), deck);
    return deck.parallel.stages;
  };
  EXPECT_EQ(taken({}), checkpoint.parallel.stages);
  EXPECT_EQ(taken({"run.steps=2000"}), checkpoint.parallel.stages);
  for (const char* change : {"parallel.schedule=gpipe", "memory.recompute=full",
                             "batch.micro=4", "parallel.balance=modelled"}) {
    EXPECT_TRUE(taken({change}).empty()) << change;
  }
  checkpoint.parallel.balance = Balance::modelled;  // then somebody wrote them
  EXPECT_TRUE(taken({}).empty());
}

TEST(CompareStarts, MoreStepsMoveTheDefaultDecay) {
  const auto result = after({"run.steps=2000"});
  EXPECT_TRUE(result.errors.empty());
  EXPECT_THAT(result.changes, ::testing::Contains("run.steps: 1000 -> 2000"));
  EXPECT_THAT(result.changes, ::testing::Contains("optimizer.decay: 1000 -> 2000"));
}

TEST(CompareStarts, PrecisionMayChangeAndIsSaid) {
  const auto result = after({"precision.compute=bf16", "precision.gradients=bf16",
                             "precision.loss_scale.window=5"});
  EXPECT_TRUE(result.errors.empty());
  EXPECT_THAT(result.changes, ::testing::Contains("precision.gradients: fp32 -> bf16"));
  EXPECT_THAT(result.changes, ::testing::Contains("precision.compute: fp32 -> bf16"));
  Deck deck = small_with({"precision.compute=fp16"});
  deck.origins["precision.compute"] = "deck.yaml:4";
  EXPECT_TRUE(compare_for_resume(small_with({}), deck).errors.empty());
}

TEST(CompareStarts, FixedKeysShowBothValues) {
  const auto result = after({"model.hidden=128", "batch.global=64", "run.seed=5",
                             "data.train=other.h5", "optimizer.betas=[0.9, 0.99]"});
  std::vector<std::string> keys;
  for (const DeckError& error : result.errors) keys.push_back(error.key);
  // ffn_hidden and data.seed only follow what was changed.
  EXPECT_THAT(keys,
              ::testing::UnorderedElementsAre("model.hidden", "batch.global", "run.seed",
                                              "data.train", "optimizer.betas"));
  const DeckError& hidden = result.errors[0];
  EXPECT_EQ(hidden.key, "model.hidden");
  EXPECT_THAT(hidden.what, HasSubstr("the checkpoint has 64, the deck has 128"));
  EXPECT_EQ(hidden.place, "--set");
}

// A default that would be another than the checkpoint's own value is an error of its own.
TEST(CompareStarts, DefaultsInPlaceOfGivenValues) {
  const auto result =
      compare_for_resume(small_with({"model.ffn_hidden=128", "model.kv_heads=2",
                                     "model.head_size=24", "data.seed=9"}),
                         small_with({"model.hidden=128", "run.seed=5"}));
  std::vector<std::string> keys;
  for (const DeckError& error : result.errors) keys.push_back(error.key);
  EXPECT_THAT(keys, ::testing::UnorderedElementsAre("model.hidden", "model.ffn_hidden",
                                                    "model.kv_heads", "model.head_size",
                                                    "run.seed", "data.seed"));
}

// A checkpoint of before there was the key has the default, and goes on with it written.
TEST(CompareStarts, AHeadSizeThatWasNotWritten) {
  std::string text = resolved_text(small_with({}));
  const std::size_t at = text.find("  head_size: 16\n");
  ASSERT_NE(at, std::string::npos);
  const Deck before = parse_resolved(text.erase(at, text.find('\n', at) + 1 - at));
  const auto errors = [&](const std::string& set) {
    return compare_for_resume(before, small_with({set})).errors;
  };
  EXPECT_THAT(errors("model.head_size=16"), ::testing::IsEmpty());
  ASSERT_EQ(errors("model.head_size=24").size(), 1u);
  EXPECT_THAT(errors("model.head_size=24")[0].what,
              HasSubstr("the checkpoint has 16, the deck has 24"));
}

// Jobs stage corpora where they like; what is trained on is known by its content.
TEST(CompareStarts, CorporaThatHaveMoved) {
  const Deck before =
      small_with({"data.train=[{path: a.h5, weight: 2}, {path: b.h5, weight: 1}]",
                  "data.validation={books: c.h5, code: d.h5}"});
  const auto changed = [&](const std::string& train, const std::string& validation,
                           Corpora corpora) {
    return compare_for_resume(
        before, small_with({"data.train=" + train, "data.validation=" + validation}), {},
        corpora);
  };
  const auto keys = [](const Comparison& result) {
    std::vector<std::string> names;
    for (const DeckError& error : result.errors) names.push_back(error.key);
    return names;
  };
  const std::string train = "[{path: /1/a.h5, weight: 2}, {path: /1/b.h5, weight: 1}]";
  const std::string validation = "{books: /1/c.h5, code: /2/d.h5}";
  const auto moved = changed(train, validation, Corpora::may_have_moved);
  EXPECT_THAT(keys(moved), ::testing::IsEmpty());
  EXPECT_THAT(moved.changes,
              ::testing::ElementsAre(
                  "data.train: [{path: a.h5, weight: 2}, {path: b.h5, weight: 1}] -> "
                  "[{path: /1/a.h5, weight: 2}, {path: /1/b.h5, weight: 1}]",
                  "data.validation: {books: c.h5, code: d.h5} -> {books: /1/c.h5, code: "
                  "/2/d.h5}"));
  // Where their content is not known.
  EXPECT_THAT(keys(changed(train, validation, Corpora::at_their_paths)),
              ::testing::ElementsAre("data.train", "data.validation"));
  // Weights, names, and how many there are define the run.
  const auto may_have_moved = [&](const std::string& t, const std::string& v) {
    return keys(changed(t, v, Corpora::may_have_moved));
  };
  EXPECT_THAT(may_have_moved("[{path: /1/a.h5, weight: 3}, {path: /1/b.h5, weight: 1}]",
                             "{books: /1/c.h5}"),
              ::testing::ElementsAre("data.train", "data.validation"));
  EXPECT_THAT(may_have_moved("/1/a.h5", "{prose: /1/c.h5, code: /2/d.h5}"),
              ::testing::ElementsAre("data.train", "data.validation"));
  EXPECT_THAT(may_have_moved(train, "{books: /1/c.h5}"),
              ::testing::ElementsAre("data.validation"));
}

// What a checkpoint does not have cannot be written as a value.
TEST(CompareStarts, ValidationThatIsThereInOneAlone) {
  const Deck named = small_with({"data.validation={books: c.h5}"}), cut = small_with({}),
             cut_by_hand = small_with({"data.split=[0.9, 0.1, 0]"});
  const auto errors = [](const Deck& checkpoint, const Deck& deck) {
    return compare_for_resume(checkpoint, deck).errors;
  };
  const std::string or_anew = ", or start a new run in another run.dir";
  // That the default of data.split holds then follows from it.
  const auto lost = errors(named, cut);
  ASSERT_EQ(lost.size(), 1u) << format_errors(lost);
  EXPECT_EQ(lost[0].key, "data.validation");
  EXPECT_EQ(lost[0].fix, "data.validation: {books: c.h5}" + or_anew);
  const auto replaced = errors(named, cut_by_hand);
  ASSERT_EQ(replaced.size(), 2u) << format_errors(replaced);
  EXPECT_EQ(replaced[1].fix, "remove data.split" + or_anew);
  // Validation itself can be written as none.
  const auto gained = errors(cut, named);
  ASSERT_EQ(gained.size(), 2u) << format_errors(gained);
  EXPECT_EQ(gained[0].fix, "data.validation: none" + or_anew);
  EXPECT_EQ(gained[1].fix, "data.split: [0.98, 0.02, 0]" + or_anew);
}

TEST(CompareStarts, LeavesOutWhatIsNotKnown) {
  const auto result = compare_for_resume(
      small_with({}), small_with({"model.hidden=128", "batch.global=64"}),
      {"model.hidden", "model.ffn_hidden"});
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors[0].key, "batch.global");
}

TEST(CompareStarts, LearningRateOnlyWithSet) {
  EXPECT_TRUE(after({"optimizer.lr=0.001"}).errors.empty());
  EXPECT_THAT(after({"optimizer.lr=0.001"}).changes,
              ::testing::Contains("optimizer.min_lr: 3e-05 -> 0.0001"));
  EXPECT_TRUE(after({"optimizer.schedule=linear", "optimizer.warmup=10"}).errors.empty());
  const Deck edited =
      parse(std::string(kSmall) + "optimizer: {lr: 0.001}\n", "test.yaml");
  const auto result = compare_for_resume(small_with({}), edited);
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors[0].key, "optimizer.lr");
  EXPECT_THAT(result.errors[0].what,
              HasSubstr("the checkpoint has 0.0003, the deck has 0.001"));
  EXPECT_THAT(result.errors[0].fix, HasSubstr("--set optimizer.lr=0.001"));
  EXPECT_EQ(result.errors[0].place, "test.yaml:3");
}

}  // namespace
}  // namespace trireme::config
