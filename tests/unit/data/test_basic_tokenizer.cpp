// BERT's basic tokenizer: words by hand, and those of Hugging Face's tokenizers of every
// character and of mixed text (fixtures/tokenizer/basic.json has their sums).
#include "data/basic_tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/utf8.hpp"
#include "unit/data/fixtures.hpp"
#include "unit/data/mixed_text.hpp"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> words_of(
    std::string_view text,
    const BasicTokenizerOptions& options = BasicTokenizerOptions::uncased()) {
  const BasicTokenizer tokenizer(options);
  BasicTokenizer::Scanner scanner(tokenizer);
  scanner.start(text);
  std::vector<std::string> words;
  Word word;
  while (scanner.next(word)) words.emplace_back(word.text);
  return words;
}

std::vector<std::string> cased_words_of(std::string_view text) {
  return words_of(text, BasicTokenizerOptions::cased());
}

TEST(BasicTokenizer, SplitsAtWhiteSpaceAndPunctuation) {
  EXPECT_THAT(words_of(""), ElementsAre());
  EXPECT_THAT(words_of(" \t\n"), ElementsAre());
  EXPECT_THAT(words_of("Hello, World!  It's 3.5\n"),
              ElementsAre("hello", ",", "world", "!", "it", "'", "s", "3", ".", "5"));
  EXPECT_THAT(cased_words_of("Hello, World!"), ElementsAre("Hello", ",", "World", "!"));
  EXPECT_THAT(words_of("a$b^c`d~e|"),
              ElementsAre("a", "$", "b", "^", "c", "`", "d", "~", "e", "|"));
  EXPECT_THAT(words_of("a\u00a0b\u2003c\u3000d\u2028e"),
              ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_THAT(words_of("\u201cx\u201d\u2014y\u2026"),
              ElementsAre("\u201c", "x", "\u201d", "\u2014", "y", "\u2026"));
  EXPECT_THAT(words_of("1\u20ac2"), ElementsAre("1\u20ac2"));  // a symbol of currency
}

TEST(BasicTokenizer, StripsAccentsAndLowersCase) {
  EXPECT_THAT(words_of("Gr\u00f6\u00dfe \u00c9T\u00c9 na\u00efve"),
              ElementsAre("gro\u00dfe", "ete", "naive"));
  EXPECT_THAT(cased_words_of("Gr\u00f6\u00dfe \u00c9T\u00c9"),
              ElementsAre("Gr\u00f6\u00dfe", "\u00c9T\u00c9"));
  // Each character alone: a sigma at the end of a word is like any other.
  EXPECT_THAT(words_of("\u0391\u03a3"), ElementsAre("\u03b1\u03c3"));
  EXPECT_THAT(words_of("\u0130"), ElementsAre("i"));
  EXPECT_THAT(words_of("\u0130", {.strip_accents = false}), ElementsAre("i\u0307"));
  EXPECT_THAT(words_of("\u00c9e\u0301", {.lowercase = false}), ElementsAre("Ee"));
  EXPECT_THAT(words_of("\ud55c\uac00"),
              ElementsAre("\u1112\u1161\u11ab\u1100\u1161"));  // Hangul
  // Decomposed into punctuation, which is a word of its own then.
  EXPECT_THAT(words_of("a\u2260b\u1fefc\u037e"),
              ElementsAre("a", "=", "b", "`", "c", ";"));
  EXPECT_THAT(cased_words_of("a\u2260b"), ElementsAre("a\u2260b"));
}

TEST(BasicTokenizer, RemovesControls) {
  const std::string text = std::string("a\0b", 3) +
                           "\x01"
                           "c\u200bd\u00ade\ufefff\ufffdg\ue000h\x7f";
  EXPECT_THAT(words_of(text), ElementsAre("abcdefgh"));
  EXPECT_THAT(words_of("a\vb\fc\u0085d\re"), ElementsAre("abcd", "e"));
  // Kept where text is not cleaned, but white space is white space.
  const BasicTokenizerOptions as_it_is{.clean_text = false};
  EXPECT_THAT(words_of(std::string_view("a\0b", 3), as_it_is),
              ElementsAre(std::string("a\0b", 3)));
  EXPECT_THAT(words_of("a\vb\ufffdc\u200b", as_it_is),
              ElementsAre("a", "b\ufffdc\u200b"));
}

TEST(BasicTokenizer, IsolatesChineseCharacters) {
  EXPECT_THAT(words_of("a\u4e2d\u6587b"), ElementsAre("a", "\u4e2d", "\u6587", "b"));
  EXPECT_THAT(words_of("\u4e2d\u6587", {.handle_chinese_chars = false}),
              ElementsAre("\u4e2d\u6587"));
  EXPECT_THAT(words_of("\uf900x"), ElementsAre("\u8c48", "x"));  // for compatibility
  EXPECT_THAT(words_of("\u304b\u306a\u30ab"), ElementsAre("\u304b\u306a\u30ab"));
  // Chinese to BERT's own code, but not to `tokenizers`.
  EXPECT_THAT(words_of("a\U0002b820z\U0002b920"),
              ElementsAre("a\U0002b820z", "\U0002b920"));
}

TEST(BasicTokenizer, PutsMarksThatStayInOrder) {
  const std::string low = "\u1b44";   // class 9
  const std::string high = "\u302e";  // class 224
  EXPECT_THAT(words_of("a" + high + low), ElementsAre("a" + low + high));
  EXPECT_THAT(words_of(high + low + "b"), ElementsAre(low + high + "b"));
  EXPECT_THAT(words_of("a" + high + "\u0301" + low), ElementsAre("a" + low + high));
  EXPECT_THAT(words_of("a" + high + "\u0941" + low),  // a vowel sign of class 0
              ElementsAre("a" + high + low));
  EXPECT_THAT(words_of(high + " " + low), ElementsAre(high, low));
  EXPECT_THAT(cased_words_of("a" + high + low), ElementsAre("a" + high + low));
}

TEST(BasicTokenizer, TakesLongRuns) {
  EXPECT_EQ(words_of(std::string(3000000, 'X')).front(), std::string(3000000, 'x'));
  EXPECT_EQ(words_of(std::string(100000, '.')).size(), 100000u);
  std::string marks, low, high;
  for (int i = 0; i < 200000; ++i) {
    marks += "\u302e\u1b44";
    low += "\u1b44";
    high += "\u302e";
  }
  const std::vector<std::string> words = words_of(marks);
  ASSERT_EQ(words.size(), 1u);
  EXPECT_TRUE(words.front() == low + high);
}

TEST(BasicTokenizer, SaysWhereWordsComeFrom) {
  const BasicTokenizer tokenizer(BasicTokenizerOptions::uncased());
  BasicTokenizer::Scanner scanner(tokenizer);
  // What is removed at the edges of a word is outside, inside it is not.
  scanner.start("\u00c9t\u0301e\u0301,  \u0301ab\x01 a\x01z");
  std::vector<std::pair<std::size_t, std::size_t>> places;
  Word word;
  while (scanner.next(word)) places.emplace_back(word.begin, word.end);
  EXPECT_THAT(places, ElementsAre(std::pair(0, 6), std::pair(8, 9), std::pair(13, 15),
                                  std::pair(17, 20)));
  // A scanner starts anew, wherever it was.
  scanner.start("b c");
  ASSERT_TRUE(scanner.next(word));
  scanner.start("d");
  ASSERT_TRUE(scanner.next(word));
  EXPECT_EQ(word.text, "d");
  EXPECT_EQ(word.begin, 0u);
  EXPECT_FALSE(scanner.next(word));
}

std::string random_text(std::uint64_t& state, std::size_t bytes, unsigned most) {
  std::string text;
  while (text.size() < bytes) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;  // Knuth's
    text += static_cast<char>((state >> 33) % most);
  }
  return text;
}

