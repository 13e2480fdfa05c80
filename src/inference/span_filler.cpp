// inference/span_filler.cpp — see span_filler.hpp.
//
// Tokens say themselves whether a blank stands before them, so the blanks before a
// sentinel are not copied to the text with its gaps filled: "unto <extra_id_0> Moses"
// with " the servant" is "unto the servant Moses", and with "," it is "unto, Moses". All
// else of the text stays as it is: tokens would not give it back where the tokenizer
// changes letters or spaces.
#include "inference/span_filler.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/utf8.hpp"
#include "base/words.hpp"
#include "inference/word_probabilities.hpp"
#include "model/blueprint.hpp"

namespace trireme::inference {

namespace {

// The end of the sentinel that begins there; npos: none does.
std::size_t end_of_sentinel(std::string_view text, std::size_t begin) {
  const std::size_t number = begin + data::kSentinelBegin.size();
  const std::size_t end = text.find_first_not_of("0123456789", number);
  const bool is_sentinel =
      end != std::string_view::npos && end > number && text[end] == '>';
  return is_sentinel ? end + 1 : std::string_view::npos;
}

}  // namespace

SpanFiller::SpanFiller(const LoadedModel& model)
    : Filler(1), model_(model), sentinels_(model.tokenizer_of_texts().sentinels()) {
  TRIREME_REQUIRE_INPUT(
      sentinels_.count > 0 && sentinels_.first < model.deck.model.vocab,
      "the tokenizer of checkpoint '{}' ({}) has no sentinels, {} and so on, among the "
      "model's {}: convert the model with its own tokenizer",
      model.path.string(), model.tokenizer->model().description(), data::sentinel_text(0),
      format_plural(model.deck.model.vocab, "word"));
  TRIREME_REQUIRE_INPUT(model.end_of_document,
                        "the tokenizer of checkpoint '{}' ({}) has no </s> among the "
                        "model's {}, and texts that are read end with it: convert the "
                        "model with its own tokenizer",
                        model.path.string(), model.tokenizer->model().description(),
                        format_plural(model.deck.model.vocab, "word"));
  end_ = *model.end_of_document;
  first_ = model.first_word.value_or(end_);
  decoder_ = model.replica->make_decoder();
}

data::TokenId SpanFiller::sentinel(index_t number) const {
  return sentinels_.first - static_cast<data::TokenId>(number);
}

std::vector<SpanFiller::Place> SpanFiller::places_in(std::string_view text) const {
  std::vector<Place> places;
  for (std::size_t at = text.find(data::kSentinelBegin); at != std::string_view::npos;) {
    const std::size_t end = end_of_sentinel(text, at);
    const bool is_sentinel = end != std::string_view::npos;
    if (is_sentinel) {
      const std::string_view found = text.substr(at, end - at);
      const std::string wanted = data::sentinel_text(std::ssize(places));
      TRIREME_REQUIRE_INPUT(found == wanted,
                            "'{}' has {} where {} is to be: number the gaps in the order "
                            "of the text, each once, from {} on",
                            text, found, wanted, data::sentinel_text(0));
      places.push_back({at, end});
    }
    at = text.find(data::kSentinelBegin, is_sentinel ? end : at + 1);
  }
  TRIREME_REQUIRE_INPUT(!places.empty(),
                        "'{}' has no {}: write it for what is missing, as in \"the {} of "
                        "God\", and {} for the next gap",
                        text, data::sentinel_text(0), data::sentinel_text(0),
                        data::sentinel_text(1));
  // Each is written with a position before the first.
  const index_t most = std::min<index_t>(sentinels_.count, decoder_->context() - 1);
  TRIREME_REQUIRE_INPUT(std::ssize(places) <= most,
                        "'{}' has {}, but this model fills {} at most (its tokenizer has "
                        "{}, and it writes {}): give it the text in parts",
                        text, format_plural(std::ssize(places), "gap"), most,
                        format_plural(sentinels_.count, "sentinel"),
                        format_plural(decoder_->context(), "token"));
  return places;
}

std::vector<data::TokenId> SpanFiller::source_of(std::string_view text) const {
  std::vector<data::TokenId> source = model_.tokenizer->encode(text);
  for (const data::TokenId id : source) model_.require_known(id);
  source.push_back(end_);
  const index_t longest = decoder_->source_context(), length = std::ssize(source);
  TRIREME_REQUIRE_INPUT(length <= longest,
                        "'{}' has {} with {}, but this model reads {} at most: shorten "
                        "it by {}",
                        text, format_plural(length, "token"),
                        trimmed(model_.tokenizer->bytes_of(end_)), longest,
                        length - longest);
  return source;
}

FilledText SpanFiller::fill(std::string_view text) {
  const std::vector<Place> places = places_in(text);
  const std::vector<data::TokenId> source = source_of(text);
  decoder_->clear(0);
  decoder_->begin_text(0, source);
  decoder_->read(0, {&first_, 1});
  FilledText filled;
  std::string& whole = filled.whole.emplace();
  std::size_t behind = 0;  // the gap before
  const index_t count = std::ssize(places);
  for (index_t i = 0; i < count; ++i) {
    const Place& place = places[extent(i)];
    const index_t left = decoder_->context() - decoder_->length(0);
    FilledGap gap = write(i, left / (count - i));
    gap.position = std::ranges::find(source, sentinel(i)) - source.begin();
    std::string& words = gap.fillings.front().text;
    append_repaired(text.substr(behind, place.begin - behind), whole);
    whole.erase(whole.find_last_not_of(" \t") + 1);
    whole += words;
    words = std::string(trimmed(words));
    behind = place.end;
    filled.gaps.push_back(std::move(gap));
  }
  append_repaired(text.substr(behind), whole);
  if (places[0].begin == 0) whole.erase(0, whole.find_first_not_of(' '));
  return filled;
}

// Takes `room` positions at most, one of which is the sentinel's. The probability is that
// of the words, and of what ends them, one after the other.
FilledGap SpanFiller::write(index_t number, index_t room) {
  Filling span{.probability = 1.0};
  std::string bytes;
  Word next = next_behind(sentinel(number));
  while (!ends_span(next.id) && std::ssize(span.ids) + 1 < room) {
    span.ids.push_back(next.id);
    span.probability *= next.probability;
    bytes += model_.tokenizer->bytes_of(next.id);
    next = next_behind(next.id);
  }
  FilledGap gap{.name = data::sentinel_text(number), .is_cut = !ends_span(next.id)};
  if (!gap.is_cut) span.probability *= next.probability;
  append_repaired(bytes, span.text);
  gap.fillings.push_back(std::move(span));
  return gap;
}

// The most probable word behind all that has been written, `token` included.
SpanFiller::Word SpanFiller::next_behind(data::TokenId token) {
  const auto logits = decoder_->read(0, {&token, 1});
  const WordProbabilities probabilities(logits.first(extent(model_.usable_vocabulary())));
  const data::TokenId id = probabilities.most_probable(1).front();
  return {id, probabilities.of(id)};
}

bool SpanFiller::ends_span(data::TokenId id) const {
  const auto number = static_cast<index_t>(sentinels_.first) - static_cast<index_t>(id);
  return id == end_ || (number >= 0 && number < sentinels_.count);
}

}  // namespace trireme::inference
