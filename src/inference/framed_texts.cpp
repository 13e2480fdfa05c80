// inference/framed_texts.cpp — see framed_texts.hpp.
//
// Which fields there are is the model's affair: each is filled by what it holds. Of one
// text all tokens are of type 0, as no second segment is there.
#include "inference/framed_texts.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "data/token_model.hpp"

namespace trireme::inference {

TextFramer::TextFramer(const LoadedModel& model) : model_(model) {
  encoder_.emplace(model.tokenizer_of_texts());
  classify_ = special(data::Special::classify, "[CLS]");
  separate_ = special(data::Special::separate, "[SEP]");
  const auto padding = model.tokenizer->find_special(data::Special::padding);
  padding_ = padding ? static_cast<std::int32_t>(*padding) : separate_;
}

std::int32_t TextFramer::special(data::Special special, const char* name) const {
  const auto id = model_.tokenizer->find_special(special);
  TRIREME_REQUIRE_INPUT(id && *id < model_.deck.model.vocab,
                        "the tokenizer of checkpoint '{}' ({}) has no {} among the "
                        "model's {}, and BERT reads its texts between [CLS] and "
                        "[SEP]: convert the model with its own tokenizer",
                        model_.path.string(), model_.tokenizer->model().description(),
                        name, format_plural(model_.deck.model.vocab, "word"));
  return static_cast<std::int32_t>(*id);
}

std::vector<std::int32_t> TextFramer::frame(std::string_view text) {
  std::vector<data::TokenId> ids;
  encoder_->encode(text, ids);
  std::vector<std::int32_t> framed = {classify_};
  for (const data::TokenId id : ids) {
    model_.require_known(id);
    framed.push_back(static_cast<std::int32_t>(id));
  }
  framed.push_back(separate_);
  return framed;
}

bool TextFramer::cut(std::vector<std::int32_t>& framed, index_t longest) const {
  if (std::ssize(framed) <= longest) return false;
  framed.resize(extent(longest));
  framed.back() = separate_;
  return true;
}

FramedBatch::FramedBatch(const BatchSpec& spec, index_t samples, std::int32_t padding)
    : spec_(spec), padding_(padding) {
  for (const FieldSpec& field : spec.fields) {
    memory_.emplace_back(extent(spec.elements(field, samples)));
  }
}

void FramedBatch::fill(const std::vector<const std::vector<std::int32_t>*>& texts,
                       const std::vector<std::int32_t>& picked) {
  samples_ = std::ssize(texts);
  std::size_t longest = 1;
  for (const auto* text : texts) longest = std::max(longest, text->size());
  const int of_text = spec_.fields[spec_.field("tokens")].stream;
  sequences_.clear();
  for (int stream = 0; stream < std::ssize(spec_.streams); ++stream) {
    sequences_.push_back(stream == of_text ? static_cast<index_t>(longest)
                                           : std::max<index_t>(1, std::ssize(picked)));
    spec_.streams[extent(stream)].sequence = sequences_.back();
  }
  batch_ = {};
  for (std::size_t f = 0; f < memory_.size(); ++f) {
    const FieldSpec& field = spec_.fields[f];
    if (field.holds == Holds::weights) continue;  // of losses: there are none
    fill_field(field, texts, picked, memory_[f].data());
    batch_.fields.at(f) = memory_[f].data();
  }
}

void FramedBatch::fill_field(const FieldSpec& field,
                             const std::vector<const std::vector<std::int32_t>*>& texts,
                             const std::vector<std::int32_t>& picked,
                             std::int32_t* values) const {
  const index_t count = spec_.elements(field, samples_);
  for (index_t i = 0; i < count; ++i) {
    const auto position = extent(i / samples_);
    const std::vector<std::int32_t>& text = *texts[extent(i % samples_)];
    switch (field.holds) {
      case Holds::words:
        values[i] = position < text.size() ? text[position] : padding_;
        break;
      case Holds::places:
        values[i] = static_cast<std::int32_t>(position);
        break;
      case Holds::lengths:
        values[i] = static_cast<std::int32_t>(text.size());
        break;
      case Holds::rows:
        values[i] = position < picked.size() ? picked[position] : -1;
        break;
      default:
        values[i] = 0;
    }
  }
}

}  // namespace trireme::inference
