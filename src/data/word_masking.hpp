// data/word_masking.hpp — which tokens of a text are masked, and by what.
//
// Words (or tokens, without whole_words) come in a drawn order. From each one begins an
// n-gram of up to max_ngrams words, of n with a probability that goes with 1 / n; of as
// many fewer words as there is no room for, or as are not behind it in its segment. It is
// masked, unless a word of it is already or there is no room for one word, and so on
// until so many tokens are masked as there are to be. docs/math/masking.md
#ifndef TRIREME_DATA_WORD_MASKING_HPP_
#define TRIREME_DATA_WORD_MASKING_HPP_

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.hpp"
#include "data/draws.hpp"
#include "data/sample_rules.hpp"

namespace trireme::data {

// It has buffers, which have their room from the beginning: one thread's.
class WordMasking {
 public:
  explicit WordMasking(const MaskedRules& rules);

  // The positions to be masked of a text, at most `wanted`, ascending.
  std::span<const std::int32_t> choose(std::span<const std::int32_t> ids, index_t wanted,
                                       Draws draws);

 private:
  // Positions [begin, end).
  struct Word {
    std::int32_t begin, end;
  };
  void find_words(std::span<const std::int32_t> ids);
  index_t draw_ngram(Draws& draws) const;
  Word ngram(index_t word, index_t words, index_t room) const;

  MaskedRules rules_;
  std::vector<std::uint32_t> up_to_;  // of draws for n: those below up_to_[n - 1]
  std::vector<Word> words_;
  std::vector<std::int32_t> order_;  // of the words
  std::vector<std::uint8_t> marks_;  // of the positions
  std::vector<std::int32_t> positions_;
};

// What the model reads at a masked position: eight times in ten [MASK], once the token
// itself, once a random one.
std::int32_t replacement_of(std::int32_t id, const MaskedVocabulary& vocabulary,
                            Draws& draws);

}  // namespace trireme::data

#endif  // TRIREME_DATA_WORD_MASKING_HPP_
