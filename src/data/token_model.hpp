// data/token_model.hpp — what a tokenizer is made of, whatever its kind: a vocabulary,
// and coders that make ids of text. A Tokenizer (tokenizer.hpp) adds what all kinds have
// in common: added tokens, the repair of invalid UTF-8, and the files.
#ifndef TRIREME_DATA_TOKEN_MODEL_HPP_
#define TRIREME_DATA_TOKEN_MODEL_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

using TokenId = std::uint32_t;

// Makes ids of text. It has caches and buffers: each thread has its own.
class Coder {
 public:
  virtual ~Coder() = default;
  // Whether the text that encode() gets next is at the front of a whole text, and not
  // behind an added token: a kind may put a space in front of the former alone.
  virtual void set_at_front(bool) {}
  // Appends the ids of `text`, which is valid UTF-8 and not empty. Where `begins` is not
  // null, appends for each id the byte of `text` at which begins what it stands for; of
  // the later pieces of a word this may be where the word begins.
  virtual void encode(std::string_view text, std::vector<TokenId>& ids,
                      std::vector<std::size_t>* begins) = 0;
};

// Immutable, and shared by threads. Coders must not outlive their model.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  virtual std::unique_ptr<Coder> coder() const = 0;
  // Largest id + 1.
  virtual TokenId size() const = 0;
  // What an id below size() adds to a text, white space before a word included; empty: an
  // id that is not in use.
  virtual std::string_view bytes_of(TokenId id) const = 0;
  // Is white space at the very front of a decoded text none of the text?
  virtual bool drops_first_space() const = 0;
  // Does a word begin with this id, and does it not go on with the one before?
  virtual bool begins_word(TokenId id) const = 0;
  // Text may be cut before white space that follows anything else, and each side encoded
  // alone, with the same ids.
  virtual bool can_cut_before_space() const = 0;
  // The id of what the model has no pieces for; none where it has pieces for all texts.
  virtual std::optional<TokenId> unknown() const { return std::nullopt; }
  // "byte-level BPE", for people.
  virtual std::string description() const = 0;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_TOKEN_MODEL_HPP_
