// Corpora written by 1, 2, 3 and 5 ranks have the same bytes; an error on one rank is one
// on all, and leaves nothing.
#include "data/corpus_writer.hpp"
#include "data/vocabulary_trainer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "comm/mpi_communicator.hpp"
#include "data/corpus.hpp"
#include "data/sentence_piece_library.hpp"
#include "support/compress.hpp"
#include "support/shared_scratch.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

class CorpusWriterRanks : public ::testing::Test {
 protected:
  std::filesystem::path path(const std::string& name) const { return scratch_ / name; }
  void put(const std::string& name, const std::string& text) { scratch_.put(name, text); }
  // As `ranks` ranks (those that there are) and as one, into two files.
  void expect_same_bytes(const std::vector<std::filesystem::path>& inputs,
                         SourceOptions source_options, CorpusOptions options,
                         const Tokenizer& tokenizer) {
    const DocumentSource source(inputs, source_options);
    const CorpusSummary together =
        write_corpus(tokenizer, source, path("together.h5"), *world_, options);
    if (world_->rank() == 0) {
      const auto self = comm::make_self_communicator("self");
      const CorpusSummary alone =
          write_corpus(tokenizer, source, path("alone.h5"), *self, options);
      EXPECT_EQ(together.tokens, alone.tokens);
      EXPECT_EQ(together.documents, alone.documents);
      EXPECT_EQ(together.sentences, alone.sentences);
      EXPECT_EQ(alone.sentences > 0, options.sentences.has_value());
      EXPECT_EQ(together.empty_documents, alone.empty_documents);
      EXPECT_EQ(together.replaced_sequences, alone.replaced_sequences);
      EXPECT_EQ(together.unigram_entropy, alone.unigram_entropy);
      EXPECT_EQ(together.text_bytes, alone.text_bytes);
      EXPECT_EQ(together.unknown_tokens, alone.unknown_tokens);
      EXPECT_EQ(together.added_tokens_found, alone.added_tokens_found);
      EXPECT_TRUE(test::slurp(path("together.h5")) == test::slurp(path("alone.h5")));
      EXPECT_EQ(Corpus(path("together.h5")).verify(), "");
    }
    world_->barrier();
  }
  std::size_t files_left() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(scratch_.path()), {}));
  }

  std::shared_ptr<comm::Communicator> world_ = comm::make_mpi_world();
  test::SharedScratch scratch_{*world_};
};

TEST_F(CorpusWriterRanks, GiveTheBytesOfOne) {
  const Tokenizer tokenizer = test::trained_tokenizer();
  const std::string sample = io::read_file(test::fixture("sample.txt"));
  put("a.txt", sample);
  put("b.txt", "");
  put("c.txt", io::read_file(test::fixture("invalid.bin")));
  put("d.jsonl", "{\"text\": \"one\"}\n{\"text\": \"\"}\n{\"text\": \"two three\"}\n");
  const std::vector<std::filesystem::path> all = {path("a.txt"), path("b.txt"),
                                                  path("c.txt"), path("d.jsonl")};
  for (const Documents documents :
       {Documents::file, Documents::line, Documents::blank_line}) {
    for (const bool cut : {true, false}) {
      expect_same_bytes(all, {documents, "text", cut}, {}, tokenizer);
    }
  }
  // Spools that go to disk.
  CorpusOptions spilling;
  spilling.spool_memory = 100;
  expect_same_bytes(all, {.cut_inside_documents = true}, spilling, tokenizer);
  // More ranks than there is text for.
  put("tiny.txt", "x");
  expect_same_bytes({path("tiny.txt")}, {.cut_inside_documents = true}, {}, tokenizer);
}

// Of the documents' own bytes; and what a text spells is not what was unknown.
TEST_F(CorpusWriterRanks, CountWhatIsInTheText) {
  const Tokenizer tokenizer = Tokenizer::load({test::fixture("uncased")});
  put("a.txt", "in the [MASK]\n\u2603\n\n[PAD] [UNK] \u2603\n[MASK]\n");
  put("b.jsonl",
      "{\"id\": 7, \"text\": \"\\u2603\"}\n{\"text\": \"in [SEP]\", \"a\": 1}\n");
  const std::vector<std::filesystem::path> inputs = {path("a.txt"), path("b.jsonl")};
  const SourceOptions by_line{.documents = Documents::line};
  expect_same_bytes(inputs, by_line, {}, tokenizer);
  const CorpusSummary summary =
      write_corpus(tokenizer, DocumentSource(inputs, by_line), path("a.h5"), *world_, {});
  EXPECT_EQ(summary.documents, 6u);
  EXPECT_EQ(summary.text_bytes, 13u + 3 + 15 + 6 + 3 + 8);
  EXPECT_EQ(summary.unknown_tokens, 3u);
  std::map<TokenId, std::uint64_t> found;
  for (const Special special : {Special::padding, Special::unknown, Special::mask,
                                Special::mask, Special::separate}) {
    ++found[tokenizer.special(special)];
  }
  EXPECT_EQ(summary.added_tokens_found, found);
}

