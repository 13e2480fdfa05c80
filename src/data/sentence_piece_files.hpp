// data/sentence_piece_files.hpp — the formats that SentencePiece models are kept in:
// their own (spiece.model of T5, tokenizer.model of Llama) with a tokenizer_config.json
// beside it; and a tokenizer.json of Hugging Face's with a model of type Unigram, or of
// type BPE on characters.
#ifndef TRIREME_DATA_SENTENCE_PIECE_FILES_HPP_
#define TRIREME_DATA_SENTENCE_PIECE_FILES_HPP_

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizer.hpp"

namespace trireme::data {

// The name that a model has among the files of a tokenizer.
inline constexpr const char* kSentencePieceFile = "spiece.model";

// Is this a name that models of SentencePiece go by?
bool is_sentence_piece_name(std::string_view file_name);

// Control pieces and the unknown one are added tokens, as are the sentinels of T5 that
// the tokenizer_config.json tells of.
Tokenizer tokenizer_from_sentence_piece(const std::string& name, const std::string& model,
                                        const std::optional<std::string>& config);

// The same with so many sentinels, <extra_id_0> and on, which get the ids behind the
// model's, the first one the last. InputError where it is another kind of tokenizer, or
// has another number of them.
Tokenizer with_sentinels(const Tokenizer& tokenizer, std::int64_t count);

// Does this document of type BPE work on characters, as SentencePiece does?
bool is_bpe_on_characters(const nlohmann::json& document);
// `document` is a whole tokenizer.json. Names of files are for messages. InputError says
// what of a file is not supported.
std::shared_ptr<const TokenModel> sentence_piece_of(const std::string& name,
                                                    const nlohmann::json& document);

}  // namespace trireme::data

#endif  // TRIREME_DATA_SENTENCE_PIECE_FILES_HPP_
