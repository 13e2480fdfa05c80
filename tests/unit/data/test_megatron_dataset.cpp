// Megatron's indexed datasets: files made byte by byte, by the published layout
// (token_files.hpp).
#include "data/megatron_dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "data/corpus.hpp"
#include "unit/data/fixtures.hpp"
#include "unit/data/token_files.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

using test::Documents3;
using test::put;
using Files = test::MegatronFiles;

class MegatronDatasetFiles : public ::testing::Test {
 protected:
  std::filesystem::path write(const Files& files) {
    test::spill(scratch_ / "set.idx", files.index);
    test::spill(scratch_ / "set.bin", files.bin);
    return scratch_ / "set.idx";
  }
  std::string failure(const Files& files) {
    const std::filesystem::path path = write(files);
    try {
      MegatronDataset dataset(path);
      std::vector<TokenId> ids;
      for (std::uint64_t i = 0; i < dataset.documents(); ++i) {
        dataset.read_document(i, 300, ids);
      }
    } catch (const InputError& error) {
      return error.what();
    }
    return "none";
  }
  test::Scratch scratch_;
};

TEST_F(MegatronDatasetFiles, EveryTypeOfIds) {
  for (const std::uint8_t code : {1, 2, 3, 4, 5, 8}) {
    const Documents3 documents = {{{1, 2, 3}}, {{4}, {5, 6}}, {}, {{127, 0}}};
    const MegatronDataset dataset(write(test::megatron_files(documents, code)));
    ASSERT_EQ(dataset.documents(), 4u);
    EXPECT_EQ(dataset.sequences(), 4u);
    std::vector<TokenId> ids;
    dataset.read_document(1, 300, ids);
    EXPECT_EQ(ids, (std::vector<TokenId>{4, 5, 6})) << int{code};
    dataset.read_document(2, 300, ids);
    EXPECT_TRUE(ids.empty());
    dataset.read_document(3, 300, ids);
    EXPECT_EQ(ids, (std::vector<TokenId>{127, 0})) << int{code};
  }
}

TEST_F(MegatronDatasetFiles, AnyOfItsNames) {
  write(test::megatron_files({{{1}}}, 8));
  for (const char* name : {"set", "set.idx", "set.bin"}) {
    EXPECT_TRUE(is_megatron_dataset(scratch_ / name)) << name;
    EXPECT_EQ(MegatronDataset(scratch_ / name).documents(), 1u) << name;
  }
  EXPECT_FALSE(is_megatron_dataset(scratch_ / "other"));
  EXPECT_FALSE(is_megatron_dataset(scratch_.path()));
}

// The same corpus as from the text itself, with and without Megatron's --append-eod.
TEST_F(MegatronDatasetFiles, CorpusIsThatOfTheText) {
  const Tokenizer tokenizer = test::trained_tokenizer();
  const std::vector<std::string> texts = {"in the beginning", "", "the word was", "end"};
  test::make_corpus(scratch_, "text.h5", texts, tokenizer);
  const Corpus expected(scratch_ / "text.h5");
  for (const bool append_eod : {false, true}) {
    Documents3 documents;
    for (const std::string& text : texts) {
      const std::vector<TokenId> ids = tokenizer.encode(text);
      std::vector<std::int64_t> sequence(ids.begin(), ids.end());
      if (append_eod) sequence.push_back(tokenizer.end_of_document());
      documents.push_back({sequence});
    }
    const MegatronDataset dataset(write(test::megatron_files(documents, 4)));
    const auto self = comm::make_self_communicator("self");
    const CorpusSummary made =
        convert_megatron_dataset(dataset, tokenizer, scratch_ / "ids.h5", *self, {});
    EXPECT_EQ(made.documents, 3u);
    EXPECT_EQ(made.empty_documents, 1u);
    const Corpus corpus(scratch_ / "ids.h5");
    EXPECT_EQ(corpus.verify(), "");
    EXPECT_EQ(corpus.checksum(), expected.checksum());
    EXPECT_EQ(corpus.token_count(), expected.token_count());
    EXPECT_EQ(corpus.unigram_entropy(), expected.unigram_entropy());
  }
}

