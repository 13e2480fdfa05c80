// From the deck's section to the architecture: no key is lost on the way.
#include "model/architecture.hpp"

#include <gtest/gtest.h>

#include "config/deck.hpp"

namespace trireme::model {
namespace {

TEST(ArchitectureOf, HasEveryKeyOfTheSection) {
  const Architecture a = architecture_of({.kind = ModelKind::t5,
                                          .layers = 3,
                                          .hidden = 24,
                                          .heads = 6,
                                          .head_size = 5,
                                          .ffn_hidden = 40,
                                          .sequence = 7,
                                          .vocab = 11,
                                          .dropout = 0.2,
                                          .attention_dropout = 0.3,
                                          .init_std = 0.4,
                                          .kv_heads = 2,
                                          .norm = Norm::rmsnorm,
                                          .activation = Activation::swiglu,
                                          .position = Position::rope,
                                          .bias = false,
                                          .tie_embeddings = false});
  EXPECT_EQ(a.kind, ModelKind::t5);
  EXPECT_EQ(a.layers, 3);
  EXPECT_EQ(a.hidden, 24);
  EXPECT_EQ(a.heads, 6);
  EXPECT_EQ(a.kv_heads, 2);
  EXPECT_EQ(a.head_elements(), 5);
  EXPECT_EQ(a.ffn_hidden, 40);
  EXPECT_EQ(a.sequence, 7);
  EXPECT_EQ(a.vocabulary, 11);
  EXPECT_EQ(a.dropout, 0.2);
  EXPECT_EQ(a.attention_dropout, 0.3);
  EXPECT_EQ(a.init_std, 0.4);
  EXPECT_EQ(a.norm, Norm::rmsnorm);
  EXPECT_EQ(a.activation, Activation::swiglu);
  EXPECT_EQ(a.position, Position::rope);
  EXPECT_FALSE(a.bias);
  EXPECT_FALSE(a.tie_embeddings);
}

}  // namespace
}  // namespace trireme::model
