// data/word_piece.hpp — WordPiece (Schuster & Nakajima 2012, as in BERT): words of the
// basic tokenizer, each the longest piece of the vocabulary that it begins with, and then
// the longest pieces that it goes on with, which are spelt with "##" in front.
//
// A word that cannot be spelt so, or is too long, is one unknown token. Unlike those of
// byte-level BPE, ids do not give the text back: white space is lost, and case and
// accents may be.
#ifndef TRIREME_DATA_WORD_PIECE_HPP_
#define TRIREME_DATA_WORD_PIECE_HPP_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/basic_tokenizer.hpp"
#include "data/piece_trie.hpp"
#include "data/token_model.hpp"

namespace trireme::data {

struct WordPieceOptions {
  BasicTokenizerOptions basic;
  TokenId unknown = 0;
  std::string prefix = "##";       // of pieces that a word goes on with
  std::size_t longest_word = 100;  // in characters
  // When ids become text, no space before . ? ! , and 's.
  bool cleans_up = true;
  // What told case from no case, for people; may be empty.
  std::string source_of_case;
};

class WordPiece : public TokenModel {
 public:
  // tokens[id]; empty: an id not in use. Of equal ones the last counts, as in Hugging
  // Face's reader.
  WordPiece(const std::vector<std::string>& tokens, WordPieceOptions options);

  std::unique_ptr<Coder> coder() const override;
  TokenId size() const override { return static_cast<TokenId>(texts_.size()); }
  std::string_view bytes_of(TokenId id) const override { return texts_[id]; }
  bool drops_first_space() const override { return true; }
  bool begins_word(TokenId id) const override { return begins_word_[id]; }
  bool can_cut_before_space() const override { return true; }
  std::optional<TokenId> unknown() const override { return options_.unknown; }
  std::string description() const override;

  const WordPieceOptions& options() const { return options_; }
  // Appends the ids of one word.
  void encode(std::string_view word, std::vector<TokenId>& ids) const;

 private:
  class WordCoder;

  WordPieceOptions options_;
  BasicTokenizer basic_;
  PieceTrie trie_;
  PieceTrie::State goes_on_;  // behind the prefix
  std::vector<std::string> texts_;
  std::vector<bool> begins_word_;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_WORD_PIECE_HPP_
