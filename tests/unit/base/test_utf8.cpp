// Repair of UTF-8 against the examples of the Unicode standard (table 3-8) and a plain
// decoder.
#include "base/utf8.hpp"

#include <gtest/gtest.h>

#include <random>

namespace trireme {
namespace {

std::string repaired(std::string_view text, std::uint64_t* count = nullptr) {
  std::string out;
  const std::uint64_t replaced = append_repaired(text, out);
  if (count != nullptr) *count = replaced;
  return out;
}

TEST(Utf8Repair, ReplacesEachMaximalSubpart) {
  constexpr const char* r = "\xEF\xBF\xBD";
  const auto marks = [&](int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += r;
    return text;
  };
  std::uint64_t count = 0;
  // Overlong forms, surrogates, out of range: one mark per byte.
  EXPECT_EQ(repaired("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", &count), marks(8) + "A");
  EXPECT_EQ(count, 8u);
  EXPECT_EQ(repaired("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), marks(8) + "A");
  EXPECT_EQ(repaired("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            marks(5) + "A" + marks(2) + "B");
  // Truncated sequences: one mark each.
  EXPECT_EQ(repaired("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), marks(4) + "A");
  EXPECT_EQ(repaired("x\xF0\x9F\x98"), std::string("x").append(r));
  EXPECT_EQ(repaired("", &count), "");
  EXPECT_EQ(count, 0u);
}

TEST(Utf8Repair, KeepsEveryCodePoint) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, text);
    ASSERT_EQ(valid_utf8_prefix(text), text.size())
        << std::hex << static_cast<unsigned>(c);
    ASSERT_EQ(code_point_at(text, 0).value, c);
    ASSERT_EQ(static_cast<std::size_t>(code_point_at(text, 0).length), text.size());
    ASSERT_EQ(unfinished_suffix(text), 0u);
    if (text.size() > 1) {
      ASSERT_EQ(unfinished_suffix("abc" + text.substr(0, text.size() - 1)),
                text.size() - 1);
    }
  }
}

TEST(Utf8Repair, OfAnythingIsValid) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 40, ' ');
    for (char& byte : text) byte = static_cast<char>(random() % 2 ? random() : 0x41);
    const std::string whole = repaired(text);
    ASSERT_EQ(valid_utf8_prefix(whole), whole.size());
    ASSERT_EQ(repaired(whole), whole);
  }
}

}  // namespace
}  // namespace trireme
