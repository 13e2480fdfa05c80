// data/byte_alphabet.cpp — see byte_alphabet.hpp.
#include "data/byte_alphabet.hpp"

#include <algorithm>

#include "base/utf8.hpp"

namespace trireme::data {

ByteAlphabet::ByteAlphabet() {
  byte_.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    character_[byte] = printable ? static_cast<char32_t>(byte) : next++;
    byte_[character_[byte]] = static_cast<std::int16_t>(byte);
  }
}

std::array<std::uint8_t, 256> ByteAlphabet::bytes_by_character() const {
  std::array<std::uint8_t, 256> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes[byte] = static_cast<std::uint8_t>(byte);
  std::ranges::sort(bytes, {}, [this](auto byte) { return character_[byte]; });
  return bytes;
}

std::string ByteAlphabet::to_text(std::string_view bytes) const {
  std::string text;
  for (const char byte : bytes) {
    append_utf8(character_[static_cast<std::uint8_t>(byte)], text);
  }
  return text;
}

std::optional<std::string> ByteAlphabet::to_bytes(std::string_view text) const {
  if (valid_utf8_prefix(text) != text.size()) return std::nullopt;
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (point.value >= kEnd || byte_[point.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte_[point.value]));
    at += point.length;
  }
  return bytes;
}

}  // namespace trireme::data
