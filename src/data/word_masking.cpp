// data/word_masking.cpp — see word_masking.hpp.
#include "data/word_masking.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace trireme::data {

namespace {

// Of n = 1 ... most, in whole numbers: the least common multiple of them over n, summed.
std::vector<std::uint32_t> ngram_bounds(index_t most) {
  std::uint32_t multiple = 1;
  for (std::uint32_t n = 2; n <= most; ++n) multiple = std::lcm(multiple, n);
  std::vector<std::uint32_t> bounds;
  std::uint32_t sum = 0;
  for (std::uint32_t n = 1; n <= most; ++n) bounds.push_back(sum += multiple / n);
  return bounds;
}

}  // namespace

WordMasking::WordMasking(const MaskedRules& rules)
    : rules_(rules), up_to_(ngram_bounds(rules.max_ngrams)) {
  const auto positions = static_cast<std::size_t>(rules.sequence);
  words_.reserve(positions);
  order_.reserve(positions);
  marks_.reserve(positions);
  positions_.reserve(positions);
}

void WordMasking::find_words(std::span<const std::int32_t> ids) {
  const MaskedVocabulary& vocabulary = *rules_.vocabulary;
  words_.clear();
  bool goes_on = false;
  for (std::int32_t at = 0; at < std::ssize(ids); ++at) {
    const auto id = static_cast<std::size_t>(ids[static_cast<std::size_t>(at)]);
    if (vocabulary.is_structural[id] != 0) {
      goes_on = false;
    } else if (goes_on && vocabulary.begins_word[id] == 0) {
      words_.back().end = at + 1;
    } else {
      words_.push_back({at, at + 1});
      goes_on = rules_.whole_words;
    }
  }
}

index_t WordMasking::draw_ngram(Draws& draws) const {
  if (up_to_.size() == 1) return 1;
  const auto drawn = static_cast<std::uint32_t>(draws.below(up_to_.back()));
  return std::ranges::upper_bound(up_to_, drawn) - up_to_.begin() + 1;
}

// Of at most so many words and positions; without room for one word: empty.
WordMasking::Word WordMasking::ngram(index_t word, index_t words, index_t room) const {
  const auto first = words_.begin() + word;
  const auto last = std::min(words_.end(), first + words);
  Word taken{first->begin, first->begin};
  for (auto next = first; next != last; ++next) {
    if (next->begin != taken.end || next->end - taken.begin > room) break;
    taken.end = next->end;
  }
  return taken;
}

std::span<const std::int32_t> WordMasking::choose(std::span<const std::int32_t> ids,
                                                  index_t wanted, Draws draws) {
  find_words(ids);
  order_.resize(words_.size());
  std::iota(order_.begin(), order_.end(), 0);
  marks_.assign(ids.size(), 0);
  const auto all = std::ssize(order_);
  for (index_t i = 0; i < all && wanted > 0; ++i) {
    std::swap(order_[static_cast<std::size_t>(i)],
              order_[static_cast<std::size_t>(i + draws.below(all - i))]);
    const index_t words = draw_ngram(draws);
    const Word taken = ngram(order_[static_cast<std::size_t>(i)], words, wanted);
    const std::span marks =
        std::span(marks_).subspan(static_cast<std::size_t>(taken.begin),
                                  static_cast<std::size_t>(taken.end - taken.begin));
    if (std::ranges::count(marks, 0) != std::ssize(marks)) continue;
    std::ranges::fill(marks, std::uint8_t{1});
    wanted -= std::ssize(marks);
  }
  positions_.clear();
  for (std::size_t at = 0; at < marks_.size(); ++at) {
    if (marks_[at] != 0) positions_.push_back(static_cast<std::int32_t>(at));
  }
  return positions_;
}

std::int32_t replacement_of(std::int32_t id, const MaskedVocabulary& vocabulary,
                            Draws& draws) {
  const index_t of_ten = draws.below(10);
  if (of_ten < 8) return vocabulary.mask;
  if (of_ten == 8) return id;
  const auto drawn = draws.below(std::ssize(vocabulary.ordinary));
  return vocabulary.ordinary[static_cast<std::size_t>(drawn)];
}

}  // namespace trireme::data
