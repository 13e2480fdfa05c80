// data/word_piece_files.hpp — the formats that WordPiece is kept in: BERT's vocab.txt, a
// token a line, with a tokenizer_config.json beside it; and a tokenizer.json of Hugging
// Face's with a model of type WordPiece.
#ifndef TRIREME_DATA_WORD_PIECE_FILES_HPP_
#define TRIREME_DATA_WORD_PIECE_FILES_HPP_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "data/tokenizer.hpp"

namespace trireme::data {

// The name that a list of words has among the files of a tokenizer.
inline constexpr const char* kWordList = "vocab.txt";

// `document` is a whole tokenizer.json. Names of files are for messages. InputError says
// what of a file is not supported.
std::shared_ptr<const TokenModel> word_piece_of(const std::string& name,
                                                const nlohmann::json& document);
// `list` is a vocab.txt, `config` a tokenizer_config.json. Without the latter, a
// vocabulary in which no piece has a capital letter is uncased.
Tokenizer tokenizer_from_word_list(const std::string& name, const std::string& list,
                                   const std::optional<std::string>& config);

}  // namespace trireme::data

#endif  // TRIREME_DATA_WORD_PIECE_FILES_HPP_
