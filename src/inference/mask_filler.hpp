// inference/mask_filler.hpp — the most probable words for each [MASK] of a text, by a
// model that reads it in both directions.
#ifndef TRIREME_INFERENCE_MASK_FILLER_HPP_
#define TRIREME_INFERENCE_MASK_FILLER_HPP_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "data/tokenizer.hpp"
#include "inference/filling.hpp"
#include "inference/framed_texts.hpp"
#include "inference/model_loader.hpp"
#include "step/output_pass.hpp"

namespace trireme::inference {

class MaskFiller final : public Filler {
 public:
  // InputError: no tokenizer, or one without [CLS], [SEP] and [MASK].
  MaskFiller(const LoadedModel& model, index_t top);

  FilledText fill(std::string_view text) override;

 private:
  std::vector<std::int32_t> masks_in(std::string_view text,
                                     const std::vector<std::int32_t>& framed) const;
  std::vector<Filling> words_of(std::span<const step::OutputNumber> logits) const;
  // "##ing" for one that goes on with the word before it.
  std::string spelled(data::TokenId id) const;

  const LoadedModel& model_;
  TextFramer framer_;
  data::TokenId mask_ = 0;
  std::unique_ptr<step::OutputPass> pass_;
  index_t most_masks_;  // that go through the model together
  FramedBatch batch_;
};

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_MASK_FILLER_HPP_
