// data/vocabulary_size.hpp — holds the number of a tokenizer's tokens against what the
// files of its model say: a list of words that was cut at the end of a line is a list
// like another, and nothing else can tell.
#ifndef TRIREME_DATA_VOCABULARY_SIZE_HPP_
#define TRIREME_DATA_VOCABULARY_SIZE_HPP_

#include <filesystem>

#include "base/types.hpp"

namespace trireme::data {

// How many rows of a model's table of words may be without a token, as padding.
index_t most_padding(index_t rows);

// `list` is a vocab.txt with so many lines. InputError where the config.json,
// tokenizer_config.json or tokenizer.json beside it tells that it is cut short or another
// model's. Where there are no such files, or they do not say, nothing is known.
void require_size_beside(const std::filesystem::path& list, index_t tokens);

}  // namespace trireme::data

#endif  // TRIREME_DATA_VOCABULARY_SIZE_HPP_
