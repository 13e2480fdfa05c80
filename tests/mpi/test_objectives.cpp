// Two objectives with masks and weights of their own: the loss is the sum of their
// weighted means over the whole batch, whatever data ranks and micro-batches there are
// and wherever they count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>

#include "comm/mpi_communicator.hpp"
#include "comm/process_groups.hpp"
#include "comm/self_communicator.hpp"
#include "model/block.hpp"
#include "model/losses.hpp"
#include "step/train_step.hpp"
#include "support/arrays.hpp"
#include "unit/io/scratch.hpp"
#include "unit/step/random_model.hpp"

namespace trireme::step {
namespace objectives {

using test::uniform;
using Values = std::vector<double>;

constexpr index_t kSequence = 5, kHidden = 12, kVocabulary = 23, kSamples = 12;

// The second objective: half the squares of what goes by to the head.
class SizeBlock final : public model::Block<double> {
 public:
  explicit SizeBlock(const model::Making<double>& making)
      : objective_(making.objective()), mask_(making.blueprint.batch.field("size_mask")) {
    making.builder.registry.begin_unit(making.spec().name);
  }
  void set_slot_count(int slots) override { x_.resize(extent(slots)); }
  void forward(const nn::Context& context, int slot, const model::Tensors<double>& in,
               const model::Tensors<double>&) override {
    const View2<double> x = x_.at(extent(slot)) = in[0];
    const View1<double> totals = context.totals_of(objective_.index);
    const auto mask = context.weights(mask_);
    launch(
        context.exec, "trireme::test::size_forward", 1, KOKKOS_LAMBDA(const index_t) {
          for (std::size_t row = 0; row < x.extent(0); ++row) {
            double sum = 0;
            for (std::size_t j = 0; j < x.extent(1); ++j) sum += x(row, j) * x(row, j);
            totals(0) += static_cast<double>(mask(row)) * sum / 2;
            totals(1) += static_cast<double>(mask(row));
          }
        });
  }
  void backward_input(const nn::Context& context, int slot, const model::Tensors<double>&,
                      const model::Tensors<double>& d_in, model::WeightPass) override {
    const View2<double> x = x_.at(extent(slot)), d_x = d_in[0];
    const auto mask = context.weights(mask_);
    const kernels::ObjectiveScale objective = objective_;
    const kernels::StepStateView step = context.step;
    launch(
        context.exec, "trireme::test::size_backward", extent_of(x),
        KOKKOS_LAMBDA(const index_t row) {
          for (std::size_t j = 0; j < x.extent(1); ++j) {
            d_x(row, j) +=
                objective.in(step()) * static_cast<double>(mask(row)) * x(row, j);
          }
        });
  }
  void backward_weight(const nn::Context&, int) override {}
  void decode(const nn::Context&, nn::KvCache<double>*, const model::Tensors<double>&,
              const model::Tensors<double>&) const override {}
  std::string locate_non_finite(const nn::Context&, const model::FiniteCheck<double>&,
                                int) const override {
    return {};
  }

 private:
  static index_t extent_of(const View2<double>& x) {
    return static_cast<index_t>(x.extent(0));
  }
  kernels::ObjectiveScale objective_;
  std::size_t mask_;
  std::vector<View2<double>> x_;
};

std::unique_ptr<model::Block<double>> make_block(const model::Making<double>& making) {
  if (making.spec().kind == "size") return std::make_unique<SizeBlock>(making);
  return model::make_block<double>(making);
}

// A GPT with the block behind its embedding, so that a pipeline of two stages makes an
// objective on each.
model::Blueprint two_objectives() {
  model::Blueprint blueprint = model::make_blueprint({.layers = 2,
                                                      .hidden = kHidden,
                                                      .heads = 2,
                                                      .kv_heads = 2,
                                                      .ffn_hidden = 16,
                                                      .sequence = kSequence,
                                                      .vocab = kVocabulary});
  blueprint.batch.fields.push_back({.name = "size_mask", .holds = Holds::weights});
  blueprint.objectives[0].weight = 0.75;
  blueprint.objectives.push_back({.name = "size", .weight = 3.0, .mask = "size_mask"});
  const auto embedding = blueprint.blocks.begin();
  blueprint.blocks.insert(embedding + 1, {.kind = "size",
                                          .name = "size",
                                          .border = embedding->border,
                                          .reads = {"hidden"},
                                          .fields = {"size_mask"},
                                          .objective = 1});
  blueprint.check();
  return blueprint;
}

// Two samples have nothing for the first objective, two others nothing for the second,
// and they count very differently: of three data ranks two lack one of the objectives.
double loss_mask(index_t sample, index_t s) {
  return sample < 2 ? 0.0 : sample == 2 ? (s == 1 ? 1.0 : 0.0) : 1.0;
}
double size_mask(index_t sample, index_t s) {
  return sample >= 4 ? 0.0 : sample == 0 ? 0.25 * static_cast<double>(s) : s == 4 ? 1 : 0;
}

struct MaskedRun {
  explicit MaskedRun(
      index_t micro, double masks_in = 1.0, int stages = 1,
      const std::shared_ptr<comm::Communicator>& world = comm::make_mpi_world())
      : masks(masks_in),
        state(comm::make_process_groups(
                  world, {.data = world->size() / stages, .pipeline = stages}),
              two_objectives(),
              {.pipeline = {.stages = stages,
                            .split = std::vector<int>(extent(stages), 2 / stages)}},
              &make_block) {
    test::randomize(state, 0.3);
    step = std::make_unique<TrainStep<double>>(
        exec, state,
        StepShape{.micro = micro,
                  .sequence = kSequence,
                  .microbatches = static_cast<int>(share() / micro)},
        timers);
    optimizer = std::make_unique<optim::Optimizer<double>>(
        exec, state.params, state.groups, kernels::AdamWDesc{}, 0.0);
  }
  // Samples of a data rank, and its first one.
  index_t share() const { return kSamples / state.groups.gradient->size(); }
  index_t begin() const { return state.groups.gradient->rank() * share(); }

