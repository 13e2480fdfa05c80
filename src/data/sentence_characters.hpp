// data/sentence_characters.hpp — what characters are to a splitter of sentences: letters
// that can begin one, marks that end one, quotes and brackets around them, white space.
#ifndef TRIREME_DATA_SENTENCE_CHARACTERS_HPP_
#define TRIREME_DATA_SENTENCE_CHARACTERS_HPP_

#include <cstddef>
#include <string_view>

namespace trireme::data {

struct Character {
  char32_t value;
  std::size_t length;  // in bytes
};
// The character at text[at], or the one that ends before it. A byte that belongs to no
// valid sequence is U+FFFD of length 1; none at the end or the beginning of the text: 0
// of length 0.
Character character_at(std::string_view text, std::size_t at);
Character character_before(std::string_view text, std::size_t at);

// Case is known of Latin, Greek and Cyrillic letters. Letters of other scripts count as
// capitals: they can begin a sentence. Accents that stand alone are small letters.
enum class LetterKind { none, small, capital, digit };
LetterKind letter_kind(char32_t character);
// Of Chinese or Japanese, which need no white space between sentences.
bool is_cjk_letter(char32_t character);

// full: . ; strong: ! ? and their doubles; ellipsis: … ; wide: those of Chinese and
// Japanese.
enum class Mark { none, full, strong, ellipsis, wide };
struct MarkAt {
  Mark mark;
  std::size_t length;
};
MarkAt mark_at(std::string_view text, std::size_t at);

// Behind a mark without white space between, any quote closes: German has “ for it.
bool is_closing(char32_t character);
// Quotes that close behind a mark in some languages, and always open in Chinese.
bool is_low_closing(char32_t character);
bool is_opening(char32_t character);
// Dashes, bullets and quotes that white space may follow before the sentence's first
// word.
bool is_opening_with_blank(char32_t character);

struct Blanks {
  std::size_t end;
  int line_ends;   // two of them make a blank line
  bool can_break;  // false for none, and for no-break spaces alone
};
// The white space (Unicode's White_Space) from text[at] on.
Blanks blanks_at(std::string_view text, std::size_t at);

}  // namespace trireme::data

#endif  // TRIREME_DATA_SENTENCE_CHARACTERS_HPP_
