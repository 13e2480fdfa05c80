// data/sentence_piece_model.hpp — what is in a SentencePiece model (Kudo & Richardson
// 2018): pieces with scores, and how text is normalised. Reading and writing need no
// library; what makes ids of text with it does (sentence_piece_library.hpp).
//
// The file is a message of protocol buffers, sentencepiece_model.proto of the library.
// Fields that are not named here have no part in encoding.
#ifndef TRIREME_DATA_SENTENCE_PIECE_MODEL_HPP_
#define TRIREME_DATA_SENTENCE_PIECE_MODEL_HPP_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

// U+2581, which stands for a space in pieces.
inline constexpr std::string_view kSpaceMark = "\u2581";

struct SentencePieceModel {
  enum class Algorithm { unigram = 1, bpe = 2 };
  enum class Kind { normal = 1, unknown, control, user_defined, unused, byte };
  struct Piece {
    std::string text;
    float score = 0.0f;
    Kind kind = Kind::normal;
  };

  std::vector<Piece> pieces;  // by id
  Algorithm algorithm = Algorithm::unigram;
  // Characters without a piece become the pieces of their bytes, "<0x00>" to "<0xFF>".
  bool byte_fallback = false;
  bool space_behind_words = false;
  // The library's map of characters: their normal forms, and a trie that finds them.
  std::string character_map;
  bool adds_space_in_front = true;
  bool removes_extra_spaces = true;
  bool marks_spaces = true;

  // `name` is for messages. InputError where the bytes are no such model, are cut short,
  // or ask for what the library does not do.
  static SentencePieceModel parse(const std::string& name, std::string_view bytes);
  // What parse() demands of any model, whatever it was read from.
  void check(const std::string& name) const;
  std::string serialized() const;
};

// "<0x0A>" as its byte; -1 for another text.
int byte_of_piece(std::string_view text);

// What the map makes of a text that it has an entry for; of another the text itself.
// Only of a map that check() has seen.
std::string mapped(const std::string& character_map, std::string_view text);

}  // namespace trireme::data

#endif  // TRIREME_DATA_SENTENCE_PIECE_MODEL_HPP_
