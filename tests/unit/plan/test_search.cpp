// The search among all layouts.
#include "plan/search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/wall_time.hpp"
#include "unit/plan/published_rows.hpp"

namespace trireme::plan {
namespace {

using test::Case;
using test::deck_of;
using test::machine_named;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct PublishedLayout {
  const char* name;
  Case layout;
};

class SearchOf : public ::testing::TestWithParam<PublishedLayout> {};

// Narayanan et al. 2021, tables 1 and 2.
TEST_P(SearchOf, ChoosesWhatIsAsFastAsThePublishedAtLeast) {
  const Case& layout = GetParam().layout;
  const config::Deck deck = deck_of(layout);
  PerformanceModel model(machine_named("selene"), deck);
  const Plan published = plan_of(model, deck);
  const double begin = steady_seconds();
  const SearchResult result =
      search(model, deck, layout.tensor * layout.pipeline * layout.data);
  EXPECT_LT(steady_seconds() - begin, 10.0);  // it takes two, of one core
  EXPECT_LE(result.plans.front().seconds(), published.seconds());
  EXPECT_LE(published.memory.total(), model.machine().device.memory);
  EXPECT_GT(result.legal, result.fitting);
  EXPECT_TRUE(std::ranges::is_sorted(result.plans, {}, &Plan::seconds));
  for (const Plan& plan : result.plans) {
    EXPECT_LE(plan.memory.total(), model.machine().device.memory);
  }
  for (const Plan& plan : result.too_large) {
    EXPECT_GT(plan.memory.total(), model.machine().device.memory);
    EXPECT_LT(plan.seconds(), result.plans.front().seconds());
  }
}

INSTANTIATE_TEST_SUITE_P(SearchLayouts, SearchOf,
                         ::testing::Values(PublishedLayout{"175B on 1024",
                                                           {.layers = 96,
                                                            .hidden = 12288,
                                                            .heads = 96,
                                                            .tensor = 8,
                                                            .pipeline = 16,
                                                            .chunks = 3,
                                                            .data = 8,
                                                            .global = 1536}},
                                           PublishedLayout{"530B on 2520",
                                                           {.layers = 105,
                                                            .hidden = 20480,
                                                            .heads = 128,
                                                            .tensor = 8,
                                                            .pipeline = 35,
                                                            .chunks = 3,
                                                            .data = 9,
                                                            .global = 2520}},
                                           PublishedLayout{"1T on 3072",
                                                           {.layers = 128,
                                                            .hidden = 25600,
                                                            .heads = 160,
                                                            .tensor = 8,
                                                            .pipeline = 64,
                                                            .data = 6,
                                                            .global = 3072}}));

std::string search_problem(const Machine& machine, const Case& layout, int devices) {
  const config::Deck deck = deck_of(layout);
  PerformanceModel model(machine, deck);
  try {
    search(model, deck, devices);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

constexpr Case kTooLarge{.layers = 128, .hidden = 25600, .heads = 160, .global = 3072};

TEST(SearchErrors, SayByHowMuchTheNearestDoesNotFit) {
  EXPECT_THAT(
      search_problem(machine_named("selene"), kTooLarge, 96),
      AllOf(HasSubstr("96 devices cannot hold the model: of "),
            HasSubstr("legal layouts none fits"), HasSubstr("(tensor x pipeline x data)"),
            HasSubstr("too much"), HasSubstr("most of it: ")));
}

TEST(SearchErrors, SayThatTheMachineIsSmaller) {
  EXPECT_THAT(search_problem(machine_named("dgx2-v100"), kTooLarge, 1024),
              HasSubstr("has 512 devices, 1024 are asked for"));
}

TEST(SearchErrors, SayWhatRulesLayoutsOut) {
  EXPECT_THAT(search_problem(machine_named("selene"), kTooLarge, 4099),
              HasSubstr("4,099 data ranks that cannot share batch.global: 3072"));
}

TEST(SearchErrors, SayThatTheDeviceHasNoSuchType) {
  Case layout{.layers = 2, .hidden = 64, .heads = 4, .global = 8};
  layout.compute = "bf16";
  EXPECT_THAT(search_problem(machine_named("dgx2-v100"), layout, 8),
              HasSubstr("has no device.gemm_peak.bf16, in FLOP/s"));
}

// A model that fits one device: ranks that share samples alone are fastest.
TEST(Search, TakesDataRanksForSmallModels) {
  const config::Deck deck = deck_of(
      {.layers = 12, .hidden = 768, .heads = 12, .sequence = 1024, .global = 256});
  PerformanceModel model(machine_named("selene"), deck);
  const Layout best = search(model, deck, 16).plans.front().layout;
  EXPECT_EQ(best.data, 16);
}

TEST(SearchReasons, NameWhatTakesMore) {
  Plan best, other;
  best.prediction.parts = {.compute = 10.0, .bubble = 1.0};
  other.prediction.parts = {.compute = 10.0, .tensor_messages = 0.5, .bubble = 3.0};
  EXPECT_EQ(why_slower(best, other), "bubble +2.00 s, tensor messages +0.50 s");
}

}  // namespace
}  // namespace trireme::plan