// The sentences of the text itself, however the ends of documents are given.
TEST_F(MegatronDatasetFiles, SequencesAreSentences) {
  const Tokenizer tokenizer = test::trained_tokenizer();
  const std::vector<std::vector<std::string>> texts = {
      {"In the beginning.", " The word was.", " And it was so."},
      {"One."},
      {"He asked.", " Who can"}};
  const auto self = comm::make_self_communicator("self");
  CorpusOptions with_sentences;
  with_sentences.sentences = Language::none;
  std::vector<std::string> whole;
  for (const auto& sentences : texts) {
    whole.emplace_back();
    for (const std::string& sentence : sentences) whole.back() += sentence;
  }
  CorpusOptions by_rules;
  by_rules.sentences = language_of("en");
  test::make_corpus(scratch_, "text.h5", whole, tokenizer, by_rules);
  const Corpus expected(scratch_ / "text.h5");
  for (const int ends : {0, 1, 2}) {  // none, in the last sentence, alone
    Documents3 documents;
    for (const auto& sentences : texts) {
      auto& document = documents.emplace_back();
      for (const std::string& sentence : sentences) {
        const std::vector<TokenId> ids = tokenizer.encode(sentence);
        document.emplace_back(ids.begin(), ids.end());
        document.emplace_back();  // an empty one is no sentence
      }
      if (ends == 2) document.emplace_back();
      if (ends == 0) continue;
      if (ends == 1) document.pop_back();
      document.back().push_back(tokenizer.end_of_document());
    }
    const MegatronDataset dataset(write(test::megatron_files(documents, 4)));
    const CorpusSummary made = convert_megatron_dataset(
        dataset, tokenizer, scratch_ / "ids.h5", *self, with_sentences);
    EXPECT_EQ(made.sentences, 6u);
    const Corpus corpus(scratch_ / "ids.h5");
    EXPECT_EQ(corpus.verify(), "");
    EXPECT_EQ(corpus.checksum(), expected.checksum());
    ASSERT_EQ(corpus.sentence_count(), expected.sentence_count());
    for (index_t i = 0; i < corpus.sentence_count(); ++i) {
      EXPECT_EQ(corpus.sentence_begin(i), expected.sentence_begin(i)) << ends;
    }
  }
  const MegatronDataset plain(write(test::megatron_files({{{1, 2}}, {{3}}}, 8)));
  EXPECT_THAT(
      test::message_of<InputError>([&] {
        convert_megatron_dataset(plain, tokenizer, scratch_ / "no.h5", *self,
                                 with_sentences);
      }),
      AllOf(HasSubstr("has 2 sequences in 2 documents"), HasSubstr("--split-sentences")));
}

TEST_F(MegatronDatasetFiles, DamageIsNamed) {
  const Files good = test::megatron_files({{{1, 2, 3}}, {{4, 5}}}, 8);
  EXPECT_EQ(failure(good), "none");
  // The index, cut anywhere; ids, cut anywhere.
  for (std::size_t length = 0; length < good.index.size(); ++length) {
    EXPECT_NE(failure({good.index.substr(0, length), good.bin}), "none") << length;
  }
  for (std::size_t length = 0; length < good.bin.size(); ++length) {
    EXPECT_THAT(failure({good.index, good.bin.substr(0, length)}),
                ::testing::AnyOf(HasSubstr("cut short"), HasSubstr("empty")))
        << length;
  }
  // Every bit of the index turned over: said, or other ids, but never a crash.
  for (std::size_t bit = 0; bit < good.index.size() * 8; ++bit) {
    Files bad = good;
    bad.index[bit / 8] = static_cast<char>(bad.index[bit / 8] ^ (1 << bit % 8));
    failure(bad);
  }
  Files bad = good;
  bad.index[0] = 'X';
  EXPECT_THAT(failure(bad), HasSubstr("does not begin with MMIDIDX"));
  bad = good;
  bad.index[9] = 2;
  EXPECT_THAT(failure(bad), HasSubstr("version 2"));
  EXPECT_THAT(failure(test::megatron_files({{{1}}}, 7)), HasSubstr("no integer"));
}

TEST_F(MegatronDatasetFiles, IdsOfAnotherTokenizer) {
  EXPECT_THAT(failure(test::megatron_files({{{1}}, {{7, 300}}}, 8)),
              AllOf(HasSubstr("token 1 of document 1 is 300"), HasSubstr("300 tokens")));
  EXPECT_THAT(failure(test::megatron_files({{{-1}}}, 4)), HasSubstr("is -1"));
}

TEST_F(MegatronDatasetFiles, CutUnderItsReaders) {
  for (const char* name : {"set.idx", "set.bin"}) {
    const MegatronDataset dataset(write(test::megatron_files({{{1, 2, 3}}}, 8)));
    std::filesystem::resize_file(scratch_ / name, 0);
    std::vector<TokenId> ids;
    EXPECT_THAT(test::message_of<InputError>([&] { dataset.read_document(0, 300, ids); }),
                HasSubstr(std::string(name) + "' was cut short while it was read"));
  }
}

}  // namespace
}  // namespace trireme::data
