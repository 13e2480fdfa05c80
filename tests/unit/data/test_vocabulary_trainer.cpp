// Training of WordPiece and unigram vocabularies: what is in them, that they are the same
// for any number of ranks (this file runs on several) and have the ids of Hugging Face's
// tokenizers, and what is refused.
#include "data/vocabulary_trainer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.hpp"
#include "base/words.hpp"
#include "comm/mpi_communicator.hpp"
#include "data/sentence_piece_files.hpp"
#include "data/sentence_piece_library.hpp"
#include "data/sentence_piece_model.hpp"
#include "support/shared_scratch.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr const char* kNoTrainer =
    "NO SENTENCEPIECE: this build trains no such vocabularies (libsentencepiece-dev)";

class VocabularyTrainer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_sentence_piece()) GTEST_SKIP() << kNoTrainer;
  }

  DocumentSource source_of(const std::string& name, const std::string& text) {
    return DocumentSource({scratch_.put(name, text)}, {.cut_inside_documents = true});
  }
  DocumentSource sample() {
    return source_of("sample.txt", io::read_file(test::fixture("sample.txt")));
  }

  std::shared_ptr<comm::Communicator> world_ = comm::make_mpi_world();
  test::SharedScratch scratch_{*world_};
};

std::vector<std::string> list_of(const WordCounter::Counts& counts, TokenId size) {
  bool ran_out = false;
  const std::string list = trained_word_list(counts, size, ran_out);
  std::vector<std::string> tokens;
  for (const std::string_view line : lines_of(list)) tokens.emplace_back(line);
  EXPECT_EQ(ran_out, tokens.size() < size);
  return tokens;
}

TEST_F(VocabularyTrainer, MergesWhatIsFrequentIntoWordPieces) {
  const WordCounter::Counts counts = {{"abab", 10}, {"xab", 7}, {"x", 1}};
  // "ab" to go on with is there 27 times; then "ab" to begin with, and both together, 10.
  const std::vector<std::string> all = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
                                        "a",     "x",     "##a",   "##b",   "##ab",
                                        "ab",    "abab",  "xab"};
  EXPECT_EQ(list_of(counts, 13), all);
  EXPECT_EQ(list_of(counts, 10), std::vector(all.begin(), all.begin() + 10));
  const std::vector<std::string> most = list_of(counts, 100);
  EXPECT_LT(most.size(), 100u);
  EXPECT_EQ(std::vector(most.begin(), most.begin() + 13), all);
  EXPECT_THAT(test::message_of<InputError>([&] { list_of(counts, 8); }),
              AllOf(HasSubstr("of 8 tokens is too small"), HasSubstr("9 at least")));
}

// Words that nothing could spell have no part; nor has the mark of the library.
TEST_F(VocabularyTrainer, LeavesOutWhatStaysUnknown) {
  WordCounter::Counts counts = {{std::string(101, 'q'), 5}, {"\u2581a", 9}, {"ab", 2}};
  for (int i = 0; i < 1200; ++i) {
    std::string character;
    character += static_cast<char>(0xE4 + i / 4096);
    character += static_cast<char>(0x80 + i / 64 % 64);
    character += static_cast<char>(0x80 + i % 64);
    counts[character] = i < 1000 ? 3 : 1;
  }
  counts["ab"] = 100;
  const std::vector<std::string> tokens = list_of(counts, 5000);
  EXPECT_EQ(std::ranges::count(tokens, "a"), 1);
  EXPECT_EQ(std::ranges::count(tokens, "q"), 0);
  EXPECT_EQ(std::ranges::count(tokens, "\u4e80"), 0);
  EXPECT_EQ(std::ranges::count(tokens, "\u4000"), 1);
  // 1000 characters less "b", which begins no word, with "##b", "ab" and the specials.
  EXPECT_EQ(tokens.size(), 1006u);
}

TEST_F(VocabularyTrainer, OfAnyRanksIsThatOfOne) {
  const DocumentSource source = sample();
  const auto self = comm::make_self_communicator("self");
  const auto basic = BasicTokenizerOptions::cased();
  const TrainedTokenizer words = train_word_piece(source, 400, basic, *world_, {});
  EXPECT_EQ(words.tokenizer.files(),
            train_word_piece(source, 400, basic, *self, {}).tokenizer.files());
  EXPECT_EQ(words.tokenizer.vocabulary_size(), 400u);
  EXPECT_FALSE(words.ran_out_of_pairs);
  EXPECT_EQ(words.tokenizer.model().description(), "WordPiece, cased");
  const TrainedTokenizer unigram = train_unigram(source, 600, 10, *world_, {});
  EXPECT_EQ(unigram.tokenizer.files(),
            train_unigram(source, 600, 10, *self, {}).tokenizer.files());
  EXPECT_EQ(unigram.tokenizer.vocabulary_size(), 600u);
  EXPECT_EQ(unigram.tokenizer.sentinels().count, 10);
  EXPECT_EQ(unigram.tokenizer.sentinels().first, 599u);
  EXPECT_EQ(unigram.tokenizer.special(Special::padding), 0u);
  EXPECT_EQ(unigram.tokenizer.end_of_document(), 1u);
  EXPECT_EQ(unigram.tokenizer.special(Special::unknown), 2u);
  // Nothing is unknown.
  EXPECT_EQ(unigram.tokenizer.decode(unigram.tokenizer.encode("naïve \U0001F600 \u4e2d")),
            "naïve \U0001F600 \u4e2d");
}

