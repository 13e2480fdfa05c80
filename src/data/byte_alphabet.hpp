// data/byte_alphabet.hpp — GPT-2's printable names of the 256 bytes.
//
// Vocabulary files are text, so each byte has a visible character: printable Latin-1
// stands for itself, the 68 others take U+0100, U+0101 ... in order (a space is U+0120).
#ifndef TRIREME_DATA_BYTE_ALPHABET_HPP_
#define TRIREME_DATA_BYTE_ALPHABET_HPP_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

class ByteAlphabet {
 public:
  ByteAlphabet();

  char32_t character(std::uint8_t byte) const { return character_[byte]; }
  // Bytes in the order of their characters, in which trained vocabularies number them.
  std::array<std::uint8_t, 256> bytes_by_character() const;

  // Visible text of a token, as in vocab.json.
  std::string to_text(std::string_view bytes) const;
  // The bytes that a text stands for; none when it has a character that stands for no
  // byte.
  std::optional<std::string> to_bytes(std::string_view text) const;

 private:
  static constexpr char32_t kEnd = 0x144;  // one past the largest character
  std::array<char32_t, 256> character_;
  std::array<std::int16_t, kEnd> byte_;  // -1: stands for none
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_BYTE_ALPHABET_HPP_
