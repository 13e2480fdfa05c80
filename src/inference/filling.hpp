// inference/filling.hpp — the most probable words for what is masked in a text, by a
// BERT.
#ifndef TRIREME_INFERENCE_FILLING_HPP_
#define TRIREME_INFERENCE_FILLING_HPP_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "data/tokenizer.hpp"
#include "inference/framed_texts.hpp"
#include "inference/model_loader.hpp"
#include "step/output_pass.hpp"

namespace trireme::inference {

struct FilledWord {
  data::TokenId id = 0;
  std::string text;  // "##ing" for one that goes on with the word before it
  double probability = 0.0;
};

// One of the masks of a text.
struct FilledMask {
  index_t position = 0;           // among the text's tokens, of which [CLS] is the first
  std::vector<FilledWord> words;  // the most probable first
};

class Filler {
 public:
  // `model`, loaded for its words, must outlive it. InputError: no tokenizer, or one
  // without [CLS], [SEP] and [MASK].
  explicit Filler(const LoadedModel& model);

  // As many words for each mask, fewer where the vocabulary has fewer. InputError: no
  // mask in the text, more tokens than the model reads, weights that give no numbers.
  std::vector<FilledMask> fill(std::string_view text, index_t top);

 private:
  std::vector<FilledWord> words_of(std::span<const step::OutputNumber> logits,
                                   index_t top) const;
  std::string spelled(data::TokenId id) const;

  const LoadedModel& model_;
  TextFramer framer_;
  data::TokenId mask_ = 0;
  std::unique_ptr<step::OutputPass> pass_;
  index_t most_masks_;  // that go through the model together
  FramedBatch batch_;
};

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_FILLING_HPP_
