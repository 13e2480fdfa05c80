// Sentences by hand in nine languages (sentence_cases.hpp). Then any bytes: begins
// ascend, cover the document and stand between characters.
#include "data/sentences.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "data/sentence_characters.hpp"
#include "unit/data/sentence_cases.hpp"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::size_t> begins_of(std::string_view language, std::string_view text) {
  std::vector<std::size_t> begins = {17, 4};  // split() replaces what was there
  SentenceSplitter(language_of(language)).split(text, begins);
  return begins;
}

TEST(Sentences, BeginWhereTheCasesSay) {
  std::size_t count = 0;
  for (const test::SentenceTable& table : test::kSentenceTables) {
    for (const std::string_view expected : table.cases) {
      std::string text(expected);
      std::erase(text, '|');
      const std::vector<std::size_t> begins = begins_of(table.language, text);
      for (std::size_t i = begins.size(); i > 1; --i) text.insert(begins[i - 1], 1, '|');
      EXPECT_EQ(text, expected) << table.language;
      ++count;
    }
  }
  EXPECT_GE(count, 200u);
}

TEST(Sentences, AreNoneInAnEmptyDocumentAndOneInBlanks) {
  EXPECT_THAT(begins_of("en", ""), IsEmpty());
  EXPECT_THAT(begins_of("en", " \n\n \n"), ElementsAre(0));
  EXPECT_THAT(begins_of("en", "\n\n A. b"), ElementsAre(0));
  EXPECT_THAT(begins_of("en", "..."), ElementsAre(0));
}

TEST(Sentences, LanguagesHaveCodes) {
  for (const std::string_view code :
       {"en", "de", "fr", "es", "it", "pt", "nl", "zh", "ja", "none"}) {
    EXPECT_EQ(code_of(language_of(code)), code);
  }
  try {
    language_of("english");
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'english'"), HasSubstr("en, de, fr")));
  }
}

TEST(Sentences, InvalidUtf8IsNoLetter) {
  // A stray byte, an unfinished character, and a mark cut short or without its first
  // byte.
  EXPECT_THAT(begins_of("en", "One. \x80Two. Three"), ElementsAre(0, 11));
  EXPECT_THAT(begins_of("en", "One. \xE4\xB8. Three"), ElementsAre(0, 9));
  EXPECT_THAT(begins_of("zh", "\xE3\x80 Two. \xE3\x80"), ElementsAre(0));
  EXPECT_THAT(begins_of("zh", "\x80\x82Two. Three"), ElementsAre(0, 7));
  EXPECT_THAT(begins_of("en", "One\n\n\xFFTwo\n\n\xE2"), ElementsAre(0, 5, 11));
  EXPECT_THAT(begins_of("en", "\xC2.\xC2 Mr\xC2. Two\xE2\x80"), ElementsAre(0, 9));
}

// True where text[at] lies within a valid character that begins before it.
bool is_within_character(std::string_view text, std::size_t at) {
  for (std::size_t length = 2; length <= 4; ++length) {
    for (std::size_t before = 1; before < length && before <= at; ++before) {
      const std::string_view sequence = text.substr(at - before, length);
      if (sequence.size() == length && (sequence[0] & 0x80) != 0 &&
          valid_utf8_prefix(sequence) == length &&
          code_point_at(sequence, 0).length == static_cast<int>(length)) {
        return true;
      }
    }
  }
  return false;
}

void expect_sound(std::string_view language, std::string_view text) {
  const std::vector<std::size_t> begins = begins_of(language, text);
  ASSERT_EQ(begins.empty(), text.empty());
  for (std::size_t i = 0; i < begins.size(); ++i) {
    ASSERT_EQ(begins[0], 0u);
    const std::size_t end = i + 1 < begins.size() ? begins[i + 1] : text.size();
    ASSERT_LT(begins[i], end) << language;
    ASSERT_FALSE(is_within_character(text, begins[i])) << language << " " << begins[i];
    if (begins.size() == 1) continue;
    const std::string_view sentence = text.substr(begins[i], end - begins[i]);
    const Blanks blanks = blanks_at(sentence, 0);
    ASSERT_LT(blanks.end, sentence.size()) << "nothing but white space";
    if (i > 0) {
      ASSERT_EQ(blanks.end, 0u) << "white space belongs to the sentence before";
    }
  }
}

std::string any_text(std::mt19937_64& random, bool is_any_byte) {
  constexpr std::string_view kPieces[] = {
      ".",    "!",    "?",    " ",   "\n", "\r",     "A",  "b",  "7",   "Mr", "z.B",
      "\"",   "'",    "”",    "“",   "«",  "»",      "(",  ")",  "…",   "。", "！",
      "と",   "中",   "é",    "É",   "　", "I.",     "-",  "—",  "\t",  "😀",  "\xE3",
      "\x80", "\xE2", "\xEF", "XIV", "’s", "\u00a0", "II", "No", "The", "1."};
  std::string text;
  for (std::size_t i = random() % 48; i > 0; --i) {
    if (is_any_byte) text += static_cast<char>(random());
    if (!is_any_byte) text += kPieces[random() % std::size(kPieces)];
  }
  return text;
}

TEST(Sentences, OfAnyBytesAscendCoverAndStandBetweenCharacters) {
  std::mt19937_64 random(20);
  for (int round = 0; round < 4000; ++round) {
    const std::string text = any_text(random, round % 4 == 0);
    for (const std::string_view language : {"en", "de", "nl", "ja", "none"}) {
      ASSERT_NO_FATAL_FAILURE(expect_sound(language, text));
    }
  }
}

TEST(Sentences, AreTheSameWhereADocumentIsCutAtABlankLine) {
  std::mt19937_64 random(21);
  for (int round = 0; round < 4000; ++round) {
    const std::string first = "A" + any_text(random, round % 4 == 0) + "\n\n";
    const std::string second = "b" + any_text(random, round % 4 == 0);
    for (const std::string_view language : {"en", "de", "fr", "nl", "ja", "none"}) {
      std::vector<std::size_t> expected = begins_of(language, first);
      for (const std::size_t begin : begins_of(language, second)) {
        expected.push_back(first.size() + begin);
      }
      ASSERT_EQ(begins_of(language, first + second), expected) << first << "#" << second;
    }
  }
}

TEST(Sentences, TakeLongRunsInLinearTime) {
  for (const std::string_view piece : {".", " ", "\n", ". ", ". - ", "« ", "\"", "a.",
                                       "。", "1. ", "\xE3", "» . ", ".\n\n- "}) {
    std::string text;
    while (text.size() < 200000) text += piece;
    for (const std::string_view language : {"en", "de", "nl", "none"}) {
      const std::vector<std::size_t> begins = begins_of(language, "A" + text + " B");
      EXPECT_EQ(begins[0], 0u);
    }
  }
}

}  // namespace
}  // namespace trireme::data
