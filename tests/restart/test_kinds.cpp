// BERT and T5 go on as GPT does: in the same layout to the bit, in another one with the
// losses of one rank that never stopped.
//
// What is met every day: of chains of rows of the table of layouts, on at most four
// ranks, those that come first, which have most of the pairs of a value that is saved and
// a value that goes on; each chain with another variant of its kind. All pairs, on up to
// eight ranks: tests/long/test_kind_restarts.cpp. That they are all is counted here.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/reader.hpp"
#include "restart/kind_chains.hpp"
#include "support/hdf5_edit.hpp"
#include "unit/ckpt/crafted.hpp"

namespace trireme::test {
namespace {

using config::ModelKind;
using ::testing::HasSubstr;
using ::testing::Not;

class KindsRestart : public KindChains {
 protected:
  struct DailyChains {
    std::vector<RestartChain> in_fp32;
    RestartChain mixed;
  };
  static DailyChains daily_chains(ModelKind kind) {
    constexpr std::size_t kMixed = 3;  // starts: in fp16 twice, and in bf16
    const RestartChains all = restart_chains(kind, 4, 5);
    const RestartChain& mixed = all.mixed.at(0);
    return {{all.wide.at(0), all.wide.at(1)}, {mixed.begin(), mixed.begin() + kMixed}};
  }
  // Of chains of a kind, the starts that are done again: the first with each degree of
  // ZeRO, schedule and type.
  static std::vector<std::set<std::size_t>> done_again(
      const std::vector<RestartChain>& chains) {
    std::set<AxisValue> met;
    std::vector<std::set<std::size_t>> again(chains.size());
    for (std::size_t chain = 0; chain < chains.size(); ++chain) {
      for (std::size_t i = 0; i < chains[chain].size(); ++i) {
        for (const AxisValue& value : chains[chain][i].values) {
          const bool counts = value.axis == "zero" || value.axis == "schedule" ||
                              value.axis == "precision";
          if (counts && met.insert(value).second) again[chain].insert(i);
        }
      }
    }
    return again;
  }
  void expect_in_fp32(const RestartedModel& of, ModelKind kind, std::size_t chain) {
    const std::vector<RestartChain> all = daily_chains(kind).in_fp32;
    expect_chain(of, all.at(chain), done_again(all).at(chain));
  }
  void expect_mixed(const RestartedModel& of, ModelKind kind) {
    const RestartChain mixed = daily_chains(kind).mixed;
    expect_chain(of, mixed, done_again({mixed}).front());
  }
};

TEST_F(KindsRestart, OfBert) {
  expect_in_fp32(kBert, ModelKind::bert, 0);
}

TEST_F(KindsRestart, OfBertWithNormsBehindItsSums) {
  expect_in_fp32(kPostNormBert, ModelKind::bert, 1);
}

TEST_F(KindsRestart, OfPackedBertWithoutPairsIn16Bits) {
  expect_mixed(kPackedBert, ModelKind::bert);
}

TEST_F(KindsRestart, OfT5) {
  if (!kT5.can_be_trained()) GTEST_SKIP() << "a build without SentencePiece";
  expect_in_fp32(kT5, ModelKind::t5, 0);
}

TEST_F(KindsRestart, OfT5WithItsOwnHead) {
  if (!kT5.can_be_trained()) GTEST_SKIP() << "a build without SentencePiece";
  expect_in_fp32(kT5WithItsOwnHead, ModelKind::t5, 1);
}

TEST_F(KindsRestart, OfT5In16Bits) {
  if (!kT5.can_be_trained()) GTEST_SKIP() << "a build without SentencePiece";
  expect_mixed(kT5, ModelKind::t5);
}

// By which rules samples are made is on record, and a start says where that changes.
TEST_F(KindsRestart, SaysThatSamplesAreMadeByOtherRules) {
  prepare(kBert);
  std::filesystem::copy(scratch_ / "bert.h5", scratch_ / "twin.h5");
  const auto go_on = [&](const std::string& run, const std::string& from, int step) {
    const Arguments arguments = {"train",
                                 deck_,
                                 "--run-dir",
                                 run,
                                 "--set",
                                 "data.train=[{path: bert.h5, weight: 1}, "
                                 "{path: twin.h5, weight: 2}]",
                                 "--set",
                                 "run.stop_after=1",
                                 "--set",
                                 "checkpoint.every=1"};
    Arguments all = arguments;
    if (step > 0) all.insert(all.end(), {"--resume", checkpoint_of(from, step)});
    const RunResult result = trireme(all, options(1));
    EXPECT_EQ(result.status, 0) << result.err;
    return result.err;
  };
  const auto since = [&](const std::string& run, int step) {
    const auto numbers =
        ckpt::CheckpointReader(scratch_ / checkpoint_of(run, step)).state().numbers;
    EXPECT_EQ(numbers.at("sample_rules"), 2);
    EXPECT_EQ(numbers.at("dropout_words"), 2);
    return numbers.at("sample_rules_since");
  };
  constexpr const char* kTold = "made by version 2 of the rules from step 2 on";
  EXPECT_EQ(go_on("first", "", 0),
            "warning: data.train: 'twin.h5' has the tokens of 'bert.h5': they are "
            "trained on with the weights of both\n");
  EXPECT_EQ(since("first", 1), 0);
  EXPECT_THAT(go_on("second", "first", 1), Not(HasSubstr(kTold)));
  // One of before there were numbers.
  for (const char* const number : {"sample_rules", "sample_rules_since"}) {
    remove_attribute(scratch_ / checkpoint_of("first", 1) / "index.h5", number, "extra");
  }
  make_right(scratch_ / checkpoint_of("first", 1));
  EXPECT_THAT(go_on("later", "first", 1), HasSubstr(kTold));
  EXPECT_EQ(since("later", 2), 1);
  EXPECT_THAT(go_on("last", "later", 2), Not(HasSubstr("of the rules")));
  EXPECT_EQ(since("last", 3), 1);
}

TEST_F(KindsRestart, EndsWithACommandThatFillsInWords) {
  const auto expect_filled = [&](const RestartedModel& of, const std::string& blank) {
    prepare(of);
    const std::string out = start(of.name, "one", {"--set", "run.stop_after=1"});
    const std::string text = "Once upon a " + blank;
    EXPECT_THAT(out, HasSubstr("To fill in what is missing in a text:\n"));
    EXPECT_THAT(out, HasSubstr(fmt::format("'{}'\n", text)));
    const RunResult filled = trireme({"fill", of.name, "--text", text}, options(1));
    EXPECT_EQ(filled.status, 0) << filled.err;
  };
  expect_filled(kBert, "[MASK]");
  if (kT5.can_be_trained()) expect_filled(kT5, "<extra_id_0>");
}

// What stands in chains, counted without what made them.
struct Met {
  std::set<std::pair<AxisValue, AxisValue>> pairs;  // (before, behind)
  std::set<AxisValue> before, behind;
  std::set<std::vector<std::string>> starts;
};
Met met_in(const std::vector<RestartChain>& chains) {
  Met met;
  for (const RestartChain& chain : chains) {
    for (std::size_t i = 0; i < chain.size(); ++i) {
      met.starts.insert(chain[i].keys);
      if (i == 0) continue;
      for (const AxisValue& before : chain[i - 1].values) {
        met.before.insert(before);
        for (const AxisValue& behind : chain[i].values) {
          met.behind.insert(behind);
          met.pairs.insert({before, behind});
        }
      }
    }
  }
  return met;
}

// What each axis can be: by the rules of decks, heads and layers.
std::set<AxisValue> values_of_layouts(ModelKind kind, int most_ranks) {
  std::map<std::string, std::set<int>> axes = {{"tensor", {1, 2, 4}},
                                               {"sequence", {0, 1}},
                                               {"data", {1, 2, 4}},
                                               {"zero", {0, 1, 2, 3}},
                                               {"data first", {0, 1}},
                                               {"pipeline", {1, 2, 3, 4}},
                                               {"chunks", {1, 2, 3}},
                                               {"schedule", {0, 1, 2}},
                                               {"uneven", {0, 1, 2}},
                                               {"recompute", {-1, 0, 1, 100}},
                                               {"micro-batches", {1, 3, 4, 6}}};
  if (most_ranks >= 8) axes["tensor"].insert(8);
  if (kind == ModelKind::t5) axes["uneven"].insert(3);  // by parallel.split
  std::set<AxisValue> values;
  for (const auto& [axis, numbers] : axes) {
    for (const int number : numbers) values.insert({axis, number});
  }
  return values;
}
std::set<AxisValue> types(const std::set<config::Precision>& of) {
  std::set<AxisValue> values;
  for (const config::Precision type : of) {
    values.insert({"precision", static_cast<int>(type)});
  }
  return values;
}
std::set<AxisValue> both(std::set<AxisValue> values, const std::set<AxisValue>& more) {
  values.insert(more.begin(), more.end());
  return values;
}
const std::set<config::Precision> kWideType = {config::Precision::fp32},
                                  kNarrowTypes = {config::Precision::bf16,
                                                  config::Precision::fp16};

class KindsRestartChains : public KindsRestart,
                           public ::testing::WithParamInterface<ModelKind> {};

TEST_P(KindsRestartChains, HaveEveryPair) {
  const std::set<AxisValue> layouts = values_of_layouts(GetParam(), 8),
                            narrow = types(kNarrowTypes),
                            wide = both(layouts, types(kWideType));
  const RestartChains& chains = all_chains(GetParam());
  // Sets of pairs are as large as they may be and have nothing else: they have all.
  const Met in_fp32 = met_in(chains.wide);
  EXPECT_EQ(in_fp32.before, wide);
  EXPECT_EQ(in_fp32.behind, wide);
  EXPECT_EQ(in_fp32.pairs.size(), wide.size() * wide.size());
  const Met mixed = met_in(chains.mixed);
  std::size_t with_narrow = 0;
  for (const auto& [before, behind] : mixed.pairs) {
    with_narrow += narrow.contains(before) || narrow.contains(behind) ? 1 : 0;
  }
  EXPECT_EQ(mixed.before, both(wide, narrow));
  EXPECT_EQ(mixed.behind, both(wide, narrow));
  EXPECT_EQ(with_narrow, narrow.size() * (2 * wide.size() + narrow.size()));
}

// Of the few every day: each value is saved and goes on, and more than half of the pairs
// are met.
TEST_P(KindsRestartChains, OfEveryDayHaveEveryValue) {
  const DailyChains chains = daily_chains(GetParam());
  const std::set<AxisValue> wide =
      both(values_of_layouts(GetParam(), 4), types(kWideType));
  const Met in_fp32 = met_in(chains.in_fp32);
  EXPECT_EQ(in_fp32.before, wide);
  EXPECT_EQ(in_fp32.behind, wide);
  EXPECT_GT(2 * in_fp32.pairs.size(), wide.size() * wide.size());
  const auto has_all = [&](const std::set<std::string>& keys) {
    return std::ranges::any_of(in_fp32.starts, [&](const auto& start) {
      return std::ranges::all_of(keys, [&](const std::string& key) {
        return std::ranges::find(start, key) != start.end();
      });
    });
  };
  EXPECT_TRUE(has_all({"parallel.zero=3", "parallel.pipeline=2"}));
  EXPECT_TRUE(has_all({"parallel.order=[data, tensor, context, pipeline]"}));
  const Met mixed = met_in({chains.mixed});
  const AxisValue fp16{"precision", static_cast<int>(config::Precision::fp16)},
      bf16{"precision", static_cast<int>(config::Precision::bf16)};
  EXPECT_TRUE(mixed.pairs.contains({fp16, fp16}));
  EXPECT_TRUE(mixed.pairs.contains({fp16, bf16}));
}

// To the bit: every degree of ZeRO, every schedule, tensor, data and pipeline
// parallelism, and each type.
TEST_P(KindsRestartChains, OfEveryDayAreDoneAgain) {
  const DailyChains chains = daily_chains(GetParam());
  std::map<std::string, std::set<int>> again;
  const auto add = [&](const std::vector<RestartChain>& all) {
    const auto starts = done_again(all);
    for (std::size_t chain = 0; chain < all.size(); ++chain) {
      for (const std::size_t i : starts[chain]) {
        for (const auto& [axis, number] : all[chain][i].values)
          again[axis].insert(number);
      }
    }
  };
  add(chains.in_fp32);
  add({chains.mixed});
  EXPECT_EQ(again["zero"], (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(again["schedule"], (std::set<int>{0, 1, 2}));
  for (const char* const axis : {"tensor", "sequence", "data", "pipeline"}) {
    EXPECT_GT(again[axis].size(), 1u) << axis;
  }
  EXPECT_EQ(again["precision"].size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(KindsRestart, KindsRestartChains,
                         ::testing::Values(ModelKind::bert, ModelKind::t5),
                         [](const auto& info) {
                           return info.param == ModelKind::t5 ? "T5" : "Bert";
                         });

}  // namespace
}  // namespace trireme::test
