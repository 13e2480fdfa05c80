// BERT and T5 go on from layout to layout: every pair of a value of an axis that is saved
// and a value of that or of another axis that goes on, in fp32; and every pair of which
// one is a type of 16 bits. The chains take the variants of the kind in turn. Some of
// each day, and that the pairs are all: tests/restart/test_kinds.cpp.
#include <cstddef>
#include <set>
#include <vector>

#include "restart/kind_chains.hpp"

namespace trireme::test {
namespace {

using config::ModelKind;

class KindRestarts : public KindChains {
 protected:
  void expect_chains(const std::vector<RestartedModel>& variants,
                     const std::vector<RestartChain>& chains) {
    ASSERT_GE(chains.size(), variants.size());
    for (std::size_t i = 0; i < chains.size(); ++i) {
      std::set<std::size_t> every_second;
      for (std::size_t start = 1; start < chains[i].size(); start += 2) {
        every_second.insert(start);
      }
      expect_chain(variants[i % variants.size()], chains[i], every_second);
    }
  }
  const std::vector<RestartedModel> berts_ = {kBert, kPostNormBert, kPackedBert},
                                    t5s_ = {kT5, kT5WithItsOwnHead};
};

TEST_F(KindRestarts, OfBert) {
  expect_chains(berts_, all_chains(ModelKind::bert).wide);
}
TEST_F(KindRestarts, OfBertIn16Bits) {
  expect_chains(berts_, all_chains(ModelKind::bert).mixed);
}
TEST_F(KindRestarts, OfT5) {
  if (!kT5.can_be_trained()) GTEST_SKIP() << "a build without SentencePiece";
  expect_chains(t5s_, all_chains(ModelKind::t5).wide);
}
TEST_F(KindRestarts, OfT5In16Bits) {
  if (!kT5.can_be_trained()) GTEST_SKIP() << "a build without SentencePiece";
  expect_chains(t5s_, all_chains(ModelKind::t5).mixed);
}

}  // namespace
}  // namespace trireme::test
