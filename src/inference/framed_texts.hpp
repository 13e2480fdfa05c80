// inference/framed_texts.hpp — texts as a BERT reads them, [CLS] text [SEP], and
// micro-batches of them.
#ifndef TRIREME_INFERENCE_FRAMED_TEXTS_HPP_
#define TRIREME_INFERENCE_FRAMED_TEXTS_HPP_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "data/tokenizer.hpp"
#include "inference/model_loader.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::inference {

class TextFramer {
 public:
  // `model` must outlive it. InputError: no tokenizer, or one without [CLS] and [SEP].
  explicit TextFramer(const LoadedModel& model);

  // The whole text, however long. InputError where it has a token that the model has not.
  std::vector<std::int32_t> frame(std::string_view text);
  // Cuts a framed text to as many tokens, the last of which is [SEP] again; whether it
  // was longer.
  bool cut(std::vector<std::int32_t>& framed, index_t longest) const;

  std::uint64_t replaced_sequences() const { return encoder_->replaced_sequences(); }
  // Of what stands behind a text in a micro-batch.
  std::int32_t padding() const { return padding_; }

 private:
  std::int32_t special(data::Special special, const char* name) const;

  const LoadedModel& model_;
  std::optional<data::Encoder> encoder_;
  std::int32_t classify_ = 0, separate_ = 0, padding_ = 0;
};

// The fields of a micro-batch, which it has memory for.
class FramedBatch {
 public:
  // Of so many texts at a time at most.
  FramedBatch(const BatchSpec& spec, index_t samples, std::int32_t padding);

  // Of these framed texts; `picked`, where it is given, are positions of the one text
  // whose words are asked for.
  void fill(const std::vector<const std::vector<std::int32_t>*>& texts,
            const std::vector<std::int32_t>& picked = {});
  const HostBatch& batch() const { return batch_; }
  index_t samples() const { return samples_; }
  // Of its streams: as long as the longest text, and as many positions as are picked.
  const std::vector<index_t>& sequences() const { return sequences_; }

 private:
  void fill_field(const FieldSpec& field,
                  const std::vector<const std::vector<std::int32_t>*>& texts,
                  const std::vector<std::int32_t>& picked, std::int32_t* values) const;

  BatchSpec spec_;
  std::int32_t padding_;
  std::vector<std::vector<std::int32_t>> memory_;  // of each field
  HostBatch batch_;
  index_t samples_ = 0;
  std::vector<index_t> sequences_;
};

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_FRAMED_TEXTS_HPP_