  FetchBatch fetch() {
    return [this](int m) {
      const index_t micro = step->shape().micro;
      const auto rows = static_cast<std::size_t>(micro * kSequence);
      for (auto* ids : {&tokens, &positions, &labels}) ids->resize(rows);
      for (auto* weights : {&first, &second}) weights->resize(rows);
      for (index_t row = 0; row < micro * kSequence; ++row) {
        const auto at = static_cast<std::size_t>(row);
        const index_t sample = begin() + m * micro + row % micro, s = row / micro;
        tokens[at] = static_cast<std::int32_t>((7 * sample + 3 * s) % kVocabulary);
        labels[at] = static_cast<std::int32_t>((5 * sample + 2 * s + 1) % kVocabulary);
        positions[at] = static_cast<std::int32_t>(s);
        first[at] = static_cast<float>(masks * loss_mask(sample, s));
        second[at] = static_cast<float>(masks * size_mask(sample, s));
      }
      return HostBatch{
          {tokens.data(), positions.data(), labels.data(), first.data(), second.data()},
          0};
    };
  }
  // Of this rank.
  double counted(const std::string& field) const {
    double sum = 0;
    for (index_t sample = begin(); sample < begin() + share(); ++sample) {
      for (index_t s = 0; s < kSequence; ++s) {
        sum += masks * (field == "size_mask" ? size_mask : loss_mask)(sample, s);
      }
    }
    return sum;
  }
  optim::StepReport accumulate() {
    step->accumulate_gradients(fetch(),
                               [this](const std::string& f) { return counted(f); });
    optimizer->prepare(exec, step->state_view(), step->totals());
    return optimizer->read_report();
  }
  Values values(Slab slab) const {
    exec.fence("test");
    const auto host =
        Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, state.params.slab(slab));
    return {host.data(), host.data() + host.extent(0)};
  }
  // The loss by hand, from the sums of an evaluation.
  double loss() {
    const LossSums mine = step->evaluate(fetch(), step->shape().microbatches);
    std::vector<double> sums = {mine[0].sum, counted("loss_mask"), mine[1].sum,
                                counted("size_mask")};
    state.groups.gradient->control().all_reduce(sums);
    return 0.75 * sums[0] / sums[1] + 3.0 * sums[2] / sums[3];
  }

