// A whole small model: the same gradients however samples are grouped in micro-batches,
// to the bit when repeated or when weight gradients come later; memory as planned;
// dropout in training only.
#include <gmock/gmock.h>

#include "unit/io/scratch.hpp"
#include "unit/model/gpt_pass.hpp"

namespace trireme::model {
namespace {

using test::Gpt;
using test::Pass;
using test::Values;
using ::testing::HasSubstr;

std::vector<Values> gradients(const Gpt<double>& gpt) {
  std::vector<Values> all;
  for (std::size_t p = 0; p < gpt.registry.size(); ++p) {
    all.push_back(test::gradient_of(gpt, p));
  }
  return all;
}

TEST(ChunkGroups, OfMicroBatchesDoNotMatter) {
  Gpt<double> gpt(test::small_gpt());
  const Values want = test::accumulate(gpt, 16, 8, 8);
  const auto want_gradients = gradients(gpt);
  EXPECT_GT(want[1], 70);  // of 104 tokens, the rest is masked
  EXPECT_LT(want[1], 104);
  EXPECT_GT(want[0] / want[1], 3);  // near log(37) before any training
  for (const index_t micro : {1, 2, 4}) {
    const Values got = test::accumulate(gpt, 16, 8, micro);
    EXPECT_NEAR(got[0], want[0], 1e-12 * want[0]);
    EXPECT_EQ(got[1], want[1]);
    const auto got_gradients = gradients(gpt);
    for (std::size_t p = 0; p < want_gradients.size(); ++p) {
      test::expect_close_in_norm(got_gradients[p], want_gradients[p], 1e-12, 1e-3,
                                 gpt.registry.spec(p).name);
    }
  }
  // Other samples: another loss.
  EXPECT_GT(std::abs(test::accumulate(gpt, 17, 8, 8)[0] - want[0]), 1e-3);
}

// Every parameter is reached: the largest gradient of each is no rounding noise. (That of
// the keys' bias is zero in exact arithmetic, those of queries and values are not.)
TEST(ChunkGradients, ReachEveryParameter) {
  Gpt<double> gpt(test::small_gpt());
  test::accumulate(gpt, 0, 4, 4);
  const auto all = gradients(gpt);
  for (std::size_t p = 0; p < all.size(); ++p) {
    double largest = 0;
    for (const double x : all[p]) {
      ASSERT_TRUE(std::isfinite(x));
      largest = std::max(largest, std::abs(x));
    }
    EXPECT_GT(largest, 1e-5) << gpt.registry.spec(p).name;
  }
}

TEST(ChunkRepeat, HasTheSameBits) {
  Gpt<float> first(test::small_gpt()), second(test::small_gpt());
  const Values loss = test::accumulate(first, 3, 4, 2);
  EXPECT_EQ(test::accumulate(second, 3, 4, 2), loss);
  const auto bits = test::values_of(first.params.slab(Slab::gradient));
  EXPECT_EQ(test::values_of(second.params.slab(Slab::gradient)), bits);
  // Weight gradients put off to a pass of their own, as zero-bubble schedules do.
  test::accumulate(second, 3, 4, 2, WeightPass::later);
  EXPECT_EQ(test::values_of(second.params.slab(Slab::gradient)), bits);
}

// Whatever is made again has the same bits, in less memory.
TEST(ChunkRecompute, HasTheSameBits) {
  Gpt<float> gpt(test::small_gpt());
  const Values loss = test::accumulate(gpt, 3, 4, 2);
  const auto bits = test::values_of(gpt.params.slab(Slab::gradient));
  std::size_t saved = Pass<float>(gpt, {}).planned_saved();
  for (const nn::Recompute& recompute :
       {nn::Recompute{.selective = true}, {.layers = 1}, {.layers = 2}}) {
    SCOPED_TRACE(recompute.selective ? "selective" : std::to_string(recompute.layers));
    for (const WeightPass weight_pass : {WeightPass::now, WeightPass::later}) {
      EXPECT_EQ(test::accumulate(gpt, 3, 4, 2, weight_pass, recompute), loss);
      EXPECT_EQ(test::values_of(gpt.params.slab(Slab::gradient)), bits);
    }
    const Pass<float> pass(gpt, {.recompute = recompute});
    EXPECT_LT(pass.planned_saved(), saved);
    saved = pass.planned_saved();
  }
  // More than there are: all.
  EXPECT_EQ(Pass<float>(gpt, {.recompute = {.layers = 9}}).planned_saved(), saved);
}

TEST(ChunkSlots, KeepMicroBatchesApart) {
  // Two micro-batches in flight give what one after the other gives.
  Gpt<double> gpt(test::small_gpt());
  test::accumulate(gpt, 5, 4, 2);
  const auto want = gradients(gpt);
  gpt.chunk.set_slot_count(2);
  Kokkos::deep_copy(gpt.params.slab(Slab::gradient), 0.0);
  Pass<double> first(gpt, {.first_sample = 5, .batch = 2}, 0);
  Pass<double> second(gpt, {.first_sample = 7, .batch = 2}, 1);
  first.forward();
  second.forward();
  first.backward();
  second.backward();
  const auto got = gradients(gpt);
  for (std::size_t p = 0; p < got.size(); ++p) {
    const std::string& name = gpt.registry.spec(p).name;
    if (name == "embedding/word/weight") {
      // Forward and backward passes add to it: the same sums in another order.
      test::expect_close(got[p], want[p], 1e-14, 1.0, name.c_str());
    } else {
      EXPECT_EQ(got[p], want[p]) << name;
    }
  }
}

// Of a forward pass in training the logits have become gradients.
TEST(ChunkLogits, AreThereAfterEvaluationAlone) {
  Gpt<float> gpt(test::small_gpt());
  Pass<float> training(gpt, {}), evaluation(gpt, {.mode = nn::Mode::evaluation});
  training.forward();
  EXPECT_THAT(test::message_of<Error>([&] { training.logits(); }),
              HasSubstr("forward pass that took gradients"));
  evaluation.forward();
  EXPECT_EQ(evaluation.logits().size(), 13u * 37u);
}

// An evaluation between two micro-batches, as a search for what is not finite, leaves
// gradients as they are.
TEST(ChunkGradients, AreLeftAloneWhereNoneAreTaken) {
  Gpt<float> gpt(test::small_gpt());
  test::accumulate(gpt, 3, 2, 2);
  const auto bits = test::values_of(gpt.params.slab(Slab::gradient));
  for (const nn::Mode mode : {nn::Mode::training, nn::Mode::evaluation}) {
    Pass<float> pass(gpt, {.mode = mode, .gradients = nn::Gradients::none});
    pass.forward();
    EXPECT_GT(pass.totals()[0], 0.0);
    EXPECT_EQ(test::values_of(gpt.params.slab(Slab::gradient)), bits);
  }
}

TEST(ChunkMemory, IsWhatTheShapeOnlyPassSays) {
  for (const WeightPass weight_pass : {WeightPass::now, WeightPass::later}) {
    Gpt<float> gpt(test::small_gpt());
    Pass<float> pass(gpt, {.batch = 3, .weight_pass = weight_pass});
    // The arenas of a Pass are as large as planned; peaks show that no byte is too many.
    pass.forward();
    pass.backward();
    EXPECT_EQ(pass.saved().peak(), pass.planned_saved());
    EXPECT_EQ(pass.scratch().peak(), pass.planned_scratch());
    EXPECT_EQ(pass.held().peak(), pass.planned_held());
    EXPECT_EQ(pass.scratch().used(), 0u);
    EXPECT_EQ(pass.held().used(), 0u);
  }
}

TEST(ChunkDropout, IsForTrainingOnly) {
  const auto loss = [](double dropout, nn::Mode mode, index_t first) {
    Gpt<double> gpt(test::small_gpt(dropout));
    Pass<double> pass(gpt, {.first_sample = first, .batch = 2, .mode = mode});
    pass.forward();
    return pass.totals()[0];
  };
  const double plain = loss(0, nn::Mode::training, 0);
  EXPECT_EQ(loss(0.2, nn::Mode::evaluation, 0), plain);
  EXPECT_NE(loss(0.2, nn::Mode::training, 0), plain);
}

// Another embedding over the same table would give its positions the same names, in
// whatever unit is the last.
TEST(ChunkTables, AnEmbeddingWithPositionsOwnsItsTable) {
  model::Blueprint blueprint = model::make_blueprint(test::small_gpt());
  BlockSpec again = blueprint.blocks[0];
  again.name = "again";
  again.reads = {"hidden"};
  blueprint.blocks.insert(blueprint.blocks.begin() + 2, again);
  blueprint.check();
  const comm::ProcessGroups groups = comm::make_groups_of_one();
  ParamRegistry registry;
  ParamBuffer<float> params;
  EXPECT_THAT(test::message_of<Error>([&] {
                Chunk<float>({registry, params, groups}, blueprint, blueprint.whole());
              }),
              ::testing::HasSubstr("block 'again' embeds words by table "
                                   "'embedding/word', which is another block's"));
}

// A table of a column for each head: each tensor rank has its heads' columns, and nobody
// takes its rows for words.
TEST(ChunkTables, AreCutByHeadsWhereTheySaySo) {
  Blueprint blueprint = make_blueprint(test::small_gpt());
  blueprint.tables.push_back({.name = "distances",
                              .unit = "distances",
                              .rows = 5,
                              .columns = 4,
                              .cut = TableCut::heads});
  blueprint.blocks[2].table = "distances";
  comm::ProcessGroups groups = comm::make_groups_of_one();
  ParamRegistry registry;
  ParamBuffer<float> params;
  const Chunk<float> chunk({registry, params, groups}, blueprint, blueprint.whole());
  const ParamSpec& spec = registry.spec(registry.find("distances/weight"));
  EXPECT_EQ(spec.shard.global_shape, (Shape{5, 4}));
  EXPECT_EQ(spec.shard.dimension, 1);
  EXPECT_TRUE(spec.decay);
  blueprint.blocks[0].table = "distances";
  blueprint.blocks[2].table = "";
  ParamRegistry other;
  EXPECT_THAT(test::message_of<Error>([&] {
                Chunk<float>({other, params, groups}, blueprint, blueprint.whole());
              }),
              HasSubstr("'distances', which 'embedding' uses, is no table of words"));
}

}  // namespace
}  // namespace trireme::model
