// tests/layouts/narrow_run.hpp — trainings that compute in 16 bits, in rows of the table
// of layouts, and how far they may be from one rank.
#ifndef TRIREME_TESTS_LAYOUTS_NARROW_RUN_HPP_
#define TRIREME_TESTS_LAYOUTS_NARROW_RUN_HPP_

#include <memory>
#include <vector>

#include "comm/self_communicator.hpp"
#include "layouts/layout_matrix.hpp"
#include "step/replica.hpp"

namespace trireme::test {

// Of the loss: what docs/precision.md promises.
inline constexpr double kNarrowTolerance = 4e-3;

// What a model computes in, and whether its gradients are of that type, too.
struct Types {
  DType compute;
  bool narrow_gradients = false;
};

inline step::Sharing sharing_of(const Layout& layout, const Types& types) {
  step::Sharing sharing = layout.sharing();
  sharing.narrow_gradients = types.narrow_gradients;
  return sharing;
}

// A training in one layout and type.
class NarrowRun {
 public:
  NarrowRun(const std::shared_ptr<comm::Communicator>& world, const Layout& layout,
            const Types& types)
      : layout_(layout),
        grid_(world, layout.grid()),
        replica_(step::make_replica(types.compute, grid_.groups(),
                                    matrix_blueprint(layout.size),
                                    sharing_of(layout, types))),
        samples_(replica_->part().blueprint, layout.micro()) {
    replica_->begin_training(Exec(), layout.step_shape(),
                             {.adamw = {.weight_decay = 0.1}, .clip_norm = 1.0});
    replica_->initialize(4321);
  }
  optim::StepReport step(int number, double loss_scale = 1.0, bool overflows = false) {
    const index_t samples = layout_.size.samples, share = samples / layout_.data;
    const index_t first = number * samples + grid_.coordinates().data * share;
    return replica_->step(
        {.number = number + 1,
         .learning_rate = 1e-3,
         .loss_scale = loss_scale,
         .microbatches = layout_.microbatches,
         .fetch = [&](int m) { return samples_.batch(first + m * layout_.micro()); },
         .sum =
             [&](const auto& mask) {
               return samples_.counted(mask, first, first + share);
             },
         .overflows = overflows});
  }

 private:
  Layout layout_;
  comm::RankGrid grid_;
  std::unique_ptr<step::Replica> replica_;
  MatrixSamples samples_;
};

// The same on one rank: the reports of the first steps.
inline std::vector<optim::StepReport> run_alone(const MatrixSize& size,
                                                const Types& types, int steps,
                                                double scale = 1.0) {
  Layout one;
  one.size = size;
  NarrowRun run(comm::make_self_communicator("world"), one, types);
  std::vector<optim::StepReport> reports;
  for (int step = 0; step < steps; ++step) reports.push_back(run.step(step, scale));
  return reports;
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_LAYOUTS_NARROW_RUN_HPP_
