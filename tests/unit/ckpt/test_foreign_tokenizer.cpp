// The tokenizer's files beside a T5's weights: they travel byte for byte, decide together
// what corpora are made with, and those of another model are told.
#include "ckpt/foreign_tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "ckpt/reader.hpp"
#include "data/sentence_piece_files.hpp"
#include "data/sentence_piece_library.hpp"
#include "data/tokenizer_files.hpp"
#include "unit/ckpt/foreign_directory.hpp"
#include "unit/data/t5_json.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::ckpt {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string model_bytes(const char* name) {
  return io::read_file(test::parity_directory("tokenizer") / name);
}

class ForeignTokenizer : public test::ForeignDirectoryTest {
 protected:
  void SetUp() override {
    if (!data::has_sentence_piece()) {
      GTEST_SKIP() << "NO SENTENCEPIECE: this build refuses its models";
    }
    set_rows(4128);  // 4000 pieces, 100 sentinels, padded
  }
  // Rows of the table of words.
  void set_rows(index_t rows) {
    files_.config["vocab_size"] = rows;
    test::ForeignDirectory::Stored& words = files_.tensors.at("shared.weight");
    words.shape[0] = rows;
    words.values.resize(static_cast<std::size_t>(rows * words.shape[1]));
    files_.write(theirs());
  }
  void put(const char* name, const std::string& content) const {
    io::write_file(theirs() / name, content);
  }
  static std::string text_of(const io::Path& directory, const char* name) {
    return io::read_file(directory / name);
  }

  data::TokenizerFiles found() {
    return HuggingFaceModel(theirs(), log_).tokenizer_files();
  }
  // To a checkpoint and back.
  void travel() {
    import_hugging_face(theirs(), scratch_ / "ours", log_);
    export_hugging_face(scratch_ / "ours", scratch_ / "again", log_);
  }
  void expect_the_same(const char* name) const {
    EXPECT_TRUE(text_of(scratch_ / "again", name) == text_of(theirs(), name)) << name;
  }
  // What corpora are made with.
  data::Tokenizer of_directory() const { return data::Tokenizer::load({theirs()}); }

  const std::string unigram_ = model_bytes("unigram.model");
  const std::string json_ =
      test::t5_json(data::SentencePieceModel::parse("unigram", unigram_)).dump();
  test::ForeignDirectory files_{"t5_odd"};
};

TEST_F(ForeignTokenizer, AModelTravelsByteForByte) {
  put("spiece.model", unigram_);
  put("tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 98})");
  travel();
  expect_the_same("spiece.model");
  expect_the_same("tokenizer_config.json");
  const CheckpointReader reader(scratch_ / "ours" / "latest");
  EXPECT_EQ(reader.state().tokenizer, of_directory().files());
  EXPECT_EQ(of_directory().vocabulary_size(), 4098u);
  EXPECT_TRUE(log_.warnings().empty()) << log_.warnings().front();
}

TEST_F(ForeignTokenizer, AModelTravelsBesideATokenizerJson) {
  put("spiece.model", unigram_);
  put("tokenizer.json", json_);
  put("tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer"})");
  travel();
  for (const char* name : {"spiece.model", "tokenizer.json", "tokenizer_config.json"}) {
    expect_the_same(name);
  }
  EXPECT_EQ(found().size(), 3u);
  EXPECT_EQ(found(), of_directory().files());
  EXPECT_TRUE(log_.warnings().empty()) << log_.warnings().front();
  // A corpus that was made with the tokenizer.json alone is of the same tokenizer.
  const data::Tokenizer alone = data::Tokenizer::load({theirs() / "tokenizer.json"});
  EXPECT_EQ(alone.files().size(), 1u);
  EXPECT_TRUE(data::is_one_tokenizer(found(), alone.files()));
}

