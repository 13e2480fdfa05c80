// Steps that are launched before the report of the one before is read, as on a GPU: the
// device goes on by itself, to the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "base/error.hpp"
#include "base/late_queue.hpp"
#include "ckpt/shard_writer.hpp"
#include "comm/process_groups.hpp"
#include "model/blueprint.hpp"
#include "step/replica.hpp"

namespace trireme::step {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr index_t kRows = 5;
constexpr int kWords = 17;

// A training of a tiny model that overflows in some steps.
class LateSteps : public ::testing::Test {
 protected:
  struct Run {
    Run(DType type, bool late, const optim::LossScale& scale)
        : replica(make_replica(type, comm::make_groups_of_one(),
                               model::make_blueprint({.layers = 1,
                                                      .hidden = 8,
                                                      .heads = 2,
                                                      .kv_heads = 2,
                                                      .ffn_hidden = 16,
                                                      .sequence = kRows,
                                                      .vocab = kWords}))),
          loss_scale(scale) {
      if (late) make_late(exec);
      replica->begin_training(exec, {.micro = 1, .sequence = kRows, .microbatches = 2},
                              {.clip_norm = 1.0});
      replica->initialize(3);
    }
    // `update`: if all unread steps change weights.
    void start(int step, std::int64_t update, bool overflows) {
      const auto rate = [](std::int64_t of) { return 1e-2 / static_cast<double>(of); };
      replica->start({.number = update,
                      .learning_rate = rate(update),
                      .learning_rate_before = rate(std::max<std::int64_t>(update - 1, 1)),
                      .loss_scale = loss_scale,
                      .microbatches = 2,
                      .fetch = [&](int m) { return batch(2 * step + m); },
                      .sum = [](const auto&) { return 2.0 * kRows; },
                      .overflows = overflows});
    }
    optim::StepReport read() {
      const optim::StepReport report = replica->read_report();
      loss_scale.update(!report.is_finite());
      return report;
    }
    HostBatch batch(int sample) {
      for (int i = 0; i < kRows; ++i) {
        tokens[i] = (7 * sample + 3 * i) % kWords;
        labels[i] = (7 * sample + 3 * i + 3) % kWords;
        positions[i] = i;
        mask[i] = 1.0f;
      }
      return {{tokens, positions, labels, mask}, static_cast<std::uint64_t>(sample)};
    }
    std::vector<float> state() {
      ckpt::Snapshot snapshot;
      snapshot.take(exec, replica->parts());
      snapshot.taken().wait();
      std::vector<float> values;
      for (const ckpt::TensorPart& part : snapshot.parts()) {
        const auto* const begin = reinterpret_cast<const float*>(part.data);
        for (const ckpt::Region& region : part.regions) {
          const float* const at = begin + region.local_offset;
          values.insert(values.end(), at, at + region.global.elements());
        }
      }
      return values;
    }

    Exec exec;
    std::unique_ptr<Replica> replica;
    optim::LossScale loss_scale;
    std::int32_t tokens[kRows], labels[kRows], positions[kRows];
    float mask[kRows];
  };