TEST(BasicTokenizer, OfAsciiIsWhatThePlainRuleSays) {
  std::uint64_t state = 1;
  for (std::size_t bytes = 0; bytes < 3000; bytes += 29) {
    const std::string text = random_text(state, bytes, 128);
    std::vector<std::string> expected;
    bool in_word = false;
    for (const char byte : text) {
      const int value = static_cast<unsigned char>(byte);
      const bool white = byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
      if (std::iscntrl(value) != 0 && !white) continue;
      if (std::isalnum(value) != 0) {
        if (!in_word) expected.emplace_back();
        expected.back() += static_cast<char>(std::tolower(value));
      } else if (!white) {
        expected.emplace_back(1, byte);
      }
      in_word = std::isalnum(value) != 0;
    }
    ASSERT_EQ(words_of(text), expected);
  }
}

// Whatever the bytes: words are in order and not empty, and the bytes that one came from
// give it again.
TEST(BasicTokenizer, OfRandomBytesHasWordsInPlace) {
  const BasicTokenizer tokenizers[] = {
      BasicTokenizer(BasicTokenizerOptions::uncased()),
      BasicTokenizer(BasicTokenizerOptions::cased()),
      BasicTokenizer({.clean_text = false, .handle_chinese_chars = false})};
  test::MixedText mixed(io::read_file(test::fixture("sample.txt")),
                        io::read_file(test::fixture("invalid.bin")));
  std::uint64_t state = 2;
  for (std::uint64_t number = 0; number < 60; ++number) {
    const std::string damaged =
        number % 2 == 0 ? random_text(state, 4000, 256) : mixed.document(number, 4000);
    std::string repaired;
    std::uint64_t replaced = 0;
    const std::string_view text = valid_utf8(damaged, repaired, replaced);
    for (const BasicTokenizer& tokenizer : tokenizers) {
      BasicTokenizer::Scanner scanner(tokenizer), again(tokenizer);
      scanner.start(text);
      std::size_t end = 0;
      Word word, same;
      while (scanner.next(word)) {
        ASSERT_FALSE(word.text.empty());
        ASSERT_EQ(valid_utf8_prefix(word.text), word.text.size());
        ASSERT_LE(end, word.begin);
        ASSERT_LT(word.begin, word.end);
        ASSERT_LE(word.end, text.size());
        end = word.end;
        again.start(text.substr(word.begin, word.end - word.begin));
        ASSERT_TRUE(again.next(same));
        ASSERT_EQ(same.text, word.text);
        ASSERT_FALSE(again.next(same));
      }
    }
  }
}

