// Data that others have tokenized, imported by 1, 2, 3 and 5 ranks: the same bytes; an
// error on one rank is one on all, and leaves nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "comm/mpi_communicator.hpp"
#include "comm/self_communicator.hpp"
#include "data/corpus.hpp"
#include "data/llm_c_dataset.hpp"
#include "data/megatron_dataset.hpp"
#include "support/shared_scratch.hpp"
#include "unit/data/fixtures.hpp"
#include "unit/data/token_files.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

class TokenFilesRanks : public ::testing::Test {
 protected:
  using Convert = std::function<CorpusSummary(const std::filesystem::path& out,
                                              comm::Communicator& comm)>;

  // By the ranks that there are and by one, into two files; `documents`: what it has.
  void expect_same_bytes(const Convert& convert, std::uint64_t documents) {
    const CorpusSummary together = convert(scratch_ / "together.h5", *world_);
    EXPECT_EQ(together.documents, documents);
    if (world_->rank() == 0) {
      const auto self = comm::make_self_communicator("self");
      const CorpusSummary alone = convert(scratch_ / "alone.h5", *self);
      EXPECT_EQ(together.tokens, alone.tokens);
      EXPECT_EQ(together.documents, alone.documents);
      EXPECT_EQ(together.sentences, alone.sentences);
      EXPECT_EQ(together.empty_documents, alone.empty_documents);
      EXPECT_EQ(together.unigram_entropy, alone.unigram_entropy);
      EXPECT_TRUE(test::slurp(scratch_ / "together.h5") ==
                  test::slurp(scratch_ / "alone.h5"));
      EXPECT_EQ(Corpus(scratch_ / "together.h5").verify(), "");
    }
    world_->barrier();
  }
  void expect_same_llm_c(const std::vector<TokenId>& ids, std::uint64_t documents) {
    const std::string files[] = {
        test::gpt2_file(ids),
        test::llm_c_file<std::uint32_t>(ids, {.magic = 20240801, .version = 7})};
    for (const std::string& file : files) {
      const LlmCDataset dataset(scratch_.put("ids.bin", file));
      expect_same_bytes(
          [&](const std::filesystem::path& out, comm::Communicator& comm) {
            return convert_llm_c_dataset(dataset, tokenizer_, out, comm, {});
          },
          documents);
    }
  }
  void expect_same_megatron(const test::Documents3& documents, std::uint64_t whole,
                            const CorpusOptions& options) {
    for (const std::uint8_t code : {4, 8}) {
      const test::MegatronFiles files = test::megatron_files(documents, code);
      scratch_.put("set.bin", files.bin);
      const MegatronDataset dataset(scratch_.put("set.idx", files.index));
      expect_same_bytes(
          [&](const std::filesystem::path& out, comm::Communicator& comm) {
            return convert_megatron_dataset(dataset, tokenizer_, out, comm, options);
          },
          whole);
    }
  }
  std::size_t files_left() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(scratch_.path()), {}));
  }

  std::shared_ptr<comm::Communicator> world_ = comm::make_mpi_world();
  test::SharedScratch scratch_{*world_};
  const Tokenizer tokenizer_ = test::trained_tokenizer();
  const TokenId end_ = tokenizer_.end_of_document();
};

// Of lengths from none to a rank's part and more, cut anywhere: the token that ends them
// in front, behind, and twice in a row.
TEST_F(TokenFilesRanks, OfLlmCGiveTheBytesOfOne) {
  std::mt19937 random(3);
  for (const bool is_in_front : {true, false}) {
    for (const unsigned longest : {3u, 40u, 2000u}) {
      std::vector<TokenId> ids;
      std::uint64_t documents = 0;
      for (int document = 0; document < 37; ++document) {
        const unsigned length = document == 20 ? longest * 4 : random() % longest;
        if (is_in_front) ids.push_back(end_);
        for (unsigned i = 0; i < length; ++i) ids.push_back(end_ + 1 + random() % 600);
        if (!is_in_front) ids.push_back(end_);
        documents += length > 0 ? 1 : 0;
      }
      expect_same_llm_c(ids, documents);
    }
  }
  // One document, of which nothing tells the end; and fewer tokens than ranks.
  expect_same_llm_c(std::vector<TokenId>(50, end_ + 1), 1);
  expect_same_llm_c({end_ + 1, end_, end_ + 2}, 2);
}

TEST_F(TokenFilesRanks, OfMegatronGiveTheBytesOfOne) {
  std::mt19937 random(4);
  test::Documents3 documents;
  std::uint64_t whole = 0;
  for (int i = 0; i < 37; ++i) {
    auto& document = documents.emplace_back();
    std::size_t tokens = 0;
    for (unsigned sequence = random() % 4; sequence > 0; --sequence) {
      document.emplace_back(random() % (i == 20 ? 3000 : 30));
      for (std::int64_t& id : document.back()) id = end_ + 1 + random() % 600;
      tokens += document.back().size();
    }
    if (i % 2 == 0 && !document.empty()) document.back().push_back(end_);
    whole += tokens > 0 ? 1 : 0;
  }
  CorpusOptions with_sentences;
  with_sentences.sentences = Language::none;
  for (const CorpusOptions& options : {CorpusOptions(), with_sentences}) {
    expect_same_megatron(documents, whole, options);
  }
  // Fewer documents than ranks.
  expect_same_megatron({{{1, 2}, {3}}, {{4}}}, 2, {});
}

// The first error of the lowest rank that has one.
TEST_F(TokenFilesRanks, AllLearnOfOnesError) {
  constexpr TokenId kNone = 5000;  // no id of the tokenizer
  std::vector<TokenId> ids;
  test::Documents3 documents;
  for (int document = 0; document < 30; ++document) {
    const TokenId last = document == 29 ? kNone : end_ + 2;
    ids.insert(ids.end(), {end_, end_ + 1, last});
    documents.push_back({{end_ + 1, last}});
  }
  const LlmCDataset llm_c(scratch_.put("ids.bin", test::gpt2_file(ids)));
  const test::MegatronFiles files = test::megatron_files(documents, 8);
  scratch_.put("set.bin", files.bin);
  const MegatronDataset megatron(scratch_.put("set.idx", files.index));
  const std::size_t before = files_left();
  world_->barrier();
  EXPECT_THAT(test::message_of<InputError>([&] {
                convert_llm_c_dataset(llm_c, tokenizer_, scratch_ / "bad.h5", *world_,
                                      {});
              }),
              HasSubstr("token 89 is 5000, and the tokenizer has 700 tokens"));
  EXPECT_THAT(test::message_of<InputError>([&] {
                convert_megatron_dataset(megatron, tokenizer_, scratch_ / "bad.h5",
                                         *world_, {});
              }),
              HasSubstr("token 1 of document 29 is 5000"));
  world_->barrier();
  EXPECT_EQ(files_left(), before);
}

}  // namespace
}  // namespace trireme::data
