// data/tokenizer.hpp — text to token ids and back, with the ids of Hugging Face's
// `tokenizers` for the same files.
//
// A tokenizer is a model (token_model.hpp), tokens added to it, and the files that both
// were read from. It is immutable and shared; each thread encodes with an Encoder of its
// own. Its files are embedded in corpora and checkpoints, and loading them again gives
// the same tokenizer.
#ifndef TRIREME_DATA_TOKENIZER_HPP_
#define TRIREME_DATA_TOKENIZER_HPP_

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_model.hpp"

namespace trireme::data {

// File name (without directory) to content: {"tokenizer.json"}, {"vocab.json",
// "merges.txt"}, {"vocab.txt", "tokenizer_config.json"} or {"spiece.model",
// "tokenizer_config.json"}.
using TokenizerFiles = std::map<std::string, std::string>;

// Text that stands for one token wherever it occurs ("<|endoftext|>").
struct AddedToken {
  std::string text;
  TokenId id = 0;
};

// Added tokens with a part in training. Which they are is told by their text, as it is
// usual.
enum class Special { end_of_document, padding, unknown, classify, separate, mask };

// The added tokens that stand for hidden spans in T5: <extra_id_i> has the id first - i.
struct Sentinels {
  TokenId first = 0;
  std::int64_t count = 0;
};
inline constexpr std::string_view kSentinelBegin = "<extra_id_";
std::string sentinel_text(std::int64_t number);

class Tokenizer {
 public:
  Tokenizer(std::shared_ptr<const TokenModel> model, std::vector<AddedToken> added,
            TokenizerFiles files);

  // The names of the files say what they are. vocab.json may be called encoder.json, and
  // merges.txt vocab.bpe, as GPT-2's own are; a model of SentencePiece may have any name
  // that ends with .model. InputError when they are no tokenizer of a
  // kind that is known, with what is not supported.
  static Tokenizer from_files(TokenizerFiles files);
  // Reads one tokenizer.json; or vocab and merges files; or a vocab.txt or .model; or a
  // directory with one of these. Two of them without a tokenizer.json are an InputError,
  // and so is another number of words or pieces than the files of a model beside a
  // vocab.txt or .model say.
  static Tokenizer load(const std::vector<std::filesystem::path>& paths);

  // Largest id + 1.
  TokenId vocabulary_size() const { return vocabulary_size_; }
  const TokenModel& model() const { return *model_; }
  const std::vector<AddedToken>& added_tokens() const { return added_; }
  const TokenizerFiles& files() const { return files_; }

  std::optional<TokenId> find_special(Special special) const;
  // InputError when there is none, with the texts that would be one.
  TokenId special(Special special) const;
  // The id put after each document: of "<|endoftext|>", or of what stands for it in other
  // vocabularies ("</s>", "[SEP]").
  TokenId end_of_document() const { return special(Special::end_of_document); }
  // A count of 0 where there are none. InputError where their ids do not go down by one.
  Sentinels sentinels() const;

  // As of its model, unless an added token has white space in it.
  bool can_cut_before_space() const;

  // Invalid UTF-8 is replaced first (see utf8.hpp). Slow for many small texts: Encoder.
  std::vector<TokenId> encode(std::string_view text) const;
  // The bytes that the ids stand for; not always valid UTF-8. InputError for an id
  // outside the vocabulary.
  std::string decode(const std::vector<TokenId>& ids) const;
  // What an id adds to a text that is not empty.
  std::string_view bytes_of(TokenId id) const;

 private:
  std::shared_ptr<const TokenModel> model_;
  std::vector<AddedToken> added_;
  TokenId vocabulary_size_ = 0;
  TokenizerFiles files_;
};

// What an encoder does with the text of an added token: one id, as Hugging Face does, or
// nothing special (text from strangers that may name "<|endoftext|>").
enum class AddedTokens { recognised, as_text };

class Encoder {
 public:
  // `tokenizer` must outlive the encoder.
  explicit Encoder(const Tokenizer& tokenizer,
                   AddedTokens added_tokens = AddedTokens::recognised);

  // Appends the ids of `text` to `ids`. `text` may be invalid UTF-8: repaired and
  // counted.
  void encode(std::string_view text, std::vector<TokenId>& ids);
  // And for each id to `begins` the byte of `text`, which is valid here, at which begins
  // what it stands for (see Coder::encode).
  void encode(std::string_view text, std::vector<TokenId>& ids,
              std::vector<std::size_t>& begins);

  std::uint64_t replaced_sequences() const { return replaced_; }
  // By id, how often each was found in the texts; those that were not are left out.
  const std::map<TokenId, std::uint64_t>& added_tokens_found() const {
    return added_found_;
  }

 private:
  void encode_valid(std::string_view text, std::vector<TokenId>& ids,
                    std::vector<std::size_t>* begins);
  // text[begin, end), which has no added token in it.
  void encode_plain(std::string_view text, std::size_t begin, std::size_t end,
                    std::vector<TokenId>& ids, std::vector<std::size_t>* begins);
  // Leftmost, then longest added token at or after `from`; false when there is none.
  bool find_added(std::string_view text, std::size_t from, std::size_t& at,
                  const AddedToken*& token) const;

  std::unique_ptr<Coder> coder_;
  std::vector<const AddedToken*> added_;  // longest first
  std::array<bool, 256> starts_added_{};
  std::string repaired_;
  std::uint64_t replaced_ = 0;
  std::map<TokenId, std::uint64_t> added_found_;
};

// Decodes ids as they come: whole characters only, the beginning of one is kept back
// until the rest arrives. Bytes that are no UTF-8 come out as U+FFFD.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string next(TokenId id);
  // The text that is still kept back, at the end.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_TOKENIZER_HPP_
