// The number of a tokenizer's tokens, of a list of words and of a SentencePiece model,
// against what the files of its model beside it say.
#include "data/vocabulary_size.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "data/sentence_piece_files.hpp"
#include "data/sentence_piece_library.hpp"
#include "data/sentence_piece_model.hpp"
#include "data/tokenizer.hpp"
#include "data/word_piece_files.hpp"
#include "unit/data/fixtures.hpp"
#include "unit/data/t5_json.hpp"

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
  // Known to be refused without a tokenizer.json: dbmdz's bert-base-italian-xxl-cased and
  // -uncased, whose authors say that the list is right. 1000 rows too many are no
  // padding.
  EXPECT_LT(31102, 32102 - most_padding(32102));
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
  // It is only read where it is named: of its directory the tokenizer.json is.
  std::string error_of_named_list(index_t lines) const {
    put_list(lines);
    return error_of(scratch_ / kWordList);
  }
  test::Scratch scratch_;
};

// A tokenizer.json of a WordPiece with so many pieces.
std::string json_of_words(index_t pieces) {
  nlohmann::json vocabulary;
  for (index_t id = 0; id < pieces; ++id) vocabulary[fmt::format("w{}", id)] = id;
  return nlohmann::json{{"model", {{"type", "WordPiece"}, {"vocab", vocabulary}}}}.dump();
}

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
                    HasSubstr("give vocab.txt from a directory without config.json (but "
                              "with its tokenizer_config.json)"),
                    HasSubstr("give the model's tokenizer.json")));
  EXPECT_THAT(error_of_list(98),
              AllOf(HasSubstr("has 98 lines"), HasSubstr("vocab_size 97"),
                    HasSubstr("too many: the list is another model's")));
}

// Of a model that Trireme wrote, with more rows than padding explains.
TEST_F(VocabularySizeBeside, IsWhatTriremeSaysOfItsOwn) {
  put("config.json", R"({"vocab_size": 97, "trireme_tokens": 60})");
  EXPECT_EQ(error_of_list(60), kTaken);
  EXPECT_THAT(error_of_list(59), HasSubstr("beside it says trireme_tokens 60"));
  EXPECT_THAT(error_of_list(98), HasSubstr("too many"));
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
  // Without that file text would be taken otherwise, so that nobody is told to go
  // without.
  const std::string list = (scratch_ / kWordList).string();
  const std::string config = (scratch_ / "tokenizer_config.json").string();
  EXPECT_EQ(error_of_list(60),
            fmt::format("'{}' has 60 lines, and '{}' beside it says vocab_size 61, so "
                        "these are too few: the list is cut short, or another model's. "
                        "Copy the model's own again. If the file is the right one, take "
                        "vocab_size out of tokenizer_config.json; where tokens were "
                        "added to it, give the model's tokenizer.json",
                        list, config));
  // The files are all asked.
  put("config.json", R"({"vocab_size": 60})");
  EXPECT_THAT(error_of_list(60), HasSubstr("/tokenizer_config.json' beside it says"));
  put("tokenizer_config.json", R"({"vocab_size": "60"})");
  EXPECT_THAT(error_of_list(60), HasSubstr("copy it again, or take vocab_size out of "
                                           "tokenizer_config.json"));
}

TEST_F(VocabularySizeBeside, IsThatOfTheTokenizersPieces) {
  put("tokenizer.json", R"({"model": {"type": "WordPiece", "vocab": {"a": 7, "b": 3}},
                            "added_tokens": [{"id": 9}, 3]})");
  EXPECT_THAT(error_of_named_list(7),
              AllOf(HasSubstr("has 7 lines"),
                    HasSubstr("/tokenizer.json' beside it says 8 pieces (10 with added "
                              "ones), so these are too few")));
  EXPECT_EQ(error_of_named_list(8), kTaken);
  EXPECT_EQ(error_of_named_list(10), kTaken);  // with the added tokens as lines
  EXPECT_THAT(error_of_named_list(11), HasSubstr("too many"));
  // Another kind of tokenizer has other pieces.
  put("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 7}}})");
  EXPECT_EQ(error_of_named_list(20), kTaken);
  put("tokenizer.json", R"({"model": 3})");
  EXPECT_EQ(error_of_named_list(20), kTaken);
}