// A tokenizer.json may have a token for unknown words that is no added one.
TEST_F(CorpusWriterRanks, CountUnknownWordsOfAModelAlone) {
  nlohmann::json file = nlohmann::json::parse(io::read_file(test::fixture("cased.json")));
  nlohmann::json& added = file["added_tokens"];
  for (auto token = added.begin(); token != added.end();) {
    token = (*token)["content"] == "[UNK]" ? added.erase(token) : token + 1;
  }
  const Tokenizer tokenizer = Tokenizer::from_files({{"tokenizer.json", file.dump()}});
  put("a.txt", "in \u2603 the \u2603\n");
  const CorpusSummary summary = write_corpus(
      tokenizer, DocumentSource({path("a.txt")}, {}), path("a.h5"), *world_, {});
  EXPECT_EQ(summary.unknown_tokens, 2u);
  EXPECT_TRUE(summary.added_tokens_found.empty());
}

// White space alone may have no ids, and does not begin a sentence: of WordPiece, too.
TEST_F(CorpusWriterRanks, KeepTheSentencesOfOne) {
  const std::string sample = io::read_file(test::fixture("sample.txt"));
  put("a.txt", "  \n\n \n" + sample + "\n\n" +
                   io::read_file(test::fixture("invalid.bin")) + "\n\n\t");
  put("b.txt", "\n\n \n\n  \n\n");
  put("c.txt", "One. Two.\n\nThree");
  CorpusOptions options;
  options.sentences = Language::english;
  for (const char* name : {"trained.json", "uncased"}) {
    const Tokenizer tokenizer = Tokenizer::load({test::fixture(name)});
    for (const Documents documents :
         {Documents::file, Documents::line, Documents::blank_line}) {
      expect_same_bytes({path("a.txt"), path("b.txt"), path("c.txt")},
                        {.documents = documents,
                         .cut_inside_documents = true,
                         .cut_before_blank_lines_only = true},
                        options, tokenizer);
    }
  }
}

// Of SentencePiece, with byte fallback, and a space in front of what is at the front of a
// document alone: its ids depend on what was before it in the document, and not on what
// was before the document.
Tokenizer with_space_at_the_front() {
  auto json = nlohmann::json::parse(io::read_file(test::fixture("bpe.json")));
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {{"type", "Metaspace"},
                           {"replacement", "\u2581"},
                           {"prepend_scheme", "first"},
                           {"split", false}};
  return Tokenizer::from_files({{"tokenizer.json", json.dump()}});
}

// No tokenizer of SentencePiece cuts a document, so that documents are shared out whole:
// every rank has some, and with sentences too.
TEST_F(CorpusWriterRanks, ShareOutDocumentsOfSentencePiece) {
  if (!has_sentence_piece()) {
    GTEST_SKIP() << "NO SENTENCEPIECE: this build refuses its models";
  }
  const std::string sample = io::read_file(test::fixture("sample.txt"));
  put("a.txt", sample + "\n\nAnd</s>And, naïve. One</s> more.\n\n" + sample);
  put("b.txt", "");
  put("c.txt", io::read_file(test::fixture("invalid.bin")));
  put("d.jsonl", "{\"text\": \"one\"}\n{\"text\": \"\"}\n{\"text\": \"two three\"}\n");
  const std::vector<std::filesystem::path> all = {path("a.txt"), path("b.txt"),
                                                  path("c.txt"), path("d.jsonl")};
  for (const Tokenizer& tokenizer :
       {Tokenizer::load({test::fixture("unigram.model")}), with_space_at_the_front()}) {
    for (const Documents documents : {Documents::line, Documents::blank_line}) {
      const SourceOptions source{.documents = documents,
                                 .cut_inside_documents = tokenizer.can_cut_before_space(),
                                 .cut_before_blank_lines_only = true};
      ASSERT_FALSE(source.cut_inside_documents);
      ASSERT_EQ(DocumentSource(all, source).idle_ranks(world_->size()), 0);
      for (const auto& sentences :
           {std::optional<Language>(), std::optional(Language::english)}) {
        CorpusOptions options;
        options.sentences = sentences;
        expect_same_bytes(all, source, options, tokenizer);
      }
    }
  }
}

// The same inputs plain, as .gz and as .zst, give one corpus.
struct Packed {
  const char* extension;
  std::string (*bytes_of)(const std::string& text);
};
constexpr Packed kPacked[] = {
    {"", [](const std::string& text) { return text; }},
    {".gz", [](const std::string& t) { return test::gzip_of(t); }},
    {".zst", [](const std::string& t) { return test::zstd_of(t); }}};

