// Restarts of every BERT and T5 from each layout into each, in both directions and into
// itself, so that every value of an axis is read where every other was saved; in fp32,
// and in bf16 of one of each kind. Some of each day: tests/restart/test_kinds.cpp.
#include <string>
#include <vector>

#include "restart/kind_runs.hpp"

namespace trireme::test {
namespace {

class KindRestarts : public KindRuns {
 protected:
  void expect_all_restarts(double tolerance) const {
    const std::vector<std::string> layouts = {"one",   "tensor", "chunks", "zero2",
                                              "zero3", "stages", "eight"};
    for (const std::string& layout : layouts) {
      train_whole(layout);
      if (layout != "one") expect_losses_of("one", layout, 0, tolerance);
    }
    for (const std::string& from : layouts) {
      expect_same_again(from);
      for (const std::string& to : layouts) {
        if (from == to) continue;
        expect_losses_of("one", go_on(from, kEvery, to), kEvery, tolerance);
      }
    }
  }
};

class KindRestartsOf : public KindRestarts,
                       public ::testing::WithParamInterface<RestartedModel> {};

TEST_P(KindRestartsOf, GoOnInEveryLayout) {
  if (!GetParam().can_be_trained()) GTEST_SKIP() << "a build without SentencePiece";
  prepare(GetParam());
  expect_all_restarts(kTolerance);
}
INSTANTIATE_TEST_SUITE_P(KindRestarts, KindRestartsOf,
                         ::testing::Values(kBert, kPostNormBert, kPackedBert, kT5,
                                           kT5WithItsOwnHead),
                         [](const auto& info) { return info.param.name; });

TEST_F(KindRestarts, OfBertInBf16) {
  prepare(kBert, {"precision.compute=bf16"});
  expect_all_restarts(kBf16Tolerance);
}
TEST_F(KindRestarts, OfT5InBf16) {
  if (!kT5.can_be_trained()) GTEST_SKIP() << "a build without SentencePiece";
  prepare(kT5WithItsOwnHead, {"precision.compute=bf16"});
  expect_all_restarts(kBf16Tolerance);
}

}  // namespace
}  // namespace trireme::test
