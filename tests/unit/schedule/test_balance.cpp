// Layers dealt to pieces: none lost, none better by hand, as fast as is said.
#include "schedule/balance.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "unit/schedule/pipelines.hpp"

namespace trireme::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// So many layers between an embedding and a head that weighs some layers.
ModelCost with_head(double weight, int layers) {
  ModelCost model;
  model.blocks.push_back({{0.02, 0.0, 0.02}, false});
  for (int i = 0; i < layers; ++i) model.blocks.push_back({{1.0, 1.0, 1.0}, true});
  model.blocks.push_back({{weight, weight, weight}, false});
  return model;
}

constexpr double kUnlimited = 1e12;  // passes

double efficiency(const PipelineShape& shape, PipelineSchedule schedule,
                  const Split& split, const ModelCost& model) {
  const Costs costs = costs_of(split, model);
  double work = 0.0;
  for (const PieceCost& piece : costs.pieces) work += piece.total();
  return work * shape.microbatches / shape.stages /
         seconds_of(shape, choose_orders(shape, schedule, costs), costs);
}

TEST(Balance, DealsEveryLayer) {
  for (const PipelineShape& shape : pipelines()) {
    if (shape.microbatches > 9) continue;
    for (const int layers : {shape.pieces() - 2, shape.pieces() - 1, shape.pieces(),
                             shape.pieces() + 1, 3 * shape.pieces() + 2}) {
      if (layers < 1 || (shape.pieces() > 16 && layers != shape.pieces() + 1)) continue;
      SCOPED_TRACE(fmt::format("{} layers, {}", layers, text_of(shape)));
      const Split split =
          balance(shape, PipelineSchedule::one_f_one_b, with_head(1.3, layers));
      ASSERT_EQ(split.size(), static_cast<std::size_t>(shape.pieces()));
      EXPECT_EQ(std::accumulate(split.begin(), split.end(), 0), layers);
      for (std::size_t g = 1; g + 1 < split.size(); ++g) EXPECT_GE(split[g], 1);
    }
  }
}

// Equal work for equal stages.
TEST(Balance, IsEvenWhereLayersDivide) {
  for (const int stages : {2, 4, 8, 64}) {
    const PipelineShape shape{.stages = stages, .microbatches = 4 * stages};
    const Split split =
        balance(shape, PipelineSchedule::one_f_one_b, with_head(0.1, 2 * stages));
    EXPECT_EQ(split, Split(static_cast<std::size_t>(stages), 2));
  }
}

// Every division of so many layers that has a layer on each inner piece.
std::vector<Split> all_divisions(int layers, int pieces) {
  std::vector<Split> found = {{}};
  for (int piece = 0; piece < pieces; ++piece) {
    std::vector<Split> longer;
    const bool is_last = piece + 1 == pieces;
    for (const Split& split : found) {
      const int left = layers - std::accumulate(split.begin(), split.end(), 0);
      const int least = is_last ? left : piece == 0 ? 0 : 1;
      for (int its = least; its <= left; ++its) {
        longer.push_back(split);
        longer.back().push_back(its);
      }
    }
    found = std::move(longer);
  }
  return found;
}

// Small pipelines, heads from a fifth of a layer to more than five, few and many
// micro-batches, layers that come out even and that do not.
struct SmallCase {
  PipelineShape shape;
  PipelineSchedule schedule;
  int layers;
  double head;
};
std::vector<SmallCase> small_cases() {
  std::vector<SmallCase> cases;
  const auto add = [&](PipelineShape shape, PipelineSchedule schedule) {
    for (const int rounds : {2, 4, 8}) {
      shape.microbatches = rounds * shape.stages + (rounds == 4 ? 1 : 0);
      for (const int layers : {shape.pieces() + 1, 2 * shape.pieces(), 11}) {
        for (const double head : {0.2, 1.0, 3.0, 5.5}) {
          cases.push_back({shape, schedule, layers, head});
        }
      }
    }
  };
  for (const auto& [stages, chunks] :
       {std::pair{2, 1}, {3, 1}, {4, 1}, {2, 2}, {2, 3}, {3, 2}}) {
    add({.stages = stages, .chunks = chunks}, PipelineSchedule::one_f_one_b);
  }
  for (const int stages : {2, 3}) {
    add({.stages = stages}, PipelineSchedule::zero_bubble);
    add({.stages = stages}, PipelineSchedule::gpipe);
  }
  return cases;
}

std::string text_of(const SmallCase& c) {
  return fmt::format("{}, {} layers, head {}, {}", text_of(c.shape), c.layers, c.head,
                     config::name_of(c.schedule));
}