TEST_F(VocabularySizeBeside, CountsOnlyIdsThatAreSome) {
  // What 32 bits hold of 4294967305 is 9.
  for (const char* const id : {"\"9\"", "4294967305", "true", "null", "[9]", "-1", "9.5",
                               "18446744073709551615"}) {
    put("tokenizer.json",
        fmt::format(R"({{"model": {{"type": "WordPiece", "vocab": {{"a": 7}}}},
                        "added_tokens": [{{"content": "x", "id": {}}}]}})",
                    id));
    EXPECT_THAT(error_of_named_list(10),
                AllOf(HasSubstr("/tokenizer.json': the id of token '"),
                      HasSubstr(fmt::format(" is {}, expected a number from 0", id))));
    put("tokenizer.json",
        fmt::format(R"({{"model": {{"type": "WordPiece", "vocab": {{"a": {}}}}}}})", id));
    EXPECT_THAT(error_of_named_list(10),
                HasSubstr(fmt::format("the id of token 'a' is {}, expected", id)));
  }
}

// The rows of bert-base-italian-xxl, which no padding explains.
TEST_F(VocabularySizeBeside, IsRightWhereATokenizerJsonAgrees) {
  put("config.json", R"({"vocab_size": 32102})");
  EXPECT_THAT(error_of_list(31102), HasSubstr("too few"));
  put("tokenizer.json", json_of_words(31102));
  EXPECT_EQ(error_of_named_list(31102), kTaken);
  EXPECT_THAT(error_of_named_list(31101), HasSubstr("/tokenizer.json' beside it says"));
  // More than there are rows are wrong in any case.
  put("config.json", R"({"vocab_size": 31101})");
  EXPECT_THAT(error_of_named_list(31102),
              AllOf(HasSubstr("vocab_size 31101"), HasSubstr("too many")));
}

TEST_F(VocabularySizeBeside, NeedsFilesThatCanBeRead) {
  put("config.json", "{\"vocab_size\":\n");
  EXPECT_THAT(error_of_list(60),
              AllOf(HasSubstr("/config.json:"), HasSubstr("not valid JSON"),
                    HasSubstr("read for the size of the vocabulary"),
                    HasSubstr("or give vocab.txt from a directory without config.json")));
  put("config.json", R"({"vocab_size": "60"})");
  EXPECT_THAT(error_of_list(60), HasSubstr("'vocab_size' is \"60\""));
  put("config.json", R"({"vocab_size": -9223372036854775808})");
  EXPECT_THAT(error_of_list(60), HasSubstr("too many"));
}

// --- models of SentencePiece

// Of published models, rows of the table and pieces of the model.
TEST(VocabularySize, TakesTheModelsThatArePublished) {
  struct Published {
    index_t rows, pieces;
  };
  constexpr Published kPublished[] = {
      {32128, 32000},    // T5 v1.0 and v1.1, FLAN-T5: 100 sentinels and padding
      {36096, 36000},    // ViT5: 96 sentinels
      {250112, 250100},  // mT5: its sentinels are pieces
      {256384, 256000},  // umT5: 300 sentinels and padding
      {32000, 32000},    // Llama 2
      {32016, 32016},    // Code Llama
      {32064, 32000},    // Phi-3 mini
      {262208, 262144},  // Gemma 3
  };
  const test::Scratch scratch;
  const auto error_of = [&](index_t pieces) {
    return test::message_of<InputError>([&] {
      require_size_beside(scratch / "spiece.model",
                          {VocabularyFile::sentence_piece, pieces, pieces});
    });
  };
  for (const auto& [rows, pieces] : kPublished) {
    test::spill(scratch / "config.json", fmt::format(R"({{"vocab_size": {}}})", rows));
    EXPECT_EQ(error_of(pieces), kTaken) << rows;
    EXPECT_EQ(error_of(rows - 427), kTaken) << rows;
    EXPECT_THAT(error_of(rows - 428), HasSubstr("too few: another model's")) << rows;
    EXPECT_THAT(error_of(rows + 1), HasSubstr("too many: another model's")) << rows;
  }
  // Of few rows all may be left over, and no more.
  test::spill(scratch / "config.json", R"({"vocab_size": 5})");
  EXPECT_EQ(error_of(5), kTaken);
  EXPECT_THAT(error_of(6), HasSubstr("vocab_size 5 (at most 5 of it sentinels and"));
  test::spill(scratch / "config.json", R"({"vocab_size": -9223372036854775808})");
  EXPECT_THAT(error_of(6), HasSubstr("too many"));
}