// Whether a sum has where words are, too.
enum class Places { too, left_out };

// The sum that make_basic_tokenizer_fixtures.py makes: FNV-1a with 32-bit words in the
// place of bytes.
class Sum {
 public:
  explicit Sum(const BasicTokenizerOptions& options, Places places = Places::too)
      : tokenizer_(options), scanner_(tokenizer_), places_(places) {}

  void add_text(std::string_view text) {
    scanner_.start(text);
    Word word;
    while (scanner_.next(word)) add_word(word);
    add(0xFFFFFFFF);
  }
  std::string take() { return fmt::format("{:016x}", std::exchange(value_, kBasis)); }

 private:
  static constexpr std::uint64_t kBasis = 0xCBF29CE484222325ull;
  void add(std::size_t word) { value_ = (value_ ^ word) * 0x100000001B3ull; }
  void add_word(const Word& word) {
    std::size_t characters = 0;
    for (const char byte : word.text) {
      characters += (static_cast<unsigned char>(byte) & 0xC0) != 0x80 ? 1 : 0;
    }
    add(characters);
    for (std::size_t at = 0; at < word.text.size();) {
      const CodePoint point = code_point_at(word.text, at);
      add(point.value);
      at += static_cast<std::size_t>(point.length);
    }
    if (places_ == Places::left_out) return;
    add(word.begin);
    add(word.end);
  }

  BasicTokenizer tokenizer_;
  BasicTokenizer::Scanner scanner_;
  Places places_;
  std::uint64_t value_ = kBasis;
};

nlohmann::json sums() {
  return nlohmann::json::parse(io::read_file(test::fixture("basic.json")));
}

// A block's characters but surrogates, with these letters around each, between spaces.
constexpr char32_t kBlock = 0x1000;
std::string text_of_block(char32_t first, const char* before, const char* after) {
  std::string text;
  for (char32_t character = first; character < first + kBlock; ++character) {
    if (character >= 0xD800 && character < 0xE000) continue;
    if (!text.empty()) text += ' ';
    text += before;
    append_utf8(character, text);
    text += after;
  }
  return text;
}
void add_block(Sum& sum, char32_t first) {
  sum.add_text(text_of_block(first, "", ""));
  sum.add_text(text_of_block(first, "a", "b"));
}