// Where no file says how many sentinels there are, transformers makes 100.
TEST_F(ForeignTokenizer, AModelAloneHasAsManySentinelsAsT5) {
  put("spiece.model", unigram_);
  const data::Tokenizer tokenizer = data::Tokenizer::from_files(found());
  EXPECT_EQ(tokenizer.sentinels().count, 100);
  EXPECT_EQ(tokenizer.vocabulary_size(), 4100u);
  // As trireme tokenize --extra-ids 100 has it.
  EXPECT_EQ(found(), data::with_sentinels(of_directory(), 100).files());
  travel();
  const Json config = Json::parse(text_of(scratch_ / "again", "tokenizer_config.json"));
  EXPECT_EQ(config["tokenizer_class"], "T5Tokenizer");
  EXPECT_EQ(config["extra_ids"], 100);
}

TEST_F(ForeignTokenizer, AModelWithoutRowsForSentinelsHasNone) {
  set_rows(4096);  // 4,000 pieces and padding
  put("spiece.model", unigram_);
  EXPECT_EQ(data::Tokenizer::from_files(found()).sentinels().count, 0);
  travel();
  expect_the_same("spiece.model");
  const Json config = Json::parse(text_of(scratch_ / "again", "tokenizer_config.json"));
  EXPECT_EQ(config["tokenizer_class"], "T5Tokenizer");
  EXPECT_EQ(config["extra_ids"], 0);  // transformers would add 100
  EXPECT_EQ(config["eos_token"], "</s>");
  EXPECT_EQ(config["pad_token"], "<pad>");
  EXPECT_EQ(config["unk_token"], "<unk>");
  EXPECT_EQ(config["model_max_length"], 512);
  // With it, transformers' classes would put no space in front of a text.
  EXPECT_FALSE(config.contains("add_prefix_space"));
}

TEST_F(ForeignTokenizer, AModelStandsInForATokenizerJsonThatCannotBeUsed) {
  put("spiece.model", unigram_);
  put("tokenizer_config.json", R"({"extra_ids": 100})");
  Json json = Json::parse(json_);
  json["normalizer"] = {{"type", "NFKC"}};
  put("tokenizer.json", json.dump());
  const data::TokenizerFiles files = found();
  EXPECT_EQ(files, data::Tokenizer::load({theirs() / "spiece.model"}).files());
  ASSERT_EQ(log_.warnings().size(), 1u);
  EXPECT_THAT(log_.warnings()[0],
              AllOf(HasSubstr("spiece.model is read in the place of tokenizer.json"),
                    HasSubstr("the normalizer")));
  put("spiece.model", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(
      message_of<InputError>([&] { found(); }),
      AllOf(HasSubstr("theirs': the tokenizer cannot be used"), HasSubstr("spiece.model"),
            HasSubstr("Put the model's own there, or take its files away")));
}

TEST_F(ForeignTokenizer, AModelOfOtherPiecesIsLeftOut) {
  put("spiece.model", model_bytes("bpe.model"));
  put("tokenizer.json", json_);
  EXPECT_EQ(found(), (data::TokenizerFiles{{"tokenizer.json", json_}}));
  ASSERT_EQ(log_.warnings().size(), 1u);
  EXPECT_THAT(log_.warnings()[0],
              HasSubstr("spiece.model is left out: it is no model of the pieces that "
                        "tokenizer.json has"));
}

TEST_F(ForeignTokenizer, OfTwoIsRefused) {
  put("spiece.model", unigram_);
  put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
  const auto error = [&] { return message_of<InputError>([&] { found(); }); };
  EXPECT_THAT(error(), HasSubstr("theirs' has two tokenizers, vocab.txt and "
                                 "spiece.model: take away the one that is not"));
  put("tokenizer.json", json_);  // which is read then
  EXPECT_EQ(error(), "(nothing thrown)");
}

TEST_F(ForeignTokenizer, OfAnotherModelIsRefused) {
  put("spiece.model", unigram_);
  put("tokenizer_config.json", R"({"extra_ids": 100})");
  travel();
  set_rows(4099);
  const std::string error = message_of<InputError>(
      [&] { import_hugging_face(theirs(), scratch_ / "other", log_); });
  EXPECT_THAT(error, AllOf(HasSubstr("theirs': the tokenizer (SentencePiece, unigram) "
                                     "has 4,100 tokens, and the model's table of words "
                                     "4,099 rows: it is another model's"),
                           HasSubstr("take its files away to convert the weights")));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "other"));
  // Nor is it written beside weights.
  const CheckpointReader reader(scratch_ / "ours" / "latest");
  ForeignConfig config = HuggingFaceModel(scratch_ / "again", log_).config();
  config.vocab = 97;
  EXPECT_THAT(message_of<InputError>([&] {
                for_transformers(reader.state().tokenizer, known_dialects().front(),
                                 config);
              }),
              AllOf(HasSubstr("the checkpoint's tokenizer"), HasSubstr("4,100 tokens"),
                    HasSubstr("97 rows"), HasSubstr("Convert the model again")));
}

