// BERT and T5 go on as GPT does: in the same layout to the bit, in another one with the
// losses of one rank that never stopped.
//
// What is met every day: four layouts, each with another degree of ZeRO or none and with
// other values of the other axes, and every pair of them in one direction; and one rank
// with stages that no other layout has. The other directions, eight ranks, and all of the
// kinds' variants, of which a few restarts are here: tests/long/test_kind_restarts.cpp.
#include <array>
#include <string>

#include "restart/kind_runs.hpp"

namespace trireme::test {
namespace {

class KindsRestart : public KindRuns {
 protected:
  void expect_restarts() {
    constexpr std::array<const char*, 4> kLayouts = {"tensor", "chunks", "zero3",
                                                     "zero2"};
    train_whole("one");
    for (const char* layout : kLayouts) {
      train_whole(layout);
      expect_same_again(layout);
    }
    for (std::size_t a = 0; a < kLayouts.size(); ++a) {
      for (std::size_t b = a + 1; b < kLayouts.size(); ++b) {
        // Each is the first of some and the second of others.
        const bool is_forward = (a + b) % 2 == 1;
        expect_restart(kLayouts[is_forward ? a : b], kLayouts[is_forward ? b : a]);
      }
    }
    const std::string stages = go_on("one", kEvery, "stages");
    expect_losses_of("one", stages, kEvery);
    expect_losses_of("one", go_on(stages, 2 * kEvery, "one"), 2 * kEvery);
  }
  void expect_restart(const std::string& from, const std::string& to) const {
    expect_losses_of("one", go_on(from, kEvery, to), kEvery);
  }
  // The one restart of a variant.
  void expect_one_restart(const std::string& from, const std::string& to) const {
    train_whole("one");
    train_whole(from);
    expect_restart(from, to);
  }
  // The first scale overflows before the save and the next scales behind it: what is
  // saved is not the deck's scale, and the count of steps or of overflows has begun.
  void expect_restart_in_fp16(const RestartedModel& of, double first_scale) {
    prepare(of, {"precision.compute=fp16",
                 fmt::format("precision.loss_scale.initial={}", first_scale),
                 "precision.loss_scale.window=2"});
    train_whole("zero3");
    const ckpt::TrainingState saved = state_after("zero3", kEvery);
    EXPECT_GT(saved.skipped_steps, 0);
    EXPECT_LT(saved.skipped_steps, kEvery);
    EXPECT_LT(saved.loss_scale, first_scale);
    const std::string moved = go_on("zero3", kEvery, "tensor");
    expect_losses_of("zero3", moved, kEvery, kFp16Tolerance);
    const ckpt::TrainingState want = state_after("zero3", kSteps),
                              got = state_after(moved, kSteps);
    EXPECT_GT(want.skipped_steps, saved.skipped_steps);
    EXPECT_EQ(got.skipped_steps, want.skipped_steps);
    EXPECT_EQ(got.loss_scale, want.loss_scale);
    EXPECT_EQ(got.loss_scale_steps, want.loss_scale_steps);
    EXPECT_EQ(got.numbers, want.numbers);
  }
  ckpt::TrainingState state_after(const std::string& run, int step) const {
    return ckpt::CheckpointReader(scratch_ / checkpoint_of(run, step)).state();
  }
  // Of 16 bits the run that never changed its layout is the measure.
  void expect_restart_in_bf16(const RestartedModel& of, const std::string& from,
                              const std::string& to) {
    prepare(of, {"precision.compute=bf16"});
    train_whole(from);
    expect_losses_of(from, go_on(from, kEvery, to), kEvery, kBf16Tolerance);
  }
};

TEST_F(KindsRestart, OfBert) {
  prepare(kBert);
  expect_restarts();
}

TEST_F(KindsRestart, OfBertWithNormsBehindItsSums) {
  prepare(kPostNormBert);
  expect_one_restart("zero3", "chunks");
}

TEST_F(KindsRestart, OfPackedBertWithoutPairs) {
  prepare(kPackedBert);
  expect_one_restart("zero2", "tensor");
}

TEST_F(KindsRestart, OfBertInBf16) {
  expect_restart_in_bf16(kBert, "zero3", "tensor");
}

TEST_F(KindsRestart, OfBertInFp16) {
  expect_restart_in_fp16(kBert, 0x1p18);
}

TEST_F(KindsRestart, OfT5) {
  if (!kT5.can_be_trained()) GTEST_SKIP() << "a build without SentencePiece";
  prepare(kT5);
  expect_restarts();
}

TEST_F(KindsRestart, OfT5WithItsOwnHead) {
  if (!kT5.can_be_trained()) GTEST_SKIP() << "a build without SentencePiece";
  prepare(kT5WithItsOwnHead);
  expect_one_restart("tensor", "zero3");
}

TEST_F(KindsRestart, OfT5InBf16) {
  if (!kT5.can_be_trained()) GTEST_SKIP() << "a build without SentencePiece";
  expect_restart_in_bf16(kT5, "tensor", "zero3");
}

TEST_F(KindsRestart, OfT5InFp16) {
  if (!kT5.can_be_trained()) GTEST_SKIP() << "a build without SentencePiece";
  expect_restart_in_fp16(kT5, 0x1p20);
}

}  // namespace
}  // namespace trireme::test
