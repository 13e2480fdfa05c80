// BERT and T5 go on as GPT does: in the same layout to the bit, in another one with the
// losses of one rank that never stopped.
//
// What is met every day: of chains of rows of the table of layouts, on at most four
// ranks, those that come first, which have most of the pairs of a value that is saved and
// a value that goes on; each chain with another variant of its kind. All pairs, on up to
// eight ranks: tests/long/test_kind_restarts.cpp. That they are all is counted here.
#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "restart/kind_chains.hpp"

namespace trireme::test {
namespace {

using config::ModelKind;

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
  void expect_in_fp32(const RestartedModel& of, ModelKind kind, std::size_t chain) {
    constexpr std::size_t kRepeated = 4;
    expect_chain(of, daily_chains(kind).in_fp32.at(chain), kRepeated);
  }
  void expect_mixed(const RestartedModel& of, ModelKind kind) {
    constexpr std::size_t kRepeated = 2;
    expect_chain(of, daily_chains(kind).mixed, kRepeated);
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

INSTANTIATE_TEST_SUITE_P(KindsRestart, KindsRestartChains,
                         ::testing::Values(ModelKind::bert, ModelKind::t5),
                         [](const auto& info) {
                           return info.param == ModelKind::t5 ? "T5" : "Bert";
                         });

}  // namespace
}  // namespace trireme::test
