// data/byte_level_bpe_files.hpp — the formats that byte-level BPE is kept in: GPT-2's
// vocab.json and merges.txt, and a tokenizer.json of Hugging Face's with a model of type
// BPE.
#ifndef TRIREME_DATA_BYTE_LEVEL_BPE_FILES_HPP_
#define TRIREME_DATA_BYTE_LEVEL_BPE_FILES_HPP_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/bpe.hpp"
#include "data/tokenizer.hpp"

namespace trireme::data {

// `document` is a whole tokenizer.json. Names of files are for messages. InputError says
// what of a file is not supported.
std::shared_ptr<const TokenModel> byte_level_bpe_of(const std::string& name,
                                                    const nlohmann::json& document);
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

#endif  // TRIREME_DATA_BYTE_LEVEL_BPE_FILES_HPP_
