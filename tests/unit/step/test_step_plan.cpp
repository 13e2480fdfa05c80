// What a step is planned to compute: against the sum over the model's blocks,
// over the stages and tensor ranks of a pipeline, and against the kernels that a real
// step launches.
#include "step/step_plan.hpp"

#include <gmock/gmock.h>

#include <Kokkos_Core.hpp>
#include <map>
#include <string>

#include "comm/planned_communicator.hpp"
#include "comm/rank_grid.hpp"
#include "step/train_step.hpp"
#include "support/arrays.hpp"
#include "support/model_flops.hpp"
#include "unit/step/random_model.hpp"

namespace trireme::step {
namespace {

constexpr index_t kLength = 8, kSamplesAtOnce = 2;

model::Architecture deep_gpt(index_t layers) {
  return {.layers = layers,
          .hidden = 24,
          .heads = 4,
          .kv_heads = 4,
          .ffn_hidden = 40,
          .sequence = kLength,
          .vocab = 37};
}

// Of one rank in each stage and tensor rank, together.
struct Total {
  double flops = 0.0;
  index_t vocabulary = 0;  // rows of all slabs of the head, padding included
};

Total total_of(const PipelineLayout& layout, int tensor, const StepShape& shape) {
  Total all;
  const comm::GridShape grid{.tensor = tensor, .data = 3, .pipeline = layout.stages};
  for (int rank = 0; rank < grid.size(); ++rank) {
    if (comm::coordinates_of(grid, rank).data != 1) continue;
    const ModelState<float> state(
        comm::make_process_groups(
            comm::make_planned_communicator(rank, grid.size(), "world"), grid),
        deep_gpt(7), {.zero = 1, .pipeline = layout});
    all.flops += plan_step(state, shape).tally.total().cost.flops;
    if (state.groups.pipeline->rank() + 1 == layout.stages) {
      all.vocabulary += state.chunks.back()->logit_columns();
    }
  }
  return all;
}

TEST(StepPlan, FlopsAreThoseOfTheBlocks) {
  using config::PipelineSchedule;
  const std::vector<PipelineLayout> layouts = {
      {},
      {.stages = 3, .split = {3, 2, 2}},
      {.stages = 2, .chunks = 2, .split = {2, 2, 2, 1}},
      {.stages = 2,
       .chunks = 1,
       .split = {4, 3},
       .schedule = PipelineSchedule::zero_bubble}};
  for (const PipelineLayout& layout : layouts) {
    for (const int tensor : {1, 2}) {
      for (const bool recomputes : {false, true}) {
        StepShape shape{.micro = kSamplesAtOnce, .sequence = kLength, .microbatches = 6};
        if (recomputes) shape.recompute.layers = 7;  // of each chunk, so all there are
        const Total sum = total_of(layout, tensor, shape);
        const model::Architecture config = deep_gpt(7);
        const index_t samples = shape.micro * shape.microbatches;
        const double again =
            recomputes ? test::layers_forward_flops(config, samples, kLength) : 0.0;
        // Products with the head's words: two of three with rows of padding on a host.
        const double padding =
            static_cast<double>((kHostExecution ? 2 : 3) * 2 * samples * kLength *
                                config.hidden * (sum.vocabulary - config.vocab));
        EXPECT_EQ(sum.flops,
                  test::model_flops(config, samples, kLength) + again + padding)
            << layout.stages << " stages of " << layout.chunks << " chunks, tensor "
            << tensor << (recomputes ? ", recomputed" : "");
      }
    }
  }
}

// Calls of kernels by label, as Kokkos sees them.
class LaunchedKernels {
 public:
  LaunchedKernels() {
    Kokkos::Tools::Experimental::pause_tools();
    before_ = Kokkos::Tools::Experimental::get_callbacks();
    calls_ = &calls;
    Kokkos::Tools::Experimental::EventSet events{};
    const auto note = [](const char* label, std::uint32_t, std::uint64_t*) {
      ++(*calls_)[label];
    };
    events.begin_parallel_for = note;
    events.begin_parallel_reduce = note;
    Kokkos::Tools::Experimental::set_callbacks(events);
  }
  ~LaunchedKernels() { Kokkos::Tools::Experimental::set_callbacks(before_); }
  LaunchedKernels(const LaunchedKernels&) = delete;
  LaunchedKernels& operator=(const LaunchedKernels&) = delete;

  std::map<std::string, index_t> calls;

 private:
  static inline std::map<std::string, index_t>* calls_ = nullptr;
  Kokkos::Tools::Experimental::EventSet before_;
};

// Of a second step: the first one also fills memory that is allocated once, a library's
// workspace for example. But for products, which are a library's, and copies of less than
// 64 KiB, which are Kokkos's own.
TEST(StepPlan, KernelsAreThoseThatAStepLaunches) {
  const Exec exec;
  for (const bool recomputes : {false, true}) {
    ModelState<float> state(comm::make_groups_of_one(), deep_gpt(3));
    test::randomize(state);
    StepShape shape{.micro = kSamplesAtOnce, .sequence = kLength, .microbatches = 5};
    shape.recompute = {.layers = recomputes ? 2 : 0, .selective = recomputes};
    Timers timers;
    TrainStep<float> step(exec, state, shape, timers);
    optim::Optimizer<float> optimizer(exec, state.params, state.groups, {}, 1.0);
    const std::vector<std::int32_t> ids(kSamplesAtOnce * kLength, 3);
    const std::vector<float> mask(kSamplesAtOnce * kLength, 1.0F);
    const auto train = [&](std::int64_t number) {
      optimizer.begin_step(exec, step.state_view(), number, 1e-3);
      step.accumulate_gradients(
          [&](int) {
            return HostBatch{.fields = {ids.data(), ids.data(), ids.data(), mask.data()}};
          },
          [&](const auto&) {
            return static_cast<double>(kSamplesAtOnce * kLength * shape.microbatches);
          });
      optimizer.prepare(exec, step.state_view(), step.totals());
      step.update(optimizer);
    };
    train(1);
    LaunchedKernels real;
    train(2);
    std::map<std::string, index_t> planned;
    const Tally tally = plan_step(state, shape).tally;
    for (const KernelTally& kernel : tally.kernels()) {
      planned[kernel.label] += kernel.calls;
    }
    planned.erase("trireme::kernels::gemm");
    planned.erase("trireme::copy");
    real.calls.erase("trireme::copy");
    EXPECT_EQ(real.calls, planned);
  }
}

}  // namespace
}  // namespace trireme::step
