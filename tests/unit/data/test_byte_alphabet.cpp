// The alphabet of bytes that byte-level tokenizers spell their tokens in.
#include "data/byte_alphabet.hpp"

#include <gtest/gtest.h>

#include <set>

#include "base/utf8.hpp"

namespace trireme::data {
namespace {

TEST(ByteAlphabet, NamesEachByteOnce) {
  const ByteAlphabet alphabet;
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(alphabet.to_bytes(alphabet.to_text(all)), all);
  EXPECT_EQ(alphabet.to_text(" a\n"),
            "\xC4\xA0"
            "a"
            "\xC4\x8A");                                   // Ġ a Ċ
  EXPECT_EQ(alphabet.to_bytes("a b"), std::nullopt);       // a space names no byte
  EXPECT_EQ(alphabet.to_bytes("\xC5\x84"), std::nullopt);  // U+0144: one too far
  EXPECT_EQ(alphabet.bytes_by_character()[0], '!');
}

}  // namespace
}  // namespace trireme::data