struct Usual {
  const char* name;
  BasicTokenizerOptions options;
};
const Usual kUsual[] = {{"uncased", BasicTokenizerOptions::uncased()},
                        {"cased", BasicTokenizerOptions::cased()}};

TEST(BasicTokenizerFixture, HasTheWordsOfEveryCharacter) {
  const nlohmann::json expected = sums();
  for (const Usual& usual : kUsual) {
    const nlohmann::json& blocks = expected.at(usual.name).at("characters");
    ASSERT_EQ(blocks.size(), 0x110000 / kBlock);
    Sum sum(usual.options);
    for (char32_t block = 0; block < blocks.size(); ++block) {
      add_block(sum, block * kBlock);
      EXPECT_EQ(sum.take(), blocks[block].get<std::string>())
          << usual.name << fmt::format(": U+{:04X}...", std::uint32_t{block * kBlock});
    }
  }
}

// A character that is a whole text is what it is between spaces.
TEST(BasicTokenizer, OfACharacterAloneIsThatBetweenSpaces) {
  const BasicTokenizer tokenizer(BasicTokenizerOptions::uncased());
  BasicTokenizer::Scanner alone(tokenizer), between(tokenizer);
  for (char32_t character = 0; character < 0x110000; ++character) {
    if (character >= 0xD800 && character < 0xE000) continue;
    std::string text;
    append_utf8(character, text);
    const std::string spaced = " " + text + " ";
    alone.start(text);
    between.start(spaced);
    Word word, same;
    while (between.next(same)) {
      ASSERT_TRUE(alone.next(word)) << std::uint32_t{character};
      ASSERT_EQ(word.text, same.text) << std::uint32_t{character};
    }
    ASSERT_FALSE(alone.next(word)) << std::uint32_t{character};
  }
}

TEST(BasicTokenizerFixture, HasTheWordsOfManyCharactersByAllOptions) {
  const nlohmann::json expected = sums();
  const nlohmann::json& records = expected.at("options");
  ASSERT_EQ(records.size(), 16u);
  for (const nlohmann::json& record : records) {
    const auto flag = [&](const char* name) { return record.at(name).get<bool>(); };
    Sum sum({.clean_text = flag("clean_text"),
             .handle_chinese_chars = flag("handle_chinese_chars"),
             .strip_accents = flag("strip_accents"),
             .lowercase = flag("lowercase")});
    for (char32_t block = 0; block < 0x20; ++block) add_block(sum, block * kBlock);
    for (char32_t block = 0x2A; block < 0x30; ++block) add_block(sum, block * kBlock);
    add_block(sum, 0xE0 * kBlock);
    EXPECT_EQ(sum.take(), record.at("characters").get<std::string>()) << record.dump();
  }
}

TEST(BasicTokenizerFixture, HasTheWordsOfMixedText) {
  const nlohmann::json expected = sums();
  test::MixedText texts(io::read_file(test::fixture("sample.txt")),
                        io::read_file(test::fixture("invalid.bin")));
  Sum uncased(kUsual[0].options, Places::left_out), cased(kUsual[1].options);
  const std::size_t documents = expected.at("uncased").at("mixed").size();
  ASSERT_EQ(documents, 64u);
  for (std::size_t number = 0; number < documents; ++number) {
    const std::string document = texts.document(number, std::size_t{1} << 18);
    std::string repaired;
    std::uint64_t replaced = 0;
    const std::string_view text = valid_utf8(document, repaired, replaced);
    uncased.add_text(text);
    cased.add_text(text);
    EXPECT_EQ(uncased.take(), expected.at("uncased").at("mixed")[number]) << number;
    EXPECT_EQ(cased.take(), expected.at("cased").at("mixed")[number]) << number;
  }
}

TEST(BasicTokenizerFixture, HasMarksInOrder) {
  const nlohmann::json expected = sums();
  for (const Usual& usual : kUsual) {
    Sum sum(usual.options, Places::left_out);
    for (const nlohmann::json& text : expected.at("marks")) {
      sum.add_text(text.get<std::string>());
    }
    EXPECT_EQ(sum.take(), expected.at(usual.name).at("marks")) << usual.name;
  }
}

}  // namespace
}  // namespace trireme::data
