// data/vocabulary_size.hpp — holds the number of a tokenizer's tokens against what the
// files of its model say: a list of words that was cut at the end of a line, or a model
// of SentencePiece of somebody else's, is a file like another, and nothing else can tell.
#ifndef TRIREME_DATA_VOCABULARY_SIZE_HPP_
#define TRIREME_DATA_VOCABULARY_SIZE_HPP_

#include <filesystem>

#include "base/types.hpp"

namespace trireme::data {

// What a tokenizer is made of: a vocab.txt, or a model of SentencePiece.
enum class VocabularyFile { word_list, sentence_piece };

struct VocabularySize {
  VocabularyFile kind = VocabularyFile::word_list;
  index_t own = 0;  // lines of the list, or pieces of the model
  index_t all = 0;  // with what a tokenizer_config.json adds to them
};

// The key of a config.json by which `trireme convert` says how many tokens a model has
// whose rows are more than padding explains, so that it is taken back; transformers keeps
// it and does not look at it.
inline constexpr const char* kTokensKey = "trireme_tokens";

// How many rows of a model's table of words may be without a token, as padding.
index_t most_padding(index_t rows);

// InputError where the tokenizer.json, config.json or tokenizer_config.json beside `file`
// tells that it is cut short or another model's. Where there are no such files, or they
// do not say, nothing is known.
void require_size_beside(const std::filesystem::path& file, const VocabularySize& size);

}  // namespace trireme::data

#endif  // TRIREME_DATA_VOCABULARY_SIZE_HPP_
