// inference/word_probabilities.hpp — how probable words are, by the logits of a position.
#ifndef TRIREME_INFERENCE_WORD_PROBABILITIES_HPP_
#define TRIREME_INFERENCE_WORD_PROBABILITIES_HPP_

#include <span>
#include <vector>

#include "base/types.hpp"
#include "data/tokenizer.hpp"

namespace trireme::inference {

class WordProbabilities {
 public:
  // Softmax over all of `logits`, which must outlive it. InputError where they are no
  // numbers.
  explicit WordProbabilities(std::span<const float> logits);

  double of(data::TokenId id) const { return weight(id) / sum_; }
  // As many, or all there are, the most probable first; of equal ones the lower id.
  std::vector<data::TokenId> most_probable(index_t count) const;

 private:
  double weight(data::TokenId id) const;

  std::span<const float> logits_;
  double largest_ = 0.0, sum_ = 0.0;
};

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_WORD_PROBABILITIES_HPP_