class VocabularySizeBesideModel : public VocabularySizeBeside {
 protected:
  void SetUp() override {
    if (!has_sentence_piece()) {
      GTEST_SKIP() << "NO SENTENCEPIECE: this build refuses its models";
    }
    put(kSentencePieceFile, bytes_);
  }
  std::string error_of_model() const { return error_of(scratch_ / kSentencePieceFile); }
  void put_rows(index_t rows) const {
    put("config.json", fmt::format(R"({{"vocab_size": {}}})", rows));
  }

  const std::string bytes_ = io::read_file(test::fixture("unigram.model"));  // 4000
};

TEST_F(VocabularySizeBesideModel, IsThatOfTheModelsRows) {
  EXPECT_EQ(error_of_model(), kTaken);
  for (const index_t rows : {4000, 4128, 4427}) {
    put_rows(rows);
    EXPECT_EQ(error_of_model(), kTaken) << rows;
    EXPECT_EQ(error_of(scratch_.path()), kTaken) << rows;
  }
  put_rows(1000);
  EXPECT_EQ(error_of_model(),
            fmt::format("'{}' has 4,000 pieces, and '{}' beside it says vocab_size 1000 "
                        "(at most 427 of it sentinels and padding), so these are too "
                        "many: another model's. Copy the model's own again. If the file "
                        "is the right one, give spiece.model from a directory without "
                        "config.json (but with its tokenizer_config.json); where tokens "
                        "were added to it, give the model's tokenizer.json",
                        (scratch_ / kSentencePieceFile).string(),
                        (scratch_ / "config.json").string()));
  EXPECT_EQ(error_of(scratch_.path()), error_of_model());
  put_rows(4528);
  EXPECT_THAT(error_of_model(), HasSubstr("too few: another model's"));
  // What is added to the pieces has rows, too; nobody needs rows for all sentinels.
  put("tokenizer_config.json", R"({"extra_ids": 101})");
  EXPECT_EQ(error_of_model(), kTaken);
  put("tokenizer_config.json", R"({"extra_ids": 100})");
  EXPECT_THAT(error_of_model(), HasSubstr("has 4,000 pieces (4,100 with added ones)"));
  put_rows(4000);
  EXPECT_EQ(error_of_model(), kTaken);
  put_rows(3999);
  EXPECT_THAT(error_of_model(), HasSubstr("too many: another model's"));
}

// Of a tokenizer.json that was made of another model; read where the model is named.
TEST_F(VocabularySizeBesideModel, IsThatOfTheTokenizersPieces) {
  nlohmann::json json = test::t5_json(SentencePieceModel::parse("unigram", bytes_));
  put("tokenizer.json", json.dump());
  EXPECT_EQ(error_of_model(), kTaken);
  json["added_tokens"] = nlohmann::json::array();  // sentinels are told by their text
  put("tokenizer.json", json.dump());
  EXPECT_EQ(error_of_model(), kTaken);
  // Where it agrees, rows may be left over.
  put_rows(6000);
  EXPECT_EQ(error_of_model(), kTaken);
  put_rows(3999);
  EXPECT_THAT(error_of_model(), HasSubstr("too many: another model's"));
  std::filesystem::remove(scratch_ / "config.json");
  json["model"]["vocab"].push_back({"more", 0.0});
  put("tokenizer.json", json.dump());
  EXPECT_THAT(error_of_model(), HasSubstr("says 4,101 pieces, so these are too few"));
  // What is added to the pieces is none of them.
  put("tokenizer_config.json", R"({"extra_ids": 101})");
  EXPECT_THAT(error_of_model(),
              AllOf(HasSubstr("has 4,000 pieces (4,101 with added ones)"),
                    HasSubstr("says 4,101 pieces, so these are too few")));
  std::filesystem::remove(scratch_ / "tokenizer_config.json");
  // A BPE on characters: 2,000 pieces.
  put("tokenizer.json", io::read_file(test::fixture("bpe.json")));
  EXPECT_THAT(error_of_model(),
              AllOf(HasSubstr("/tokenizer.json' beside it says 2,000 pieces"),
                    HasSubstr("too many: another model's")));
  // One on bytes has other pieces.
  put("tokenizer.json", io::read_file(test::fixture("trained.json")));
  EXPECT_EQ(error_of_model(), kTaken);
}

}  // namespace
}  // namespace trireme::data
