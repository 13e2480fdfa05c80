// inference/mask_filler.cpp — see mask_filler.hpp.
//
// A text goes through the model whole, and the words of its masks are asked for as many
// at a time as the model predicts of a sample; a mask does not know what another is
// filled with.
#include "inference/mask_filler.hpp"

#include <algorithm>
#include <cstddef>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/words.hpp"
#include "data/token_model.hpp"
#include "inference/word_probabilities.hpp"
#include "model/blueprint.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::inference {

namespace {

const model::Blueprint& filled_blueprint(const LoadedModel& model) {
  return model.replica->part().blueprint;
}

}  // namespace

MaskFiller::MaskFiller(const LoadedModel& model, index_t top)
    : Filler(top),
      model_(model),
      framer_(model),
      mask_(model.tokenizer->special(data::Special::mask)),
      pass_(model.replica->make_output_pass(1)),
      most_masks_(filled_blueprint(model)
                      .batch.streams.at(extent(filled_blueprint(model).output()->stream))
                      .sequence),
      batch_(filled_blueprint(model).batch, 1, framer_.padding()) {}

std::vector<std::int32_t> MaskFiller::masks_in(
    std::string_view text, const std::vector<std::int32_t>& framed) const {
  std::vector<std::int32_t> masks;
  for (std::size_t i = 0; i < framed.size(); ++i) {
    if (framed[i] == static_cast<std::int32_t>(mask_)) {
      masks.push_back(static_cast<std::int32_t>(i));
    }
  }
  const std::string_view mask = model_.tokenizer->bytes_of(mask_);
  TRIREME_REQUIRE_INPUT(!masks.empty(),
                        "'{}' has no {}: write {} for each word that is to be found, as "
                        "in \"the {} of God\"",
                        text, trimmed(mask), trimmed(mask), trimmed(mask));
  return masks;
}

FilledText MaskFiller::fill(std::string_view text) {
  const std::vector<std::int32_t> framed = framer_.frame(text);
  const index_t longest = model_.deck.model.sequence, length = std::ssize(framed);
  TRIREME_REQUIRE_INPUT(length <= longest,
                        "'{}' has {} with [CLS] and [SEP], but this model reads {} at "
                        "most: shorten it by {}",
                        text, format_plural(length, "token"), longest, length - longest);
  const std::vector<std::int32_t> masks = masks_in(text, framed);
  FilledText filled;
  for (std::size_t begin = 0; begin < masks.size(); begin += extent(most_masks_)) {
    const std::size_t end = std::min(begin + extent(most_masks_), masks.size());
    const std::vector<std::int32_t> asked(
        masks.begin() + static_cast<std::ptrdiff_t>(begin),
        masks.begin() + static_cast<std::ptrdiff_t>(end));
    batch_.fill({&framed}, asked);
    const auto logits = pass_->run(batch_.batch(), 1, batch_.sequences());
    const std::size_t columns = extent(pass_->columns());
    for (std::size_t i = 0; i < asked.size(); ++i) {
      filled.gaps.push_back(
          {.name = fmt::format("mask {} of {}", begin + i + 1, masks.size()),
           .position = asked[i],
           .fillings = words_of(logits.subspan(i * columns, columns))});
    }
  }
  return filled;
}

// Among the words that the tokenizer can spell.
std::vector<Filling> MaskFiller::words_of(
    std::span<const step::OutputNumber> logits) const {
  const WordProbabilities probabilities(logits.first(extent(model_.usable_vocabulary())));
  std::vector<Filling> words;
  for (const data::TokenId id : probabilities.most_probable(top())) {
    words.push_back({{id}, spelled(id), probabilities.of(id)});
  }
  return words;
}

std::string MaskFiller::spelled(data::TokenId id) const {
  const data::TokenModel& tokens = model_.tokenizer->model();
  const std::string text(trimmed(model_.tokenizer->bytes_of(id)));
  const bool goes_on =
      id < tokens.size() && !tokens.bytes_of(id).empty() && !tokens.begins_word(id);
  return goes_on ? "##" + text : text;
}

}  // namespace trireme::inference
