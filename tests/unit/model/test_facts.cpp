// What reports say of a GPT, in the words that they have had from the beginning.
#include "model/facts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::model {
namespace {

using ::testing::ElementsAre;

constexpr Architecture kSmall = {.layers = 12,
                                 .hidden = 768,
                                 .heads = 12,
                                 .kv_heads = 12,
                                 .head_size = 64,
                                 .ffn_hidden = 3072,
                                 .sequence = 1024,
                                 .vocab = 50257};

TEST(Facts, OfAGpt) {
  using Value = Facts::Value;
  const Facts facts = facts_of(kSmall);
  EXPECT_THAT(facts.line, ElementsAre("12 layers", "hidden 768", "12 heads",
                                      "sequence 1024", "vocabulary 50257"));
  EXPECT_THAT(facts.table,
              ElementsAre(Facts::Row{"layers x hidden x heads", "12 x 768 x 12"},
                          Facts::Row{"sequence, vocabulary", "1024, 50,257"}));
  EXPECT_THAT(facts.values,
              ElementsAre(Value{"layers", 12}, Value{"hidden", 768}, Value{"heads", 12},
                          Value{"kv_heads", 12}, Value{"head_size", 64},
                          Value{"ffn_hidden", 3072}, Value{"sequence", 1024},
                          Value{"vocabulary", 50257}));
}

TEST(Facts, OfHeadsThatHaveASizeOfTheirOwn) {
  Architecture other = kSmall;
  other.head_size = 96;
  const Facts facts = facts_of(other);
  EXPECT_EQ(facts.line.at(2), "12 heads of 96");
  EXPECT_EQ(facts.table.at(1), (Facts::Row{"head size", "96, of 1152 together"}));
}

}  // namespace
}  // namespace trireme::model