TEST_F(ForeignTokenizer, WithFewerTokensThanPaddingExplainsIsRefused) {
  put("spiece.model", unigram_);
  put("tokenizer_config.json", R"({"extra_ids": 100})");
  // As many rows as tokens, or the next multiple of 8, of 32 and of 128.
  for (const index_t rows : {4100, 4104, 4128, 4224}) {
    set_rows(rows);
    EXPECT_EQ(data::Tokenizer::from_files(found()).vocabulary_size(), 4100u);
    EXPECT_TRUE(log_.warnings().empty()) << rows << ": " << log_.warnings().front();
  }
  // An odd number of rows has no padding; 20 rows are more than a multiple of 8 explains,
  // 252 more than one of 128.
  for (const index_t rows : {4101, 4120, 4352}) {
    set_rows(rows);
    EXPECT_THAT(message_of<InputError>([&] { found(); }),
                AllOf(HasSubstr("4,100 tokens"), HasSubstr(format_plural(rows, "row")),
                      HasSubstr("more than padding explains")));
  }
}

// Of a model that Trireme trained with more rows it wrote itself how many have a token.
TEST_F(ForeignTokenizer, WithRowsToSpareComesBack) {
  put("spiece.model", unigram_);
  put("tokenizer_config.json", R"({"extra_ids": 100})");
  files_.config["trireme_tokens"] = 4100;
  set_rows(5000);
  put("spiece.model", unigram_);
  travel();
  const auto config = Json::parse(text_of(scratch_ / "again", "config.json"));
  EXPECT_EQ(config.at("vocab_size"), 5000);
  EXPECT_EQ(config.at("trireme_tokens"), 4100);
  import_hugging_face(scratch_ / "again", scratch_ / "back", log_);
  EXPECT_EQ(data::Tokenizer::load({scratch_ / "again"}).vocabulary_size(), 4100u);
  // It says what is cut short, too.
  put("spiece.model", model_bytes("bpe.model"));
  files_.config["trireme_tokens"] = 4101;
  set_rows(5000);
  EXPECT_THAT(message_of<InputError>([&] { found(); }),
              HasSubstr("more than padding explains"));
  // Where padding explains the rows nothing is said.
  files_.config.erase("trireme_tokens");
  set_rows(4128);
  std::filesystem::remove_all(scratch_ / "ours");
  std::filesystem::remove_all(scratch_ / "again");
  put("spiece.model", unigram_);
  travel();
  EXPECT_FALSE(
      Json::parse(text_of(scratch_ / "again", "config.json")).contains("trireme_tokens"));
}

TEST_F(ForeignTokenizer, WithOtherSpecialTokensIsAWarning) {
  put("spiece.model", unigram_);
  files_.config["eos_token_id"] = 2;
  set_rows(4128);
  EXPECT_FALSE(found().empty());
  ASSERT_EQ(log_.warnings().size(), 1u);
  EXPECT_THAT(log_.warnings()[0],
              HasSubstr("config.json says eos_token_id 2, and that token of the "
                        "tokenizer is 1: are they of one model?"));
}

}  // namespace
}  // namespace trireme::ckpt
