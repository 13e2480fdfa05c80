// llm.c's token files: made byte by byte, by the published layout
// (token_files.hpp).
#include "data/llm_c_dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "data/corpus.hpp"
#include "data/megatron_dataset.hpp"
#include "unit/data/fixtures.hpp"
#include "unit/data/token_files.hpp"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using test::gpt2_file;
using test::llm_c_file;

class LlmCDatasetFiles : public ::testing::Test {
 protected:
  std::string error_of(const std::string& bytes) {
    test::spill(scratch_ / "a.bin", bytes);
    return test::message_of<InputError>([&] {
      const LlmCDataset dataset(scratch_ / "a.bin");
      for (std::uint64_t i = 0; i < dataset.tokens(); ++i) dataset.token(i, 300);
    });
  }
  test::Scratch scratch_;
};

// The corpus of the text itself, whether documents begin or end with the token.
TEST_F(LlmCDatasetFiles, CorpusIsThatOfTheText) {
  const Tokenizer tokenizer = test::trained_tokenizer();
  const std::vector<std::string> texts = {"in the beginning", "the word was", "end"};
  test::make_corpus(scratch_, "text.h5", texts, tokenizer);
  const Corpus expected(scratch_ / "text.h5");
  for (const bool is_in_front : {true, false}) {
    std::vector<TokenId> ids;
    for (const std::string& text : texts) {
      if (is_in_front) ids.push_back(tokenizer.end_of_document());
      for (const TokenId id : tokenizer.encode(text)) ids.push_back(id);
      if (!is_in_front) ids.push_back(tokenizer.end_of_document());
    }
    const std::string files[] = {
        gpt2_file(ids),
        llm_c_file<std::uint32_t>(ids, {.magic = 20240801, .version = 7})};
    for (const std::string& file : files) {
      test::spill(scratch_ / "ids.bin", file);
      ASSERT_TRUE(is_llm_c_dataset(scratch_ / "ids.bin"));
      const LlmCDataset dataset(scratch_ / "ids.bin");
      const auto self = comm::make_self_communicator("self");
      const CorpusSummary made =
          convert_llm_c_dataset(dataset, tokenizer, scratch_ / "ids.h5", *self, {});
      EXPECT_EQ(made.documents, 3u);
      const Corpus corpus(scratch_ / "ids.h5");
      EXPECT_EQ(corpus.verify(), "");
      EXPECT_EQ(corpus.checksum(), expected.checksum());
      EXPECT_EQ(corpus.token_count(), expected.token_count());
    }
  }
}

TEST_F(LlmCDatasetFiles, BadHeadersAreTold) {
  const std::vector<TokenId> ids = {0, 1, 2, 0, 299};
  EXPECT_EQ(error_of(gpt2_file(ids)), "(nothing thrown)");
  EXPECT_THAT(error_of(gpt2_file(ids).substr(0, 1000)),
              AllOf(HasSubstr("a.bin' has 1,000 bytes"), HasSubstr("header alone"),
                    HasSubstr("1024"), HasSubstr("cut short")));
  EXPECT_THAT(error_of(gpt2_file(ids, {.magic = 1234})),
              AllOf(HasSubstr("begins with 1234"), HasSubstr("20240520"),
                    HasSubstr("20240801"), HasSubstr(".idx")));
  EXPECT_THAT(error_of(gpt2_file(ids, {.magic = 20240522})),
              HasSubstr("examples to evaluate with"));
  EXPECT_THAT(error_of(gpt2_file(ids, {.magic = static_cast<std::int32_t>(0x88D83401)})),
              HasSubstr("other byte order"));
  EXPECT_THAT(error_of(gpt2_file(ids, {.version = 2})),
              AllOf(HasSubstr("of version 2"), HasSubstr("version 1 can be read")));
  EXPECT_THAT(error_of(gpt2_file(ids, {.magic = 20240801, .version = 1})),
              HasSubstr("version 7 can be read"));
  EXPECT_THAT(
      error_of(gpt2_file(ids, {.count = 6})),
      AllOf(HasSubstr("1,034 bytes"), HasSubstr("make 1036"), HasSubstr("cut short")));
  EXPECT_THAT(error_of(gpt2_file(ids, {.count = 4})), HasSubstr("two files in one"));
  EXPECT_THAT(error_of(gpt2_file({}, {})), HasSubstr("has 0 tokens by its header"));
  EXPECT_THAT(error_of(gpt2_file({0, 300})),
              AllOf(HasSubstr("token 1 is 300"), HasSubstr("300 tokens")));
}

TEST_F(LlmCDatasetFiles, AreToldFromMegatrons) {
  test::spill(scratch_ / "a.bin", gpt2_file({1}));
  test::spill(scratch_ / "b.bin", "anything");
  test::spill(scratch_ / "c.bin", "anything");
  test::spill(scratch_ / "c.idx", "anything");
  EXPECT_TRUE(is_llm_c_dataset(scratch_ / "a.bin"));
  EXPECT_TRUE(is_llm_c_dataset(scratch_ / "b.bin"));
  EXPECT_FALSE(is_llm_c_dataset(scratch_ / "c.bin"));
  EXPECT_FALSE(is_llm_c_dataset(scratch_ / "c.idx"));
  EXPECT_FALSE(is_llm_c_dataset(scratch_ / "d.bin"));
  EXPECT_FALSE(is_llm_c_dataset(scratch_.path()));
}

TEST_F(LlmCDatasetFiles, CutUnderItsReader) {
  test::spill(scratch_ / "a.bin", gpt2_file({1, 2, 3}));
  const LlmCDataset dataset(scratch_ / "a.bin");
  std::filesystem::resize_file(scratch_ / "a.bin", 0);
  EXPECT_THAT(test::message_of<InputError>([&] {
                dataset.token(0, 300);
                dataset.require_uncut();
              }),
              HasSubstr("was cut short while it was read"));
}

}  // namespace
}  // namespace trireme::data