// --- vocabularies that the program trained once, and their arguments

nlohmann::json recorded() {
  return nlohmann::json::parse(io::read_file(test::fixture("trained/texts.json")));
}
Tokenizer recorded_tokenizer(const std::string& kind) {
  return Tokenizer::load({test::fixture("trained/" + kind)});
}

// As `trireme tokenize` does with the arguments of the record, on its text.
TrainedTokenizer trained_anew(const nlohmann::json& record, comm::Communicator& comm) {
  const auto arguments = record.at("arguments").get<std::vector<std::string>>();
  const DocumentSource source({test::fixture(record.at("text").get<std::string>())},
                              {.cut_inside_documents = true});
  const auto value_of = [&](const char* option) {
    const auto found = std::ranges::find(arguments, option);
    if (found == arguments.end() || found + 1 == arguments.end()) return 0;
    return std::stoi(*(found + 1));
  };
  const auto size = static_cast<TokenId>(value_of("--train-wordpiece"));
  if (size == 0) {
    return train_unigram(source, static_cast<TokenId>(value_of("--train-unigram")),
                         value_of("--extra-ids"), comm, {});
  }
  const bool is_cased = std::ranges::count(arguments, "--cased") > 0;
  return train_word_piece(
      source, size,
      is_cased ? BasicTokenizerOptions::cased() : BasicTokenizerOptions::uncased(), comm,
      {});
}

std::vector<std::string> tokens_of(const Tokenizer& tokenizer) {
  std::vector<std::string> tokens;
  for (const std::string_view line : lines_of(tokenizer.files().at("vocab.txt"))) {
    tokens.emplace_back(line);
  }
  return tokens;
}

// The fixture's script has found the same by the plain definition. Every version of the
// library merges alike, as no character of the text is there twice in a row.
TEST_F(VocabularyTrainer, TrainsTheRecordedWordPieces) {
  const auto records = recorded();
  for (const char* const kind : {"uncased", "cased"}) {
    SCOPED_TRACE(kind);
    const TrainedTokenizer trained = trained_anew(records.at(kind), *world_);
    const Tokenizer expected = recorded_tokenizer(kind);
    ASSERT_EQ(tokens_of(expected).size(), 600u);
    EXPECT_THAT(tokens_of(trained.tokenizer), ElementsAreArray(tokens_of(expected)));
    EXPECT_EQ(trained.tokenizer.files().at("tokenizer_config.json"),
              expected.files().at("tokenizer_config.json"));
  }
}

SentencePieceModel model_of(const Tokenizer& tokenizer) {
  return SentencePieceModel::parse("model", tokenizer.files().at(kSentencePieceFile));
}

void expect_no_unknown(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<TokenId> ids = tokenizer.encode(text);
  EXPECT_EQ(std::ranges::count(ids, tokenizer.special(Special::unknown)), 0) << text;
  EXPECT_EQ(tokenizer.encode(tokenizer.decode(ids)), ids) << text;
}

