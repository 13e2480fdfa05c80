// data/sentence_piece.hpp — a SentencePiece model as a tokenizer: unigram (Kudo 2018) or
// BPE on characters, with spaces as a part of pieces. The ids are the library's own.
//
// The library looks for the best pieces of a text as a whole, and sums their scores up in
// single precision: of a text of megabytes, near pieces would differ by less than the sum
// can hold. A text longer than kLongestStretch is therefore cut into stretches, between
// words where the text around has the same ids cut and whole; up to there the ids are
// those of one call.
#ifndef TRIREME_DATA_SENTENCE_PIECE_HPP_
#define TRIREME_DATA_SENTENCE_PIECE_HPP_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/sentence_piece_library.hpp"
#include "data/sentence_piece_model.hpp"
#include "data/token_model.hpp"

namespace trireme::data {

// Which texts get the space in front of them that a model adds: all; those without a
// space of their own there; or of these only what is at the front of the whole text, not
// what follows an added token. The last two are Hugging Face's Metaspace.
enum class FrontSpace { always, unless_there, at_front };

class SentencePiece : public TokenModel {
 public:
  static constexpr std::size_t kLongestStretch = std::size_t{128} << 10;

  // `bytes` are the model as the library reads it. `name` is for messages.
  SentencePiece(const std::string& name, SentencePieceModel model,
                const std::string& bytes, FrontSpace front = FrontSpace::always);

  std::unique_ptr<Coder> coder() const override;
  TokenId size() const override { return static_cast<TokenId>(texts_.size()); }
  std::string_view bytes_of(TokenId id) const override { return texts_[id]; }
  bool drops_first_space() const override { return model_.adds_space_in_front; }
  bool begins_word(TokenId id) const override { return begins_word_[id]; }
  // Each side would get a space in front, and lose those around.
  bool can_cut_before_space() const override { return false; }
  std::optional<TokenId> unknown() const override;
  std::string description() const override;

  const SentencePieceModel& model() const { return model_; }

 private:
  class PieceCoder;
  // A stretch ends at `end`, the next one begins at `next`.
  struct StretchEnd {
    std::size_t end = 0, next = 0;
  };
  StretchEnd stretch_end(std::string_view text, std::size_t begin) const;
  std::optional<StretchEnd> cut_at(std::string_view text, std::size_t at) const;
  const SentencePieceLibrary& library_for(std::string_view text, bool is_at_front) const;

  SentencePieceModel model_;
  FrontSpace front_;
  SentencePieceLibrary library_;
  std::optional<SentencePieceLibrary> without_space_;
  std::vector<std::string> texts_;
  std::vector<bool> begins_word_;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_SENTENCE_PIECE_HPP_
