// Letters and their case, reading of characters forwards and backwards, marks and blanks.
#include "data/sentence_characters.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace trireme::data {
namespace {

TEST(SentenceCharacters, KnowTheCaseOfLetters) {
  for (const char32_t c : U"abzßàöøÿāőžžșặẗαωάабяёѓҁґ") {
    if (c != 0) {
      EXPECT_EQ(letter_kind(c), LetterKind::small) << static_cast<int>(c);
    }
  }
  for (const char32_t c : U"ABZÀÖØÞĀŐŽŸȘẶẞΑΩΆАБЯЁЃҐӀ中あア한אعअ") {
    if (c != 0) {
      EXPECT_EQ(letter_kind(c), LetterKind::capital) << static_cast<int>(c);
    }
  }
  for (const char32_t c : U" .«»×÷‐—…。「『、・😀\uFFFD\u200B") {
    if (c != 0) {
      EXPECT_EQ(letter_kind(c), LetterKind::none) << static_cast<int>(c);
    }
  }
  EXPECT_EQ(letter_kind(U'7'), LetterKind::digit);
  EXPECT_EQ(letter_kind(U'７'), LetterKind::digit);
}

TEST(SentenceCharacters, AreReadBothWays) {
  constexpr std::string_view kText = "aé中😀\x80";
  EXPECT_EQ(character_at(kText, 1).value, U'é');
  EXPECT_EQ(character_at(kText, 2).value, U'\uFFFD');
  EXPECT_EQ(character_before(kText, 0).length, 0u);
  EXPECT_EQ(character_before(kText, 1).value, U'a');
  EXPECT_EQ(character_before(kText, 3).value, U'é');
  EXPECT_EQ(character_before(kText, 6).value, U'中');
  EXPECT_EQ(character_before(kText, 10).value, U'😀');
  EXPECT_EQ(character_before(kText, 9).length, 1u);
  EXPECT_EQ(character_before(kText, 11).value, U'\uFFFD');
  EXPECT_EQ(character_at(kText, 11).length, 0u);
}

TEST(SentenceCharacters, MarksAreOfFiveKinds) {
  for (const std::string_view text :
       {"a", ",", "é", "，", "、", "「", "\xE2\x80", "\xE3", ""}) {
    EXPECT_EQ(mark_at(text, 0).mark, Mark::none) << text;
  }
  EXPECT_EQ(mark_at(".", 0).mark, Mark::full);
  for (const std::string_view text : {"!", "?", "‼", "⁇", "⁈", "⁉"}) {
    EXPECT_EQ(mark_at(text, 0).mark, Mark::strong) << text;
    EXPECT_EQ(mark_at(text, 0).length, text.size());
  }
  EXPECT_EQ(mark_at("a…", 1).mark, Mark::ellipsis);
  for (const std::string_view text : {"。", "！", "？", "｡"}) {
    EXPECT_EQ(mark_at(text, 0).mark, Mark::wide) << text;
    EXPECT_EQ(mark_at(text, 0).length, 3u);
  }
}

TEST(SentenceCharacters, BlanksHaveLineEndsAndMayHoldTogether) {
  constexpr std::string_view kSpaces = "\t\v\f \u0085\u1680\u2003\u2028\u205f\u3000a";
  EXPECT_EQ(blanks_at(kSpaces, 0).end, kSpaces.size() - 1);
  EXPECT_EQ(blanks_at("a", 0).end, 0u);
  EXPECT_FALSE(blanks_at("a", 0).can_break);
  EXPECT_FALSE(blanks_at("\u00a0\u202f", 0).can_break);
  EXPECT_TRUE(blanks_at("\u00a0 ", 0).can_break);
  EXPECT_EQ(blanks_at(" \n \r\n\r", 0).line_ends, 3);
  EXPECT_EQ(blanks_at("\u200B", 0).end, 0u);  // zero width space
}

}  // namespace
}  // namespace trireme::data
