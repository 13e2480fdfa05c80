// Layers dealt to pieces: none lost, none better by hand, as fast as is said.
#include "schedule/balance.hpp"

#include <gmock/gmock.h>

#include <numeric>

#include "base/error.hpp"
#include "unit/schedule/pipelines.hpp"

namespace trireme::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr PipelineSchedule kSchedules[] = {PipelineSchedule::gpipe,
                                           PipelineSchedule::one_f_one_b,
                                           PipelineSchedule::zero_bubble};

// So many layers between an embedding and a head that weighs some layers.
ModelCost with_head(double weight, int layers) {
  ModelCost model;
  model.blocks.push_back({{0.02, 0.0, 0.02}, false});
  for (int i = 0; i < layers; ++i) model.blocks.push_back({{1.0, 1.0, 1.0}, true});
  model.blocks.push_back({{weight, weight, weight}, false});
  return model;
}

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

// No single layer elsewhere makes a step faster.
TEST(Balance, IsNotBetterByOneMove) {
  for (const PipelineSchedule schedule : kSchedules) {
    for (const PipelineShape& shape :
         {PipelineShape{2, 1, 8}, PipelineShape{3, 1, 7}, PipelineShape{2, 2, 8}}) {
      const ModelCost model = with_head(5.5, 12);
      const Split split = balance(shape, schedule, model);
      const double best = efficiency(shape, schedule, split, model);
      for (std::size_t from = 0; from < split.size(); ++from) {
        for (std::size_t to = 0; to < split.size(); ++to) {
          Split moved = split;
          moved[from] -= 1;
          moved[to] += 1;
          const bool is_end = from == 0 || from + 1 == split.size();
          if (to == from || moved[from] < (is_end ? 0 : 1)) continue;
          EXPECT_LE(efficiency(shape, schedule, moved, model), best * (1.0 + 1e-9));
        }
      }
    }
  }
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
  EXPECT_GT(efficiency(virtual_two, PipelineSchedule::one_f_one_b, two, model), 0.95);
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
