// tests/layouts/narrow_run.hpp — trainings that compute in 16 bits, in rows of the table
// of layouts, and how far they are from one rank.
#ifndef TRIREME_TESTS_LAYOUTS_NARROW_RUN_HPP_
#define TRIREME_TESTS_LAYOUTS_NARROW_RUN_HPP_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/self_communicator.hpp"
#include "layouts/layout_matrix.hpp"
#include "layouts/narrow_tolerances.hpp"
#include "model/losses.hpp"
#include "optim/loss_scale.hpp"
#include "step/replica.hpp"
#include "support/kept_grids.hpp"

namespace trireme::test {

// Of a GPT's loss: what docs/precision.md promises.
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
        grid_(KeptGrids::grid(world, layout.grid())),
        replica_(step::make_replica(types.compute, own_groups(*grid_),
                                    matrix_blueprint(layout.size),
                                    sharing_of(layout, types))),
        samples_(replica_->part().blueprint, layout.micro()) {
    replica_->begin_training(Exec(), layout.step_shape(),
                             {.adamw = {.weight_decay = 0.1}, .clip_norm = 1.0});
    replica_->initialize(4321);
  }
  optim::StepReport step(int number, double loss_scale = 1.0, bool overflows = false) {
    start(number, number + 1, loss_scale, overflows);
    return read_report();
  }
  // A step with the samples of this number, which is to make this update: steps whose
  // reports are not read yet are taken to make theirs.
  void start(int number, std::int64_t update, const optim::LossScale& loss_scale,
             bool overflows = false) {
    constexpr double kRate = 1e-3;
    const index_t samples = layout_.size.samples, share = samples / layout_.data;
    const index_t first = number * samples + grid_->coordinates().data * share;
    replica_->start(
        {.number = update,
         .learning_rate = kRate,
         .learning_rate_before = kRate,
         .loss_scale = loss_scale,
         .microbatches = layout_.microbatches,
         .fetch = [&](int m) { return samples_.batch(first + m * layout_.micro()); },
         .sum =
             [&](const auto& mask) {
               return samples_.counted(mask, first, first + share);
             },
         .overflows = overflows});
  }
  optim::StepReport read_report() { return replica_->read_report(); }

 private:
  Layout layout_;
  std::shared_ptr<const comm::RankGrid> grid_;
  std::unique_ptr<step::Replica> replica_;
  MatrixSamples samples_;
};

using NarrowReports = std::vector<optim::StepReport>;
using TakeSteps = std::function<NarrowReports(NarrowRun&, const MatrixSize&)>;

// So many steps at a constant scale.
inline TakeSteps steps_at(double scale, int steps) {
  return [=](NarrowRun& run, const MatrixSize&) {
    NarrowReports reports;
    for (int step = 0; step < steps; ++step) reports.push_back(run.step(step, scale));
    return reports;
  };
}

// What one rank reports of these steps.
inline NarrowReports run_alone(const MatrixSize& size, const Types& types,
                               const TakeSteps& steps) {
  Layout one;
  one.size = size;
  NarrowRun run(comm::make_self_communicator("world"), one, types);
  return steps(run, size);
}
// Of all that layouts train, each from one of the ranks.
inline std::map<MatrixSize, NarrowReports> run_alone(comm::Communicator& world,
                                                     const std::vector<Layout>& layouts,
                                                     const Types& types,
                                                     const TakeSteps& steps) {
  using Report = optim::StepReport;
  static_assert(std::is_trivially_copyable_v<Report>);
  std::map<MatrixSize, NarrowReports> all;
  for (const auto& [size, bytes] :
       told_of_sizes(world, layouts, [&](const MatrixSize& of) {
         const NarrowReports reports = run_alone(of, types, steps);
         return std::string(reinterpret_cast<const char*>(reports.data()),
                            reports.size() * sizeof(Report));
       })) {
    all[size].resize(bytes.size() / sizeof(Report));
    std::memcpy(all[size].data(), bytes.data(), bytes.size());
  }
  return all;
}

// The loss of a step, and that of each objective where there are several.
inline std::map<std::string, double> all_losses(const model::Blueprint& blueprint,
                                                const optim::StepReport& report) {
  const model::Losses losses = model::losses_of(blueprint.objectives, report.losses);
  std::map<std::string, double> all(losses.parts.begin(), losses.parts.end());
  all["all"] = losses.total;
  return all;
}

// How far the furthest layout was from one rank, relative: what tolerances are taken
// from.
class FurthestApart {
 public:
  // One step; a failure is the test's.
  void expect_near(const model::Blueprint& blueprint, const optim::StepReport& got,
                   const optim::StepReport& want, const NarrowTolerances& most) {
    const auto losses = all_losses(blueprint, got);
    for (const auto& [name, loss] : all_losses(blueprint, want)) {
      SCOPED_TRACE("loss of " + name);
      if (name == "segment pairs") {
        expect_near(losses.at(name), loss, most.pairs, pairs_);
      } else {
        expect_near(losses.at(name), loss, most.loss, loss_);
      }
    }
    SCOPED_TRACE("norm");
    expect_near(got.grad_norm, want.grad_norm, most.norm, norm_);
  }
  void print(comm::Communicator& world, const std::string& what) const {
    const auto most = [&](double mine) { return std::ranges::max(world.gather(mine)); };
    const double loss = most(loss_), pairs = most(pairs_), norm = most(norm_);
    if (world.rank() != 0) return;
    std::printf("%s: furthest apart: losses %.2g, that of pairs %.2g, norms %.2g\n",
                what.c_str(), loss, pairs, norm);
  }

 private:
  static void expect_near(double got, double want, double most, double& furthest) {
    const double apart = std::abs(got - want) / want;
    EXPECT_LE(apart, most);
    furthest = std::max(furthest, apart);
  }

  double loss_ = 0.0, pairs_ = 0.0, norm_ = 0.0;
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_LAYOUTS_NARROW_RUN_HPP_
