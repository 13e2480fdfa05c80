// What a probe measures is no test's affair, but that it measures each kind of block
// once, in the form that layers are dealt by.
#include "step/block_probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <bit>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/exec.hpp"
#include "comm/planned_communicator.hpp"
#include "comm/rank_grid.hpp"
#include "config/load.hpp"
#include "model/blueprint.hpp"
#include "schedule/division.hpp"

namespace trireme::step {
namespace {

config::Deck small_deck() {
  config::Deck deck;
  deck.model.layers = 3;
  deck.model.hidden = 32;
  deck.model.heads = deck.model.kv_heads = 4;
  deck.model.ffn_hidden = 128;
  deck.model.sequence = 16;
  deck.model.vocab = 100;
  deck.parallel.pipeline = 2;
  deck.parallel.balance = config::Balance::measured;
  deck.batch.micro = 2;
  deck.batch.global = 8;
  return deck;
}

// A rank alone, which has a place in a pipeline of two: probes send along no pipeline.
comm::ProcessGroups first_of_two() {
  comm::ProcessGroups groups = comm::make_groups_of_one();
  const comm::GridShape shape{.pipeline = 2};
  groups.pipeline =
      comm::make_process_groups(comm::make_planned_communicator(0, 2, "world"), shape)
          .pipeline;
  return groups;
}

TEST(BlockProbe, TimesEachKindOfBlockOnce) {
  using config::PipelineSchedule;
  for (const auto schedule :
       {PipelineSchedule::one_f_one_b, PipelineSchedule::zero_bubble}) {
    config::Deck deck = small_deck();
    deck.parallel.schedule = schedule;
    const schedule::ModelCost cost = measured_cost(first_of_two(), deck);
    ASSERT_EQ(cost.blocks.size(), 5u);
    for (const schedule::ModelCost::Block& block : cost.blocks) {
      EXPECT_GT(block.cost.forward, 0.0);
      EXPECT_GT(block.cost.backward_input, 0.0);
      // The passes of weights are timed where the schedule has them apart.
      EXPECT_EQ(block.cost.backward_weight > 0.0,
                schedule == PipelineSchedule::zero_bubble);
    }
    for (const std::size_t other : {2u, 3u}) {
      EXPECT_EQ(cost.blocks[other].cost.total(), cost.blocks[1].cost.total());
    }
    EXPECT_THAT(cost.layers(), ::testing::ElementsAre(false, true, true, true, false));
  }
}

config::Deck deck_of(const std::string& model) {
  return config::parse("model: {" + model +
                           ", hidden: 32, heads: 4, vocab: 100}\n"
                           "data: {train: none}\n"
                           "batch: {micro: 4, global: 8}\n"
                           "parallel: {pipeline: 2, balance: measured}\n",
                       "deck", {.ranks = 2});
}
const char* const kBert = "kind: bert, layers: 3, sequence: 16";
// What the encoder gives is 128 KiB: copies of so much are launched by their name.
const char* const kT5 =
    "kind: t5, layers: 2, decoder_layers: 3, sequence: 256, decoder_sequence: 64";

// The last of a decoder's layers is of another kind: the encoder's output ends there. A
// stage from one stack to the other has what stands between them, too.
TEST(BlockProbe, TimesBlocksOfEachKindOfModel) {
  for (const char* const model : {kBert, kT5}) {
    const config::Deck deck = deck_of(model);
    const model::Blueprint blueprint = model::make_blueprint(deck.model);
    const schedule::ModelCost cost = measured_cost(first_of_two(), deck);
    ASSERT_EQ(cost.blocks.size(), blueprint.blocks.size());
    std::set<double> times;
    for (std::size_t i = 0; i < cost.blocks.size(); ++i) {
      SCOPED_TRACE(blueprint.blocks[i].name);
      EXPECT_GT(cost.blocks[i].cost.forward, 0.0);
      EXPECT_GT(cost.blocks[i].cost.backward_input, 0.0);
      EXPECT_EQ(cost.blocks[i].is_layer, blueprint.blocks[i].is_layer);
      EXPECT_EQ(cost.blocks[i].cost.total(),
                cost.blocks[blueprint.first_like(i)].cost.total());
      times.insert(cost.blocks[i].cost.total());
    }
    EXPECT_GT(times.size(), 2u);
  }
  const schedule::ModelCost t5 = measured_cost(first_of_two(), deck_of(kT5));
  const schedule::Costs stages = schedule::costs_of({1, 2, 2}, t5);
  double both = 0.0;  // a layer, a norm, an embedding, a layer
  for (std::size_t i = 2; i < 6; ++i) both += t5.blocks[i].cost.total();
  EXPECT_DOUBLE_EQ(stages.pieces[1].total(), both);
}

// Within a stage nobody copies what passes a block by, as the encoder's output does in a
// decoder; nor does a probe.
TEST(BlockProbe, TimesNoCopiesOfWhatPassesABlockBy) {
  const auto before = Kokkos::Tools::Experimental::get_callbacks();
  static std::set<std::string> launched;
  launched.clear();
  Kokkos::Tools::Experimental::set_begin_parallel_for_callback(
      [](const char* label, std::uint32_t, std::uint64_t*) { launched.insert(label); });
  measured_cost(first_of_two(), deck_of(kT5));
  const std::set<std::string> by_probe = launched;
  const DeviceArray<float> from("from", std::size_t{1} << 15), to("to", from.size());
  copy(Exec(), to, from);
  Kokkos::Tools::Experimental::set_callbacks(before);
  if (kHostExecution) {
    EXPECT_THAT(launched, ::testing::Contains("trireme::copy"));
  }
  EXPECT_GT(by_probe.size(), 1u);
  EXPECT_THAT(by_probe, ::testing::Not(::testing::Contains("trireme::copy")));
}

// Nothing that it makes up may be out of range: embeddings and gathers read by it.
TEST(BlockProbe, FillsByWhatFieldsHold) {
  using enum Holds;
  const BatchSpec batch{.streams = {{"text", 12}, {"marks", 4}, {"many", 20}},
                        .fields = {}};
  const auto filled = [&](const FieldSpec& field, index_t samples) {
    std::vector<std::int32_t> all;
    for (index_t i = 0; i < batch.elements(field, samples); ++i) {
      all.push_back(probed_element(batch, field, i, samples));
    }
    return all;
  };
  using ::testing::AllOf;
  using ::testing::Each;
  using ::testing::ElementsAre;
  using ::testing::Ge;
  using ::testing::Lt;
  for (const Holds kind : {words, classes}) {
    const auto ids = filled({.name = "ids", .holds = kind, .below = 5}, 3);
    EXPECT_THAT(ids, Each(AllOf(Ge(0), Lt(5))));
    EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), 5u);
  }
  EXPECT_THAT(filled({.name = "unknown vocabulary"}, 1), Each(0));
  EXPECT_THAT(filled({.name = "places", .stream = 1, .holds = places}, 2),
              ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
  EXPECT_THAT(filled({.name = "lengths", .per = Per::sample, .holds = lengths}, 2),
              ElementsAre(12, 12));
  EXPECT_THAT(filled({.name = "rows", .stream = 1, .holds = rows}, 2),
              ElementsAre(0, 0, 3, 3, 6, 6, 9, 9));
  const auto few = filled({.name = "rows", .stream = 2, .holds = rows, .rows_of = 1}, 1);
  EXPECT_THAT(std::vector(few.begin(), few.begin() + 6), ElementsAre(0, 1, 2, 3, -1, -1));
  EXPECT_THAT(filled({.name = "weights", .holds = weights}, 1),
              Each(std::bit_cast<std::int32_t>(1.0f)));
}

TEST(BlockProbe, DealsAllLayersAndSaysByWhat) {
  config::Deck deck = small_deck();
  const std::string said = deal_by_measured_costs(first_of_two(), deck);
  ASSERT_EQ(deck.parallel.stages.size(), 2u);
  EXPECT_EQ(std::accumulate(deck.parallel.stages.begin(), deck.parallel.stages.end(), 0),
            3);
  EXPECT_FALSE(deck.parallel.is_to_be_measured());
  for (const char* part :
       {"embedding ", "layers/0 ", "head ", "Layers of the chunks: ["}) {
    EXPECT_THAT(said, ::testing::HasSubstr(part));
  }
  EXPECT_THAT(said, ::testing::Not(::testing::HasSubstr("layers/1")));
}

}  // namespace
}  // namespace trireme::step