// All divisions of small models, each simulated in full.
TEST(Balance, IsNearTheBestOfAllDivisions) {
  for (const SmallCase& c : small_cases()) {
    SCOPED_TRACE(text_of(c));
    const ModelCost model = with_head(c.head, c.layers);
    const Divisions divisions(c.shape, c.schedule, kUnlimited);
    const auto demand_of = [&](const Split& split) {
      return divisions.demand_of(split, model);
    };
    const Demand even = demand_of(even_split(c.layers, c.shape.pieces()));
    const Demand dealt = demand_of(balance(c.shape, c.schedule, model));
    EXPECT_LE(dealt.seconds, even.seconds * (1.0 + 1e-9));
    EXPECT_LE(price_of(dealt, even), 1.0 + 1e-9);
    double least = 1.0, fastest = even.seconds;
    for (const Split& split : all_divisions(c.layers, c.shape.pieces())) {
      const Demand demand = demand_of(split);
      least = std::min(least, price_of(demand, even));
      if (demand.parameters > dealt.parameters) continue;
      if (demand.activations > dealt.activations) continue;
      fastest = std::min(fastest, demand.seconds);
    }
    // What is asked of the price by worse costs as well, and of the gain, costs a little.
    EXPECT_LE(price_of(dealt, even), 1.05 * least);
    EXPECT_LE(dealt.seconds, 1.05 * fastest);
  }
}

// What a machine may make of costs: layers that take more than their products, by so
// large a share, and messages of so large a share of a layer's forward pass.
ModelCost on_a_machine(ModelCost model, double layers_more, double message) {
  const double factor = 1.0 + layers_more;
  for (ModelCost::Block& block : model.blocks) {
    if (!block.is_layer) continue;
    block.cost.forward *= factor;
    block.cost.backward_input *= factor;
    block.cost.backward_weight *= factor;
  }
  model.message = message * factor;
  return model;
}

// By the costs as they are, by the worst of what they leave open, and by half of that.
void expect_no_worse_than_even(const PipelineShape& shape, const ModelCost& model,
                               const Split& dealt, const Split& even) {
  const Divisions divisions(shape, PipelineSchedule::one_f_one_b, kUnlimited);
  for (const double share : {0.0, 0.5, 1.0}) {
    SCOPED_TRACE(fmt::format("by {} of what is open", share));
    const ModelCost taken = on_a_machine(model, share * model.layers_more, share * 0.1);
    const Demand of_even = divisions.demand_of(even, taken);
    const Demand demand = divisions.demand_of(dealt, taken);
    EXPECT_LE(demand.seconds, of_even.seconds * (1.0 + 1e-9));
    EXPECT_LE(price_of(demand, of_even), 1.0 + 1e-9);
  }
}

// Heads from a fifth of a layer to more than five, and as much of parameters.
TEST(Balance, IsNeverWorseThanEven) {
  int moved = 0, cases = 0;
  for (const auto& [stages, chunks] : {std::pair{2, 1},
                                       {2, 2},
                                       {2, 4},
                                       {3, 3},
                                       {4, 1},
                                       {4, 2},
                                       {4, 3},
                                       {8, 1},
                                       {8, 2}}) {
    for (const int microbatches : {2 * stages, 4 * stages + 1, 7 * stages}) {
      const PipelineShape shape{
          .stages = stages, .chunks = chunks, .microbatches = microbatches};
      for (const int each : {1, 2, 5}) {
        const int layers = each * shape.pieces() + (each == 2 ? 1 : 0);
        const Split even = even_split(layers, shape.pieces());
        for (const double head : {0.2, 1.5, 5.5}) {
          for (const int recomputed : {0, layers}) {
            SCOPED_TRACE(fmt::format("{}, {} layers, {} made again, head {}",
                                     text_of(shape), layers, recomputed, head));
            ModelCost model = with_head(head, layers);
            for (ModelCost::Block& block : model.blocks) {
              block.parameters = block.is_layer ? 1.0 : head;
            }
            model.recomputed = recomputed;
            model.layers_more = 0.25;
            const Split dealt = balance(shape, PipelineSchedule::one_f_one_b, model);
            ++cases;
            if (dealt == even) continue;
            ++moved;
            expect_no_worse_than_even(shape, model, dealt, even);
          }
        }
      }
    }
  }
  EXPECT_GT(moved, cases / 4);
}

// 76.1B of Narayanan et al. 2021, table 1: 60 layers that are made again on 4 stages of 3
// chunks, 28 micro-batches. Divisions that seem faster with 16 micro-batches are slower
// with 28, and take groups of 14 micro-batches, with more than twice the activations.
TEST(Balance, LooksAtAllMicrobatches) {
  ModelCost model = with_head(0.41, 60);
  model.recomputed = 60;
  const PipelineShape shape{.stages = 4, .chunks = 3, .microbatches = 28};
  EXPECT_EQ(balance(shape, PipelineSchedule::one_f_one_b, model), Split(12, 5));
}

