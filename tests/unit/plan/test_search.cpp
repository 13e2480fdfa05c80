// The search among all layouts.
#include "plan/search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "plan/plan_report.hpp"
#include "step/replica.hpp"
#include "unit/plan/planned_bytes.hpp"
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

// The published grid with what is best of all else on it, of layouts that fit.
double best_of_grid(PerformanceModel& model, config::Deck deck, int devices) {
  const Layout published = layout_of(deck);
  deck.origins.clear();
  double least = std::numeric_limits<double>::infinity();
  for (const Layout& layout : legal_layouts(deck, devices)) {
    if (layout.grid_text() != published.grid_text()) continue;
    set_layout(deck, layout);
    if (model.memory(deck).total() > model.machine().device.memory) continue;
    const double estimated = model.predict(deck, Schedule::estimated).seconds();
    if (estimated < least) least = estimated;
  }
  return least;
}

// Narayanan et al. 2021, tables 1 and 2.
TEST_P(SearchOf, ChoosesWhatIsAsFastAsThePublishedAtLeast) {
  const Case& layout = GetParam().layout;
  const config::Deck deck = deck_of(layout);
  const int devices = layout.tensor * layout.pipeline * layout.data;
  PerformanceModel model(machine_named("selene"), deck);
  const Plan published = plan_of(model, deck);
  const SearchResult result = search(model, deck, devices);
  EXPECT_LE(result.plans.front().seconds(), published.seconds());
  // Estimates and simulations differ by some percent.
  EXPECT_LE(result.plans.front().seconds(), 1.03 * best_of_grid(model, deck, devices));
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

// What is printed is what a run takes: layers that do not come out even, zero bubble with
// chunks, and devices that have little room.
struct TightSearch {
  const char* machine;
  Case model;
  int devices;
};
class SearchThatIsTight : public ::testing::TestWithParam<TightSearch> {};

TEST_P(SearchThatIsTight, FindsWhatARunCanHold) {
  const TightSearch& tight = GetParam();
  const config::Deck deck = deck_of(tight.model);
  const Machine machine = machine_named(tight.machine);
  const PlanReport report = make_plan(deck, machine, {.devices = tight.devices});
  for (const Plan& plan : report.result.plans) {
    config::Deck found = deck;
    set_layout(found, plan.layout);
    found.parallel.stages = plan.stages;
    const config::Deck read =
        config::parse_resolved(config::resolved_text(found), tight.devices);
    const double planned = test::planned_bytes(read) + machine.device.reserved;
    EXPECT_LE(planned, machine.device.memory)
        << plan.layout.grid_text() << ", " << plan.layout.text();
    EXPECT_NEAR(plan.memory.total(), planned, 1e-3 * planned);
  }
}

INSTANTIATE_TEST_SUITE_P(
    SearchLayouts, SearchThatIsTight,
    ::testing::Values(
        TightSearch{"perlmutter-gpu",
                    {.layers = 105, .hidden = 20480, .heads = 128, .global = 2240},
                    1120},
        TightSearch{"selene-trireme",
                    {.layers = 80, .hidden = 12288, .heads = 96, .global = 2304},
                    1536}));

std::string search_problem(const Machine& machine, const Case& layout, int devices) {
  const config::Deck deck = deck_of(layout);
  try {
    make_plan(deck, machine, {.devices = devices});
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

// A layer of this encoder takes more than twice what one of the decoder does: stages of
// equally many are not those of a run, and no pipeline that is told has them.
TEST(Search, DealsUnlikeLayersAsARunDoes) {
  const config::Deck deck = config::parse(
      "model: {kind: t5, layers: 6, decoder_layers: 6, hidden: 1024, heads: 16, "
      "sequence: 512, decoder_sequence: 114, vocab: 32128}\n"
      "data: {train: none}\n"
      "batch: {micro: 1, global: 16}\n"
      "precision: {compute: bf16}\n",
      "deck");
  PerformanceModel model(machine_named("selene-trireme"), deck);
  int pipelines = 0;
  for (const Plan& plan : search(model, deck, 4).plans) {
    config::Deck of_run = deck;
    set_layout(of_run, plan.layout);
    if (plan.layout.pipeline == 1) {
      EXPECT_TRUE(plan.stages.empty());
      continue;
    }
    pipelines += 1;
    EXPECT_NE(plan.stages, of_run.parallel.stages);
    of_run.parallel.stages.clear();
    of_run.parallel.stages = dealt_layers(model.machine(), of_run);
    EXPECT_EQ(plan.stages, of_run.parallel.stages);
    EXPECT_EQ(plan_of(model, of_run).seconds(), plan.seconds());
  }
  EXPECT_GT(pipelines, 1);
}

TEST(SearchReasons, NameWhatTakesMore) {
  Plan best, other;
  best.prediction.parts = {.compute = 10.0, .bubble = 1.0};
  other.prediction.parts = {.compute = 10.0, .tensor_messages = 0.5, .bubble = 3.0};
  const std::vector<LostTime> lost = lost_time(best, other);
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_STREQ(lost[0].part, "bubble");
  EXPECT_EQ(lost[0].seconds, 2.0);
  EXPECT_STREQ(lost[1].part, "tensor messages");
  EXPECT_EQ(lost[1].seconds, 0.5);
}

}  // namespace
}  // namespace trireme::plan