// Which pieces of text there are, and with what scores, is not compared: they are left
// over by rounds that estimate probabilities and drop the pieces that matter least, and
// of this very text the library's versions 0.1.97, 0.1.98, 0.1.99 and 0.2.3 leave four
// different sets. What every version must give is the recorded layout of the vocabulary,
// and ids for all of the text.
TEST_F(VocabularyTrainer, TrainsAUnigramModelOfTheRecordedLayout) {
  constexpr std::size_t kBeforeText = 3 + 256;  // special tokens and bytes
  const nlohmann::json record = recorded().at("unigram");
  const Tokenizer tokenizer = trained_anew(record, *world_).tokenizer;
  const Tokenizer expected = recorded_tokenizer("unigram");
  EXPECT_EQ(tokenizer.vocabulary_size(), 700u);
  EXPECT_EQ(tokenizer.vocabulary_size(), expected.vocabulary_size());
  EXPECT_EQ(tokenizer.files().at("tokenizer_config.json"),
            expected.files().at("tokenizer_config.json"));
  EXPECT_EQ(tokenizer.sentinels().first, expected.sentinels().first);
  EXPECT_EQ(tokenizer.sentinels().count, 20);

  const auto pieces = model_of(tokenizer).pieces, others = model_of(expected).pieces;
  ASSERT_EQ(pieces.size(), others.size());
  std::set<std::string> texts;
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    EXPECT_EQ(pieces[id].kind, others[id].kind) << id;
    if (id < kBeforeText) {
      EXPECT_EQ(pieces[id].text, others[id].text) << id;
    }
    EXPECT_TRUE(texts.insert(pieces[id].text).second) << pieces[id].text;
  }
  EXPECT_EQ(byte_of_piece(pieces[kBeforeText - 1].text), 255);

  const std::string sample =
      io::read_file(test::fixture(record.at("text").get<std::string>()));
  for (const std::string_view line : lines_of(sample)) expect_no_unknown(tokenizer, line);
  for (std::size_t at = 0; at < sample.size();) {
    const auto length = static_cast<std::size_t>(code_point_at(sample, at).length);
    expect_no_unknown(tokenizer, std::string_view(sample).substr(at, length));
    at += length;
  }
  // Of text that has no other form for T5, the ids give it back, to the byte.
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("In the beginning \u4e2d\u2211 <x> {y}")),
            "In the beginning \u4e2d\u2211 <x> {y}");
}

// What `tokenizers` makes of vocabularies that the program has trained: fixtures by
// tests/parity/make_trained_fixtures.py.
TEST_F(VocabularyTrainer, HasTheIdsOfHuggingFace) {
  const auto records = recorded();
  for (const char* const kind : {"unigram", "uncased", "cased"}) {
    SCOPED_TRACE(kind);
    const Tokenizer tokenizer = recorded_tokenizer(kind);
    const nlohmann::json& texts = records.at(kind).at("texts");
    ASSERT_GT(texts.size(), 20u);
    for (const nlohmann::json& text : texts) {
      EXPECT_EQ(tokenizer.encode(text.at("text").get<std::string>()),
                text.at("ids").get<std::vector<TokenId>>())
          << text.at("text");
    }
  }
}

TEST_F(VocabularyTrainer, SaysWhenTheTextHasNoMore) {
  const DocumentSource source = source_of("few.txt", "abc abd abc abe\n");
  EXPECT_TRUE(train_word_piece(source, 400, {}, *world_, {}).ran_out_of_pairs);
  const TrainedTokenizer unigram = train_unigram(source, 4000, 0, *world_, {});
  EXPECT_TRUE(unigram.ran_out_of_pairs);
  EXPECT_LT(unigram.tokenizer.vocabulary_size(), 300u);
}

// The characters need pieces, too: the number that is named is the least that will do.
TEST_F(VocabularyTrainer, NamesTheLeastSizeOfAUnigramModel) {
  const DocumentSource source = sample();
  const auto message_of_size = [&](TokenId size, std::int64_t sentinels) {
    return test::message_of<InputError>(
        [&] { train_unigram(source, size, sentinels, *world_, {}); });
  };
  const std::string message = message_of_size(360, 100);
  EXPECT_THAT(message, AllOf(HasSubstr("of 360 tokens is too small for this text"),
                             HasSubstr(" at least (100 sentinels among them)"),
                             testing::Not(HasSubstr("character_coverage"))));
  const std::string mark = "make it ";
  const std::size_t number = message.find(mark);
  ASSERT_NE(number, std::string::npos);
  const auto least =
      static_cast<TokenId>(std::stoul(message.substr(number + mark.size())));
  EXPECT_GT(least, 361u);
  EXPECT_THAT(message_of_size(least - 1, 100), HasSubstr(fmt::format("it {} at", least)));
  EXPECT_EQ(message_of_size(least, 100), "(nothing thrown)");
  EXPECT_THAT(message_of_size(260, 0),
              testing::EndsWith(fmt::format("make it {} at least", least - 100)));
}

TEST_F(VocabularyTrainer, RefusesWhatHasNoRoom) {
  const DocumentSource source = sample();
  EXPECT_THAT(
      test::message_of<InputError>([&] { train_unigram(source, 300, 100, *world_, {}); }),
      AllOf(HasSubstr("of 300 tokens is too small"), HasSubstr("make 359")));
  EXPECT_THAT(test::message_of<InputError>(
                  [&] { train_word_piece(source, 20, {}, *world_, {}); }),
              HasSubstr("too small for this text"));
  const DocumentSource blank = source_of("blank.txt", " \n ");
  EXPECT_THAT(
      test::message_of<InputError>([&] { train_unigram(blank, 400, 0, *world_, {}); }),
      HasSubstr("nothing to train on"));
}

}  // namespace
}  // namespace trireme::data
