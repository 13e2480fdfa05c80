// tests/unit/data/mixed_text.hpp — mixed text of any length, the same bytes here and in
// tests/parity/make_tokenizer_fixtures.py: prose, code, scripts of the world, any code
// point, emoji, white space, controls, long words and invalid UTF-8, in random order. The
// two generators are written draw by draw alike; the fixture's checksums tell if not.
#ifndef TRIREME_TESTS_UNIT_DATA_MIXED_TEXT_HPP_
#define TRIREME_TESTS_UNIT_DATA_MIXED_TEXT_HPP_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "base/utf8.hpp"

namespace trireme::test {

class MixedText {
 public:
  // Pieces come from these: valid text, and the same with damaged bytes.
  MixedText(std::string sample, std::string damaged)
      : sample_(std::move(sample)), damaged_(std::move(damaged)) {}

  std::string document(std::uint64_t number, std::size_t bytes) {
    state_ = number << 40;
    std::string text;
    while (text.size() < bytes) append_piece(text);
    text.resize(bytes);
    return text;
  }

 private:
  // splitmix64 (Steele et al. 2014).
  std::uint64_t draw(std::uint64_t n) {
    state_ += 0x9E3779B97F4A7C15ull;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (z ^ (z >> 31)) % n;
  }

  static bool continues(char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
  }
  void append(std::string& text, std::uint64_t code_point) {
    append_utf8(static_cast<char32_t>(code_point), text);
  }
  // Up to `most` of what one() appends.
  template <class One>
  void some(std::uint64_t most, const One& one) {
    for (std::uint64_t count = 1 + draw(most); count > 0; --count) one();
  }

  void append_whole_characters(std::string& text) {
    std::size_t begin = draw(sample_.size());
    std::size_t end = std::min<std::size_t>(begin + 1 + draw(96), sample_.size());
    while (begin < sample_.size() && continues(sample_[begin])) ++begin;
    while (end < sample_.size() && continues(sample_[end])) ++end;
    text.append(sample_, begin, end - begin);
  }
  void append_any_character(std::string& text) {
    const std::uint64_t code = draw(0x110000);
    append(text, code >= 0xD800 && code < 0xE000 ? code - 0x800 : code);
  }
  void append_emoji(std::string& text) {
    append(text, 0x1F300 + draw(0x800));
    switch (draw(4)) {
      case 1:
        append(text, 0x1F3FB + draw(5));
        break;
      case 2:
        append(text, 0xFE0F);
        break;
      case 3:
        append(text, 0x200D);
        append(text, 0x1F300 + draw(0x800));
        break;
      default:
        break;
    }
  }
  void append_ending_or_long_word(std::string& text) {
    constexpr std::string_view kEndings[] = {"s",  "t", "re", "ve", "m",
                                             "ll", "d", "S",  "x"};
    if (draw(8) != 0) {
      text += '\'';
      text += kEndings[draw(std::size(kEndings))];
      return;
    }
    for (std::uint64_t length = 80 + draw(320); length > 0; --length) {
      text += static_cast<char>('a' + draw(4));
    }
  }
  void append_piece(std::string& text);

  std::string sample_, damaged_;
  std::uint64_t state_ = 0;
};

inline void MixedText::append_piece(std::string& text) {
  constexpr char32_t kSpaces[] = U"\n\t\r \u00a0\u2003\u3000\u0085";
  constexpr std::string_view kSymbols = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
  const std::uint64_t kind = draw(16);
  switch (kind) {
    case 5: {  // cut anywhere
      const std::size_t begin = draw(damaged_.size());
      text.append(damaged_, begin, 1 + draw(48));
      break;
    }
    case 6:
      text += ' ';
      some(12, [&] { append(text, 'a' + draw(26)); });
      break;
    case 7:
      some(8, [&] { append(text, draw(0x3000)); });
      break;
    case 8:
      some(3, [&] { append_any_character(text); });
      break;
    case 9:
      some(2, [&] { append_emoji(text); });
      break;
    case 10:
      some(9, [&] { append(text, '0' + draw(10)); });
      break;
    case 11:
      some(6, [&] { append(text, kSpaces[draw(std::size(kSpaces) - 1)]); });
      break;
    case 12:
      some(3, [&] {
        const std::uint64_t control = draw(32);
        append(text, control + (draw(2) != 0 ? 0x80 : 0));
      });
      break;
    case 13:
      some(4, [&] { text += static_cast<char>(draw(256)); });
      break;
    case 14:
      some(6, [&] { text += kSymbols[draw(kSymbols.size())]; });
      break;
    case 15:
      append_ending_or_long_word(text);
      break;
    default:
      append_whole_characters(text);
  }
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_DATA_MIXED_TEXT_HPP_
