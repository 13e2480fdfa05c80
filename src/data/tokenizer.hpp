// data/tokenizer.hpp — text to token ids and back: byte-level BPE, ids as GPT-2's and as
// Hugging Face's `tokenizers` gives them for the same files.
//
// A Tokenizer is immutable and shared; each thread encodes with an Encoder of its own. A
// tokenizer is its files: they are embedded in corpora and checkpoints, and loading them
// again gives the same tokenizer.
#ifndef TRIREME_DATA_TOKENIZER_HPP_
#define TRIREME_DATA_TOKENIZER_HPP_

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe.hpp"
#include "data/pre_tokenizer.hpp"

namespace trireme::data {

// File name (without directory) to content: {"vocab.json", "merges.txt"} or
// {"tokenizer.json"}.
using TokenizerFiles = std::map<std::string, std::string>;

// Text that stands for one token wherever it occurs ("<|endoftext|>").
struct AddedToken {
  std::string text;
  TokenId id = 0;
};

class Tokenizer {
 public:
  // The names of the files say what they are. vocab.json may be called encoder.json, and
  // merges.txt vocab.bpe, as GPT-2's own are. InputError when they are not a byte-level
  // BPE, with what is not supported.
  static Tokenizer from_files(TokenizerFiles files);
  // Reads one tokenizer.json; or vocab and merges files; or a directory with either.
  static Tokenizer load(const std::vector<std::filesystem::path>& paths);

  // Largest id + 1.
  TokenId vocabulary_size() const { return vocabulary_size_; }
  // The id put after each document: of "<|endoftext|>", or of what stands for it in other
  // vocabularies ("</s>", "<|end_of_text|>"). InputError when there is none.
  TokenId end_of_document() const;
  const std::vector<AddedToken>& added_tokens() const { return added_; }
  const TokenizerFiles& files() const { return files_; }

  const BpeModel& model() const { return *model_; }
  const PreTokenizer& pre_tokenizer() const { return pre_tokenizer_; }
  bool adds_space_in_front() const { return space_in_front_; }
  // Text may be cut before a space or line feed that follows anything else, and each side
  // encoded alone, with the same ids (GPT-2's pattern, no added token with a space in
  // it).
  bool can_cut_before_space() const;

  // Invalid UTF-8 is replaced first (see utf8.hpp). Slow for many small texts: Encoder.
  std::vector<TokenId> encode(std::string_view text) const;
  // The bytes that the ids stand for; not always valid UTF-8. InputError for an id
  // outside the vocabulary.
  std::string decode(const std::vector<TokenId>& ids) const;
  std::string_view bytes_of(TokenId id) const;

 private:
  Tokenizer() = default;
  friend Tokenizer tokenizer_from_json(const std::string& name, const std::string& text);
  friend Tokenizer tokenizer_from_vocabulary(const std::string& vocabulary_name,
                                             const std::string& vocabulary,
                                             const std::string& merges_name,
                                             const std::string& merges);

  std::shared_ptr<const BpeModel> model_;
  PreTokenizer pre_tokenizer_ = PreTokenizer::none();
  std::vector<AddedToken> added_;
  bool space_in_front_ = false;
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

  std::uint64_t replaced_sequences() const { return replaced_; }
  std::uint64_t added_tokens_found() const { return added_found_; }

 private:
  void encode_plain(std::string_view text, std::vector<TokenId>& ids);
  // Leftmost, then longest added token at or after `from`; false when there is none.
  bool find_added(std::string_view text, std::size_t from, std::size_t& at,
                  const AddedToken*& token) const;

  const Tokenizer& tokenizer_;
  BpeEncoder bpe_;
  PreTokenizer::Scanner scanner_;
  std::vector<const AddedToken*> added_;  // longest first
  std::array<bool, 256> starts_added_{};
  std::string repaired_;
  std::string spaced_;
  std::uint64_t replaced_ = 0;
  std::uint64_t added_found_ = 0;
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
