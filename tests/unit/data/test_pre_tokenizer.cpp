// GPT-2's pattern: pieces by hand, characters that Unicode added late, long runs.
#include "data/pre_tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> pieces(std::string_view text,
                                const PreTokenizer& pre = PreTokenizer::gpt2()) {
  PreTokenizer::Scanner scanner(pre);
  scanner.start(text);
  std::vector<std::string> found;
  std::string_view piece;
  while (scanner.next(piece)) found.emplace_back(piece);
  return found;
}

TEST(PreTokenizerGpt2, CutsAsThePatternSays) {
  EXPECT_THAT(pieces(""), ElementsAre());
  EXPECT_THAT(pieces("They'll say 12 it's!!"),
              ElementsAre("They", "'ll", " say", " 12", " it", "'s", "!!"));
  EXPECT_THAT(pieces("a  b \n c   "), ElementsAre("a", " ", " b", " \n", " c", "   "));
  EXPECT_THAT(pieces("I'M x_1"), ElementsAre("I", "'", "M", " x", "_", "1"));
  EXPECT_THAT(pieces("a\xC2\xA0"
                     "b"),
              ElementsAre("a", "\xC2\xA0", "b"));  // no-break space
}

TEST(PreTokenizerGpt2, KnowsRecentLettersWhateverPcreKnows) {
  const std::string kawi = "\xF0\x91\xBC\x92";   // U+11F12, a letter of Unicode 15
  const std::string digit = "\xF0\x90\xB5\x80";  // U+10D40, a digit of Unicode 16
  const std::string separator = "\xE1\xA0\x8E";  // U+180E: no white space since 6.3
  EXPECT_THAT(pieces("a" + kawi + "b 1"), ElementsAre("a" + kawi + "b", " 1"));
  EXPECT_THAT(pieces("1" + digit + " x"), ElementsAre("1" + digit, " x"));
  EXPECT_THAT(pieces("! " + separator + "!  a"),
              ElementsAre("!", " " + separator + "!", " ", " a"));
  // Both patterns do the same to text before such a character.
  const std::string text = "They'll  say\n\n 12\xC2\xA0\xE2\x80\x83x it's!! \t";
  std::vector<std::string> expected = pieces(text);
  std::vector<std::string> found = pieces(text + "#" + digit);
  expected.back() = found[expected.size() - 1];  // trailing white space is the exception
  found.resize(expected.size());
  EXPECT_EQ(found, expected);
}

TEST(PreTokenizerGpt2, TakesLongRuns) {
  const std::string spaces(3000000, ' ');
  EXPECT_THAT(pieces(spaces + "a"), ElementsAre(spaces.substr(1), " a"));
  EXPECT_EQ(pieces(std::string(3000000, 'x')).size(), 1u);
  EXPECT_EQ(pieces(std::string(3000000, '\n') + std::string(100000, '.')).size(), 3u);
}

TEST(PreTokenizerPattern, GivesWhatLiesBetweenMatchesToo) {
  EXPECT_THAT(pieces("ab12cd", PreTokenizer("[0-9]")), ElementsAre("ab", "1", "2", "cd"));
  EXPECT_THAT(pieces("abc", PreTokenizer("x*")), ElementsAre("abc"));  // no empty pieces
  EXPECT_THAT(pieces("a b", PreTokenizer::none()), ElementsAre("a b"));
}

TEST(PreTokenizerPattern, RefusesWhatPcreRefuses) {
  EXPECT_THAT(test::message_of<InputError>([] { PreTokenizer("a("); }),
              HasSubstr("pre-tokenizer pattern 'a(': missing closing parenthesis"));
}

}  // namespace
}  // namespace trireme::data
