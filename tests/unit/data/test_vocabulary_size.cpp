// The length of a list of words against what the files of its model beside it say.
#include "data/vocabulary_size.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "data/tokenizer.hpp"
#include "data/word_piece_files.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kTaken = "(nothing thrown)";

// Of published BERTs, rows of the table and lines of the list, and the fewest lines that
// are taken.
TEST(VocabularySize, TakesWhatPublishedModelsPad) {
  struct Published {
    index_t rows, lines, least;
  };
  constexpr Published kPublished[] = {
      {30522, 30522, 30522},     // bert-base-uncased
      {28996, 28996, 28996},     // bert-base-cased
      {119547, 119547, 119547},  // bert-base-multilingual-cased
      {21128, 21128, 21121},     // bert-base-chinese
      {30528, 30522, 30465},     // NVIDIA's bert-base-uncased
      {29056, 28996, 28929},     // megatron-bert-cased-345m
      {30592, 30522, 30465},     // megatron-bert-uncased-345m
      {18000, 17964, 17873},     // ERNIE 1.0
  };
  for (const auto& [rows, lines, least] : kPublished) {
    SCOPED_TRACE(rows);
    EXPECT_EQ(rows - most_padding(rows), least);
    EXPECT_LE(least, lines);
  }
  for (const index_t rows : {-8, 0, 1, 2, 4, 97})
    EXPECT_EQ(most_padding(rows), 0) << rows;
}

class VocabularySizeBeside : public ::testing::Test {
 protected:
  // A list of BERT's special tokens and other words, and what one says who reads it.
  void put_list(index_t lines) const {
    std::string list = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    for (index_t line = 5; line < lines; ++line) list += fmt::format("w{}\n", line);
    put(kWordList, list);
  }
  void put(const char* name, const std::string& text) const {
    test::spill(scratch_ / name, text);
  }
  std::string error_of(const std::filesystem::path& path) const {
    return test::message_of<InputError>([&] { Tokenizer::load({path}); });
  }
  // Given by its name and by its directory, it is the same.
  std::string error_of_list(index_t lines) const {
    put_list(lines);
    std::string error = error_of(scratch_ / kWordList);
    EXPECT_EQ(error_of(scratch_.path()), error);
    return error;
  }
  test::Scratch scratch_;
};

TEST_F(VocabularySizeBeside, SaysNothingOfAListAlone) {
  EXPECT_EQ(error_of_list(60), kTaken);
  // Nor where the files beside it do not say.
  put("config.json", R"({"hidden_size": 8, "vocab_size": null})");
  put("tokenizer_config.json", "{}");
  EXPECT_EQ(error_of_list(60), kTaken);
  put("config.json", "[97]");
  EXPECT_EQ(error_of_list(60), kTaken);
}

TEST_F(VocabularySizeBeside, IsThatOfTheModelsRows) {
  put("config.json", R"({"vocab_size": 97})");
  EXPECT_EQ(error_of_list(97), kTaken);
  EXPECT_THAT(error_of_list(96),
              AllOf(HasSubstr("/vocab.txt' has 96 lines, and '"),
                    HasSubstr("/config.json' beside it says vocab_size 97, so these are "
                              "too few: the list is cut short, or another model's. Copy "
                              "the model's own again."),
                    HasSubstr("from a directory without config.json"),
                    HasSubstr("give the model's tokenizer.json")));
  EXPECT_THAT(error_of_list(98),
              AllOf(HasSubstr("has 98 lines"), HasSubstr("vocab_size 97"),
                    HasSubstr("too many: the list is another model's")));
}

TEST_F(VocabularySizeBeside, MayBeSmallerByPadding) {
  put("config.json", R"({"vocab_size": 192})");  // 3 times 64
  EXPECT_EQ(error_of_list(192), kTaken);
  EXPECT_EQ(error_of_list(129), kTaken);
  EXPECT_THAT(error_of_list(128),
              AllOf(HasSubstr("has 128 lines"),
                    HasSubstr("vocab_size 192 (at most 63 of it padding)")));
  EXPECT_THAT(error_of_list(193), HasSubstr("too many"));
}

TEST_F(VocabularySizeBeside, IsWhatItsOwnConfigSays) {
  put("tokenizer_config.json", R"({"do_lower_case": true, "vocab_size": 61})");
  EXPECT_EQ(error_of_list(61), kTaken);
  EXPECT_THAT(error_of_list(60), HasSubstr("/tokenizer_config.json' beside it says"));
  // The files are all asked.
  put("config.json", R"({"vocab_size": 60})");
  EXPECT_THAT(error_of_list(60), HasSubstr("/tokenizer_config.json' beside it says"));
}

// The list is only read where it is named: of its directory the tokenizer.json is.
TEST_F(VocabularySizeBeside, IsThatOfTheTokenizersPieces) {
  const auto error_of_lines = [&](index_t lines) {
    put_list(lines);
    return error_of(scratch_ / kWordList);
  };
  put("tokenizer.json", R"({"model": {"type": "WordPiece", "vocab": {"a": 7, "b": 3}},
                            "added_tokens": [{"id": 9}, 3]})");
  EXPECT_THAT(
      error_of_lines(7),
      AllOf(HasSubstr("has 7 lines"),
            HasSubstr("/tokenizer.json' beside it says 8 pieces, so these are too "
                      "few")));
  EXPECT_EQ(error_of_lines(8), kTaken);
  EXPECT_EQ(error_of_lines(10), kTaken);  // with the added tokens as lines
  EXPECT_THAT(error_of_lines(11), HasSubstr("too many"));
  // Another kind of tokenizer has other pieces.
  put("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 7}}})");
  EXPECT_EQ(error_of_lines(20), kTaken);
}

TEST_F(VocabularySizeBeside, NeedsFilesThatCanBeRead) {
  put("config.json", "{\"vocab_size\":\n");
  EXPECT_THAT(error_of_list(60),
              AllOf(HasSubstr("/config.json:"), HasSubstr("not valid JSON"),
                    HasSubstr("read for the size of the vocabulary"),
                    HasSubstr("from a directory without it")));
  put("config.json", R"({"vocab_size": "60"})");
  EXPECT_THAT(error_of_list(60), HasSubstr("'vocab_size' is \"60\""));
  put("config.json", R"({"vocab_size": -9223372036854775808})");
  EXPECT_THAT(error_of_list(60), HasSubstr("too many"));
}

}  // namespace
}  // namespace trireme::data
