// data/masked_vocabulary.hpp — what masked samples have to know of a tokenizer: its
// special tokens, where words begin, and which ids are those of ordinary text.
#ifndef TRIREME_DATA_MASKED_VOCABULARY_HPP_
#define TRIREME_DATA_MASKED_VOCABULARY_HPP_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/tokenizer.hpp"

namespace trireme::data {

struct MaskedVocabulary {
  std::int32_t padding = 0;
  std::int32_t classify = 0;  // [CLS]
  std::int32_t separate = 0;  // [SEP]
  std::int32_t mask = 0;
  std::int32_t end_of_document = 0;  // of corpora
  // Of each id: does a word begin with it? Is it no text, so that it is never masked and
  // no word goes on behind it?
  std::vector<std::uint8_t> begins_word, is_structural;
  // What a random token is taken from: ids that are in use, but for added tokens.
  std::vector<std::int32_t> ordinary;
};

// Of ids below `size`, the corpus' vocabulary, which has all of the tokenizer's.
// InputError where the tokenizer lacks special tokens, with all that it lacks.
MaskedVocabulary masked_vocabulary(const Tokenizer& tokenizer, TokenId size,
                                   TokenId end_of_document);

}  // namespace trireme::data

#endif  // TRIREME_DATA_MASKED_VOCABULARY_HPP_
