// Training against Hugging Face's BpeTrainer: the fixture trained.json is what it made of
// sample.txt.
#include "data/bpe_trainer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/tokenizer_files.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::data {
namespace {

using Json = nlohmann::json;

TEST(BpeTrainerMerges, AreHuggingFaces) {
  WordCounter counter;
  counter.add(io::read_file(test::fixture("sample.txt")));
  const TrainedBpe trained = train_bpe(counter.counts(), 700);
  const Json ours = Json::parse(trained.json());
  const Json theirs = Json::parse(io::read_file(test::fixture("trained.json")));
  EXPECT_FALSE(trained.ran_out_of_pairs);
  EXPECT_EQ(ours["model"]["vocab"], theirs["model"]["vocab"]);
  EXPECT_EQ(ours["model"]["merges"], theirs["model"]["merges"]);
  EXPECT_EQ(ours["pre_tokenizer"], theirs["pre_tokenizer"]);
  EXPECT_EQ(ours["added_tokens"], theirs["added_tokens"]);
}

TEST(BpeTrainerMerges, BreakTiesByIds) {
  WordCounter counter;
  counter.add("ba dc ab cd");  // all pairs once; " a" and so on too
  const TrainedBpe trained = train_bpe(counter.counts(), 262);
  // Ids of bytes go by their characters: the space (U+0120) comes after all letters.
  std::vector<std::string> made(trained.tokens.begin() + 257, trained.tokens.end());
  EXPECT_THAT(made, ::testing::ElementsAre("ab", "ba", "cd", "dc", " ab"));
}

TEST(BpeTrainerMerges, EndWhenPairsDo) {
  WordCounter counter;
  counter.add("abc");
  const TrainedBpe trained = train_bpe(counter.counts(), 1000);
  EXPECT_TRUE(trained.ran_out_of_pairs);
  EXPECT_EQ(trained.tokens.size(), 259u);
  const Tokenizer tokenizer = Tokenizer::from_files({{"tokenizer.json", trained.json()}});
  EXPECT_EQ(tokenizer.vocabulary_size(), 259u);
  EXPECT_EQ(tokenizer.encode("abc"), (std::vector<TokenId>{258}));
  EXPECT_EQ(tokenizer.end_of_document(), 0u);
}

TEST(BpeTrainerMerges, OfTheSmallestSizeAreNone) {
  WordCounter counter;
  counter.add("abc");
  EXPECT_TRUE(train_bpe(counter.counts(), 257).merges.empty());
  EXPECT_THAT(test::message_of<InputError>([&] { train_bpe(counter.counts(), 256); }),
              ::testing::HasSubstr("256 tokens is too small: 256 bytes and the end of a "
                                   "document make 257 at least"));
}

TEST(BpeTrainerWords, TravelBetweenRanks) {
  WordCounter one, two, both;
  one.add("a b a\nc");
  two.add("b c d \xFF");
  both.add("a b a\nc");
  both.add("b c d \xFF");
  EXPECT_EQ(two.replaced_sequences(), 1u);
  one.add_packed(two.packed());
  EXPECT_EQ(one.counts(), both.counts());
  EXPECT_THROW(one.add_packed("short"), Error);
}

}  // namespace
}  // namespace trireme::data
