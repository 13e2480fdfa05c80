// How probable words are by their logits: a softmax, in the order of ids where words are
// equal; logits that are no numbers are refused.
#include "inference/word_probabilities.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/error.hpp"

namespace trireme::inference {
namespace {

TEST(WordProbabilities, AreASoftmax) {
  const std::vector<float> logits = {900.0f, 901.0f, 899.0f, 901.0f};
  const WordProbabilities words(logits);
  const double sum = 2.0 + std::exp(-1.0) + std::exp(-2.0);
  EXPECT_DOUBLE_EQ(words.of(0), std::exp(-1.0) / sum);
  EXPECT_DOUBLE_EQ(words.of(1), 1.0 / sum);
  EXPECT_DOUBLE_EQ(words.of(2), std::exp(-2.0) / sum);
  EXPECT_EQ(words.of(3), words.of(1));
}

TEST(WordProbabilities, TheMostProbableComeFirst) {
  const std::vector<float> logits = {-1.0f, 3.0f, 2.0f, 3.0f, 2.5f};
  const WordProbabilities words(logits);
  using Ids = std::vector<data::TokenId>;
  EXPECT_EQ(words.most_probable(1), Ids{1});
  EXPECT_EQ(words.most_probable(3), (Ids{1, 3, 4}));
  EXPECT_EQ(words.most_probable(9), (Ids{1, 3, 4, 2, 0}));
}

TEST(WordProbabilities, AreNumbers) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    for (const std::vector<float>& logits :
         {std::vector<float>{bad, 1.0f}, std::vector<float>{1.0f, bad}}) {
      EXPECT_THROW(WordProbabilities{logits}, InputError);
    }
  }
}

}  // namespace
}  // namespace trireme::inference