  double masks;
  Exec exec;
  Timers timers;
  ModelState<double> state;
  std::unique_ptr<TrainStep<double>> step;
  std::unique_ptr<optim::Optimizer<double>> optimizer;
  std::vector<std::int32_t> tokens, positions, labels;
  std::vector<float> first, second;
};

TEST(Objectives, GradientIsThatOfTheSumOfWeightedMeans) {
  for (const index_t microbatches : {1, 2, 3, 6}) {
    const index_t share = kSamples / comm::make_mpi_world()->size();
    if (share % microbatches != 0) continue;
    MaskedRun run(share / microbatches);
    const optim::StepReport report = run.accumulate();
    EXPECT_EQ(report.losses[0].count, 46.0);
    EXPECT_EQ(report.losses[1].count, 5.5);
    const auto& objectives = run.state.blueprint.objectives;
    const double loss = run.loss();
    EXPECT_NEAR(model::losses_of(objectives, report.losses).total, loss, 1e-12 * loss);

    const Values gradient = run.values(Slab::gradient), at = run.values(Slab::weight);
    const Values direction = uniform(at.size(), 9, -1, 1);
    double expected = 0;
    for (std::size_t i = 0; i < at.size(); ++i) expected += gradient[i] * direction[i];
    const View1<double> weights = run.state.params.slab(Slab::weight);
    const auto loss_at = [&](double h) {
      const auto host = Kokkos::create_mirror(Kokkos::HostSpace{}, weights);
      for (std::size_t i = 0; i < at.size(); ++i) host(i) = at[i] + h * direction[i];
      Kokkos::deep_copy(weights, host);
      return run.loss();
    };
    constexpr double h = 1e-3;
    const double coarse = (loss_at(h) - loss_at(-h)) / (2 * h);
    const double fine = (loss_at(h / 2) - loss_at(-h / 2)) / h;
    EXPECT_NEAR((4 * fine - coarse) / 3, expected, 1e-7 * std::abs(expected))
        << microbatches;
  }
}

// An objective is made by one stage, which alone counts for it; all stages know its sum.
TEST(Objectives, MayBeMadeOnStagesOfTheirOwn) {
  const auto world = comm::make_mpi_world();
  const int stages = world->size() % 2 == 0 ? 2 : 1;
  MaskedRun alone(kSamples, 1.0, 1, comm::make_self_communicator("alone"));
  MaskedRun run(1, 1.0, stages);
  for (MaskedRun* each : {&alone, &run}) each->state.params.initialize(each->exec, 5);
  EXPECT_EQ(run.state.makes_objective(1), run.state.groups.pipeline->rank() == 0);
  const optim::StepReport want = alone.accumulate(), got = run.accumulate();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(got.losses[i].count, want.losses[i].count) << i;
    EXPECT_NEAR(got.losses[i].sum, want.losses[i].sum, 1e-12 * want.losses[i].sum) << i;
  }
  EXPECT_NEAR(got.grad_norm, want.grad_norm, 1e-12 * want.grad_norm);
  const double loss = alone.loss();
  EXPECT_NEAR(run.loss(), loss, 1e-12 * loss);
}

// A batch in which nothing counts has a gradient of zero, and no loss.
TEST(Objectives, NothingThatCounts) {
  MaskedRun run(1, 0.0);
  const optim::StepReport report = run.accumulate();
  EXPECT_EQ(report.losses[0].count, 0.0);
  EXPECT_EQ(report.grad_norm, 0.0);
  EXPECT_THAT(run.values(Slab::gradient), ::testing::Each(0.0));
  const auto& objectives = run.state.blueprint.objectives;
  EXPECT_TRUE(std::isnan(model::losses_of(objectives, report.losses).total));
}

TEST(Objectives, AreSaidByName) {
  const auto& objectives = two_objectives().objectives;
  const kernels::LossSum sums[] = {{6.0, 4.0}, {1.0, 0.0}};
  const model::Losses losses = model::losses_of(objectives, sums);
  EXPECT_EQ(losses.total, 0.75 * 1.5);  // nothing counted for the second
  ASSERT_EQ(losses.parts.size(), 2u);
  EXPECT_EQ(model::text_of({losses.parts[0], {"size", 2.0}}),
            " (loss 1.500, size 2.000)");
  const model::Losses one = model::losses_of({{.name = "loss", .mask = ""}}, sums);
  EXPECT_EQ(one.total, 1.5);
  EXPECT_EQ(model::text_of(one.parts), "");
}

TEST(Objectives, AreMadeByOneBlockThatReadsTheirMask) {
  const auto refusal = [](auto change) {
    model::Blueprint blueprint = two_objectives();
    change(blueprint);
    return test::message_of<Error>([&] { blueprint.check(); });
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal([](auto& b) { b.blocks.back().objective = 1; }),
              HasSubstr("objective 'loss' is made by 0 blocks"));
  EXPECT_THAT(refusal([](auto& b) { b.blocks.back().fields = {"labels"}; }),
              HasSubstr("does not read its mask 'loss_mask'"));
  EXPECT_THAT(refusal([](auto& b) { b.objectives.resize(5, b.objectives[1]); }),
              HasSubstr("a model of 5 objectives; there is room for 4"));
}

}  // namespace objectives
}  // namespace trireme::step
