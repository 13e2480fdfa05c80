// data/tokenizer_files.hpp — the format that says all of a tokenizer in one file: Hugging
// Face's tokenizer.json. Tokenizer::load and from_files take the others, too
// (byte_level_bpe_files.hpp, word_piece_files.hpp).
#ifndef TRIREME_DATA_TOKENIZER_FILES_HPP_
#define TRIREME_DATA_TOKENIZER_FILES_HPP_

#include <string>

#include "data/tokenizer.hpp"

namespace trireme::data {

inline constexpr const char* kTokenizerJson = "tokenizer.json";
inline constexpr const char* kTokenizerConfig = "tokenizer_config.json";

// Whether both sets of files make the same ids: what decides of each is equal, byte for
// byte. A tokenizer.json decides alone, whatever is kept beside it.
bool is_one_tokenizer(const TokenizerFiles& a, const TokenizerFiles& b);

// `name` is for messages. InputError says what of the file is not supported.
Tokenizer tokenizer_from_json(const std::string& name, const std::string& text);

}  // namespace trireme::data

#endif  // TRIREME_DATA_TOKENIZER_FILES_HPP_