// A first stage with a large table: what is gained by layers there takes parameters.
TEST(Balance, CountsWhatAStageHolds) {
  const auto dealt = [](double parameters) {
    ModelCost model = with_head(1.5, 24);
    for (ModelCost::Block& block : model.blocks) {
      if (!block.is_layer) block.parameters = parameters;
    }
    return balance({.stages = 4, .microbatches = 32}, PipelineSchedule::one_f_one_b,
                   model);
  };
  const Split light = dealt(0.0), heavy = dealt(12.0);
  EXPECT_LE(heavy.front(), 6);
  EXPECT_LE(heavy.front(), light.front());
  EXPECT_LT(heavy.back(), 6);
}

// No division is worth moving layers that is faster by less than a hundredth.
TEST(Balance, IsEvenWhereLittleIsGained) {
  const PipelineShape shape{.stages = 2, .microbatches = 64};
  EXPECT_EQ(balance(shape, PipelineSchedule::one_f_one_b, with_head(0.9, 96)),
            (Split{48, 48}));
  EXPECT_NE(balance(shape, PipelineSchedule::one_f_one_b, with_head(9.0, 96)),
            (Split{48, 48}));
}

// GPT-2 124M on two stages, 8 micro-batches: its head weighs 5.5 layers.
TEST(Balance, OfGpt2) {
  const ModelCost model = with_head(5.5, 12);
  const PipelineShape plain{.stages = 2, .microbatches = 8};
  const Split split = balance(plain, PipelineSchedule::one_f_one_b, model);
  EXPECT_EQ(split, (Split{9, 3}));
  EXPECT_GT(efficiency(plain, PipelineSchedule::one_f_one_b, split, model), 0.87);
  const Split zero = balance(plain, PipelineSchedule::zero_bubble, model);
  EXPECT_GT(efficiency(plain, PipelineSchedule::zero_bubble, zero, model), 0.93);
  const PipelineShape virtual_two{.stages = 2, .chunks = 2, .microbatches = 8};
  const Split two = balance(virtual_two, PipelineSchedule::one_f_one_b, model);
  // 0.96 is possible, with activations that are half again as many.
  EXPECT_GT(efficiency(virtual_two, PipelineSchedule::one_f_one_b, two, model), 0.92);
}

// No division of them is known to be better.
TEST(Balance, DeepPipelinesAreDividedEvenly) {
  const PipelineShape shape{.stages = 2048, .chunks = 2, .microbatches = 8192};
  EXPECT_EQ(balance(shape, PipelineSchedule::one_f_one_b, with_head(5.5, 8192)),
            Split(4096, 2));
}

// An encoder's light layers and a decoder's heavy ones, with what begins the decoder
// between them: the heavy ones are fewer on a stage.
TEST(Balance, OfUnlikeLayers) {
  ModelCost model;
  model.blocks.push_back({{0.01, 0.0, 0.01}, false});
  for (int i = 0; i < 12; ++i) model.blocks.push_back({{1.0, 1.0, 1.0}, true});
  model.blocks.push_back({{0.01, 0.0, 0.01}, false});
  for (int i = 0; i < 4; ++i) model.blocks.push_back({{3.0, 3.0, 3.0}, true});
  model.blocks.push_back({{0.01, 0.01, 0.01}, false});
  const PipelineShape shape{.stages = 4, .microbatches = 16};
  const Split split = balance(shape, PipelineSchedule::one_f_one_b, model);
  EXPECT_EQ(split, (Split{6, 6, 2, 2}));
  EXPECT_EQ(cuts_of(split, model.layers()), (std::vector<std::size_t>{0, 7, 13, 16, 19}));
  EXPECT_EQ(cuts_of({0, 12, 4, 0}, model.layers()),
            (std::vector<std::size_t>{0, 1, 13, 18, 19}));
  EXPECT_THROW(cuts_of({9, 9}, model.layers()), Error);
}

TEST(Balance, RefusesPiecesOfNothing) {
  EXPECT_THAT(
      [] {
        balance({.stages = 5, .microbatches = 4}, PipelineSchedule::gpipe,
                with_head(1.0, 2));
      },
      ThrowsMessage<Error>(HasSubstr("4 pieces at most")));
  EXPECT_EQ(balance({.stages = 4, .microbatches = 4}, PipelineSchedule::gpipe,
                    with_head(1.0, 2)),
            (Split{0, 1, 1, 0}));
}

}  // namespace
}  // namespace trireme::schedule