TEST_F(CorpusWriterRanks, GiveTheBytesOfUnpackedFiles) {
  const Tokenizer tokenizer = test::trained_tokenizer();
  const std::string sample = io::read_file(test::fixture("sample.txt"));
  std::string lines;
  for (int i = 0; i < 300; ++i) lines += fmt::format("{{\"text\": \"line {}\"}}\n", i);
  std::vector<std::string> corpora;
  for (const Packed& form : kPacked) {
    std::vector<std::filesystem::path> inputs;
    for (int i = 0; i < 4; ++i) {
      const std::string name =
          fmt::format("in{}{}{}", i, i % 2 == 0 ? ".txt" : ".jsonl", form.extension);
      put(name, form.bytes_of(i % 2 == 0 ? sample.substr(1000 * i) : lines));
      inputs.push_back(path(name));
    }
    expect_same_bytes(inputs, {.cut_inside_documents = true}, {}, tokenizer);
    if (world_->rank() == 0) corpora.push_back(test::slurp(path("together.h5")));
  }
  if (world_->rank() != 0) return;
  EXPECT_TRUE(corpora.at(1) == corpora.at(0));
  EXPECT_TRUE(corpora.at(2) == corpora.at(0));
}

// Sentences of text with wide white space, unpacked by windows of which most end within a
// character or around a blank line, and which are shorter than a document.
TEST_F(CorpusWriterRanks, KeepTheSentencesOfUnpackedFiles) {
  std::string text = "First.";
  for (int i = 0; i < 150; ++i) {
    text += fmt::format(
        "\n\n\u3000\u00a0\u3053\u308c {}.\u2028\u3002\n \n\u2028One. \u00c9t\u00e9{}", i,
        std::string(static_cast<std::size_t>(i % 7), ' '));
  }
  text += "\n\n\u3000\u2028\n\n\u00a0";
  CorpusOptions options;
  options.sentences = Language::english;
  for (const char* name : {"trained.json", "uncased"}) {
    const Tokenizer tokenizer = Tokenizer::load({test::fixture(name)});
    for (const std::size_t window :
         {std::size_t{17}, std::size_t{64}, std::size_t{1} << 22}) {
      std::vector<std::string> corpora;
      for (const Packed& form : kPacked) {
        std::vector<std::filesystem::path> inputs;
        for (std::size_t i = 0; i < 3; ++i) {
          inputs.push_back(path(fmt::format("{}.txt{}", i, form.extension)));
          put(inputs.back().filename(), form.bytes_of(text.substr(0, text.size() - i)));
        }
        expect_same_bytes(inputs,
                          {.cut_inside_documents = tokenizer.can_cut_before_space(),
                           .cut_before_blank_lines_only = true,
                           .window = window},
                          options, tokenizer);
        if (world_->rank() == 0) corpora.push_back(test::slurp(path("together.h5")));
      }
      if (world_->rank() != 0) continue;
      EXPECT_TRUE(corpora.at(1) == corpora.at(0)) << name << " " << window;
      EXPECT_TRUE(corpora.at(2) == corpora.at(0)) << name << " " << window;
    }
  }
}

TEST_F(CorpusWriterRanks, SumManyBlocks) {
  // 5 blocks of the checksum and a part, so that each rank has some.
  std::string text;
  const std::string sample = io::read_file(test::fixture("sample.txt"));
  while (text.size() < (std::size_t{14} << 20)) text += sample;
  put("long.txt", text);
  expect_same_bytes({path("long.txt")}, {.cut_inside_documents = true}, {},
                    test::trained_tokenizer());
}

TEST_F(CorpusWriterRanks, TrainTheSameTokenizer) {
  put("a.txt", io::read_file(test::fixture("sample.txt")));
  const DocumentSource source({path("a.txt")}, {.cut_inside_documents = true});
  const TrainedTokenizer trained = train_byte_level_bpe(source, 700, *world_, {});
  EXPECT_FALSE(trained.ran_out_of_pairs);
  const std::string sample = io::read_file(test::fixture("sample.txt"));
  EXPECT_EQ(trained.tokenizer.encode(sample), test::trained_tokenizer().encode(sample));
}

TEST_F(CorpusWriterRanks, AllLearnOfOnesError) {
  std::string lines;
  for (int i = 0; i < 300; ++i) lines += "{\"text\": \"fine\"}\n";
  put("bad.jsonl", lines + "{\"text\": 1}\n" + lines + "nonsense\n");
  const std::size_t before = files_left();
  world_->barrier();
  const DocumentSource source({path("bad.jsonl")}, {});
  const std::string message = test::message_of<InputError>([&] {
    write_corpus(test::trained_tokenizer(), source, path("bad.h5"), *world_, {});
  });
  // The first error in the input, whoever reads it.
  EXPECT_THAT(message, HasSubstr("bad.jsonl:301: 'text' is number"));
  world_->barrier();
  EXPECT_EQ(files_left(), before);
}

}  // namespace
}  // namespace trireme::data
