// data/tokenizer_files.hpp — the formats tokenizers are kept in: GPT-2's vocab.json and
// merges.txt, and Hugging Face's tokenizer.json of byte-level BPE.
#ifndef TRIREME_DATA_TOKENIZER_FILES_HPP_
#define TRIREME_DATA_TOKENIZER_FILES_HPP_

#include <string>
#include <vector>

#include "data/tokenizer.hpp"

namespace trireme::data {

// `name` is for messages. InputError says what of the file is not supported.
Tokenizer tokenizer_from_json(const std::string& name, const std::string& text);
Tokenizer tokenizer_from_vocabulary(const std::string& vocabulary_name,
                                    const std::string& vocabulary,
                                    const std::string& merges_name,
                                    const std::string& merges);

// A tokenizer.json with GPT-2's pre-tokenizer, as `tokenizers` writes it: tokens[id] are
// bytes, or for added tokens their text.
std::string tokenizer_json(const std::vector<std::string>& tokens,
                           const std::vector<Pair>& merges,
                           const std::vector<AddedToken>& added);

}  // namespace trireme::data

#endif  // TRIREME_DATA_TOKENIZER_FILES_HPP_