  struct Outcome {
    std::vector<optim::StepReport> reports;
    std::vector<float> state;
  };
  // `behind`: how many reports are left unread while the next step is launched.
  static Outcome train(DType type, const optim::LossScale& scale, int behind,
                       const std::set<int>& overflows) {
    Run run(type, behind > 0, scale);
    EXPECT_EQ(run.replica->is_asynchronous(), behind > 0 || !kHostExecution);
    Outcome outcome;
    std::int64_t updates = 0;  // that are known to be made
    const auto read = [&] {
      outcome.reports.push_back(run.read());
      updates += outcome.reports.back().is_finite() ? 1 : 0;
    };
    for (int step = 0; step < 12; ++step) {
      const int unread = step - static_cast<int>(outcome.reports.size());
      run.start(step, updates + unread + 1, overflows.contains(step));
      while (step + 1 - static_cast<int>(outcome.reports.size()) > behind) read();
    }
    while (outcome.reports.size() < 12) read();
    outcome.state = run.state();
    return outcome;
  }
  static void expect_same(const Outcome& one, const Outcome& other) {
    for (std::size_t i = 0; i < one.reports.size(); ++i) {
      EXPECT_EQ(other.reports[i].losses[0].sum, one.reports[i].losses[0].sum) << i;
      EXPECT_EQ(other.reports[i].update, one.reports[i].update) << i;
      EXPECT_EQ(other.reports[i].loss_scale, one.reports[i].loss_scale) << i;
      EXPECT_EQ(other.reports[i].is_finite(), one.reports[i].is_finite()) << i;
    }
    ASSERT_EQ(other.state.size(), one.state.size());
    EXPECT_EQ(std::memcmp(other.state.data(), one.state.data(),
                          one.state.size() * sizeof(float)),
              0);
  }
};

TEST_F(LateSteps, HaveTheSameBits) {
  expect_same(train(DType::float32, 1.0, 0, {}), train(DType::float32, 1.0, 1, {}));
}

TEST_F(LateSteps, KnowOfTheStepsThatWereLeftOut) {
  const optim::LossScale scale({.initial = 64.0, .window = 3, .hysteresis = 2});
  const std::set<int> overflows = {2, 3, 7};
  const Outcome at_once = train(DType::float16, scale, 0, overflows);
  const Outcome late = train(DType::float16, scale, 1, overflows);
  expect_same(at_once, late);
  // Both overflows in a row count until the scale is halved; it grows again.
  const std::vector<double> scales = {64, 64, 64, 64, 32, 32, 32, 64, 64, 64, 64, 128};
  const std::vector<std::int64_t> updates = {1, 2, 3, 3, 3, 4, 5, 6, 6, 7, 8, 9};
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(late.reports[i].loss_scale, scales[i]) << i;
    EXPECT_EQ(late.reports[i].update, updates[i]) << i;
  }
}

// Where no step can be left out, one that is not finite is the last that is looked at:
// those behind it change nothing until the host knows.
TEST_F(LateSteps, ChangeNothingBehindTheLast) {
  Run run(DType::float32, true, 1.0);
  run.start(0, 1, false);
  EXPECT_TRUE(run.read().is_finite());
  const std::vector<float> before = run.state();
  run.start(1, 2, true);
  run.start(2, 3, false);
  EXPECT_FALSE(run.read().is_finite());
  const optim::StepReport behind = run.read();
  EXPECT_TRUE(behind.is_finite());
  EXPECT_EQ(behind.update, 2);
  EXPECT_EQ(run.state(), before);
  // It may go on, should somebody want to.
  run.loss_scale = 1.0;
  run.start(3, 2, false);
  EXPECT_TRUE(run.read().is_finite());
  EXPECT_NE(run.state(), before);
}

TEST_F(LateSteps, LoseNoReport) {
  Run run(DType::float32, true, 1.0);
  EXPECT_THAT([&] { run.read(); },
              ThrowsMessage<Error>(HasSubstr("all step reports are read")));
  for (int step = 0; step < Replica::kReports; ++step) run.start(step, step + 1, false);
  EXPECT_THAT([&] { run.start(2, 3, false); },
              ThrowsMessage<Error>(HasSubstr("2 step reports are not read")));
}

// The update that writes what is being copied waits for the copy.
TEST_F(LateSteps, WaitForACopyOfTheState) {
  Run run(DType::float32, true, 1.0);
  const std::vector<float> before = run.state();
  ckpt::Snapshot snapshot;
  snapshot.take(run.exec, run.replica->parts());
  run.replica->start({.number = 1,
                      .learning_rate = 1e-2,
                      .microbatches = 2,
                      .fetch = [&](int m) { return run.batch(m); },
                      .sum = [](const auto&) { return 2.0 * kRows; },
                      .state_copied = &snapshot.taken()});
  run.read();
  snapshot.taken().wait();
  std::vector<float> copied(before.size());
  std::memcpy(copied.data(), snapshot.parts().front().data,
              copied.size() * sizeof(float));
  EXPECT_EQ(copied, before);
  EXPECT_NE(run.state(), before);
}

}  // namespace
}  // namespace trireme::step
