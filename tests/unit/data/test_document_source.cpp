// Documents of text files and JSON lines, whole and shared out to ranks, against a plain
// reading; bad input is named by file and line.
#include "data/document_source.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "data/sentence_characters.hpp"
#include "data/sentences.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Puts the parts of several ranks together again.
class Collector : public DocumentSink {
 public:
  void begin_document() override {
    EXPECT_FALSE(open);
    open = true;
    documents.emplace_back();
  }
  void text(std::string_view bytes) override {
    ASSERT_TRUE(open);
    documents.back().append(bytes);
    pieces.emplace_back(bytes);
  }
  void end_document() override {
    EXPECT_TRUE(open);
    open = false;
  }
  bool open = false;
  std::vector<std::string> documents;
  std::vector<std::string> pieces;
};

std::vector<std::string> read(const DocumentSource& source, int ranks = 1,
                              DocumentSource::ReadStats* total = nullptr) {
  Collector collector;
  std::uint64_t bytes = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto stats = source.read(rank, ranks, collector, {});
    bytes += stats.bytes;
    if (total != nullptr) total->empty_documents += stats.empty_documents;
    if (total != nullptr) total->replaced_sequences += stats.replaced_sequences;
  }
  EXPECT_FALSE(collector.open);
  EXPECT_EQ(bytes, source.bytes());
  return collector.documents;
}

class DocumentSourceText : public ::testing::Test {
 protected:
  DocumentSource source(const std::vector<std::string>& texts, SourceOptions options,
                        const std::string& extension = ".txt") {
    std::vector<std::filesystem::path> paths;
    for (const std::string& text : texts) {
      paths.push_back(scratch_ / ("in" + std::to_string(paths.size()) + extension));
      test::spill(paths.back(), text);
    }
    return {paths, options};
  }
  test::Scratch scratch_;
};

TEST_F(DocumentSourceText, AFileIsADocumentWithEveryByte) {
  const auto both = source({" a b\n\n", "", "c\r\n"}, {});
  DocumentSource::ReadStats stats;
  EXPECT_THAT(read(both, 1, &stats), ElementsAre(" a b\n\n", "c\r\n"));
  EXPECT_EQ(stats.empty_documents, 1u);
}

TEST_F(DocumentSourceText, LinesAndParagraphs) {
  const std::string text = "one\ntwo\r\n\n \t\nthree \n\n\n\nfour\nfive";
  EXPECT_THAT(read(source({text}, {.documents = Documents::line})),
              ElementsAre("one", "two", "three ", "four", "five"));
  EXPECT_THAT(read(source({text}, {.documents = Documents::blank_line})),
              ElementsAre("one\ntwo", "three ", "four\nfive"));
}

TEST_F(DocumentSourceText, AnyNumberOfRanksReadsTheSame) {
  std::mt19937 random(1);
  const char* parts[] = {"a",     "bc",       " ", "\n",   "\n\n",
                         "\n \n", "\xC2\xA0", "é", "\r\n", "x y"};
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<std::string> texts(1 + random() % 3);
    for (std::string& text : texts) {
      for (unsigned i = random() % 40; i > 0; --i) text += parts[random() % 10];
    }
    texts[0] += "z";  // not all empty
    for (const Documents documents :
         {Documents::file, Documents::line, Documents::blank_line}) {
      const auto all = source(texts, {documents, "text", trial % 2 == 0});
      const auto expected = read(all);
      for (const int ranks : {2, 3, 5, 17})
        ASSERT_EQ(read(all, ranks), expected) << trial;
    }
  }
}

// The claim of document_source.hpp: ids of the parts are those of the whole.
TEST_F(DocumentSourceText, CutsInsideDocumentsKeepTokenIds) {
  const Tokenizer tokenizer = test::trained_tokenizer();
  ASSERT_TRUE(tokenizer.can_cut_before_space());
  for (const char* name : {"sample.txt", "invalid.bin"}) {
    const std::string text = io::read_file(test::fixture(name));
    const auto cut = source({text}, {.cut_inside_documents = true});
    const std::vector<TokenId> expected = tokenizer.encode(text);
    const int ranks = 400;  // nearly every cut there is
    Collector collector;
    for (int rank = 0; rank < ranks; ++rank) cut.read(rank, ranks, collector, {});
    EXPECT_GT(collector.pieces.size(), 100u);
    std::vector<TokenId> ids;
    Encoder encoder(tokenizer);
    for (const std::string& piece : collector.pieces) encoder.encode(piece, ids);
    EXPECT_EQ(ids, expected) << name;
  }
}

// Sentences of the parts are those of the whole; each begins with the white space before
// its first word, or behind it.
TEST_F(DocumentSourceText, CutsBeforeBlankLinesKeepSentences) {
  std::mt19937 random(3);
  const char* parts[] = {"It is.",   " ",      "\n",       "\n\n",   "\n \n",  "\r\n",
                         "\r\n\r\n", "»",      " J. S. ",  "1. A",   "\u3002", "\u2029",
                         "\xFF",     "\u4e2d", "! \u00ab", "\u201c", "\t",     "z. B"};
  for (int trial = 0; trial < 400; ++trial) {
    std::string text = "A";
    for (unsigned i = random() % 60; i > 0; --i) text += parts[random() % 18];
    const auto cut = source(
        {text}, {.cut_inside_documents = true, .cut_before_blank_lines_only = true});
    const SentenceSplitter splitter(static_cast<Language>(trial % 10));
    const auto first_words = [&](std::size_t from, std::string_view part,
                                 std::vector<std::size_t>& words) {
      std::vector<std::size_t> begins;
      splitter.split(part, begins);
      for (const std::size_t at : begins) {
        words.push_back(from + blanks_at(part, at).end);
      }
    };
    std::vector<std::size_t> expected;
    first_words(0, text, expected);
    for (const int ranks : {2, 3, 5, 64}) {
      Collector collector;
      for (int rank = 0; rank < ranks; ++rank) cut.read(rank, ranks, collector, {});
      ASSERT_EQ(collector.documents.at(0), text);
      std::vector<std::size_t> words;
      std::size_t from = 0;
      for (const std::string& piece : collector.pieces) {
        first_words(from, piece, words);
        from += piece.size();
      }
      ASSERT_EQ(words, expected) << trial << ": " << ::testing::PrintToString(text);
    }
  }
}

TEST_F(DocumentSourceText, LongDocumentsComeInBlocks) {
  std::string text;
  while (text.size() < (std::size_t{5} << 20)) text += "some words and more of them. ";
  Collector collector;
  source({text}, {.cut_inside_documents = true}).read(0, 1, collector, {});
  EXPECT_EQ(collector.documents.at(0), text);
  EXPECT_EQ(collector.pieces.size(), 5u);  // a MiB each, and what is left of a word
  Collector uncut;
  source({text}, {.cut_inside_documents = false}).read(0, 1, uncut, {});
  EXPECT_EQ(uncut.pieces.size(), 1u);
}

TEST_F(DocumentSourceText, JsonLines) {
  const std::string lines =
      "{\"id\": 1, \"text\": \"one\\ntwo \\u00e9 \\ud83d\\ude00\"}\n\n"
      "{\"text\": \"\"}\r\n"
      "{\"text\": \"bad \xFF byte\", \"body\": \"other\"}\n";
  DocumentSource::ReadStats stats;
  const auto all = source({lines}, {}, ".jsonl");
  const std::vector<std::string> expected = {"one\ntwo é 😀", "bad \xEF\xBF\xBD byte"};
  EXPECT_EQ(read(all, 1, &stats), expected);
  EXPECT_EQ(stats.empty_documents, 1u);
  EXPECT_EQ(stats.replaced_sequences, 1u);
  for (const int ranks : {2, 3, 7}) EXPECT_EQ(read(all, ranks), expected);
}

TEST_F(DocumentSourceText, BadJsonNamesFileAndLine) {
  const auto error = [&](const std::string& line, const std::string& key = "text") {
    const auto all =
        source({"{\"text\": \"fine\"}\n\n" + line + "\n"}, {.json_key = key}, ".jsonl");
    return test::message_of<InputError>([&] { read(all); });
  };
  EXPECT_THAT(error("{\"text\": \"open"), HasSubstr("in0.jsonl:3:14: not valid JSON"));
  EXPECT_THAT(error("{\"score\": 1e999}"), HasSubstr("in0.jsonl:3:16: number overflow"));
  EXPECT_THAT(error(test::nested_json(100000)),
              HasSubstr("in0.jsonl:3:65: nested more than 64 levels deep"));
  EXPECT_THAT(error("[1]"),
              HasSubstr("in0.jsonl:3: expected a JSON object, found array"));
  EXPECT_THAT(error("{\"text\": 5}"),
              HasSubstr("in0.jsonl:3: 'text' is number, expected a string"));
  EXPECT_THAT(
      error("{\"body\": \"x\", \"id\": 2}"),
      HasSubstr("no key 'text', its keys are: body, id. Name the one with the text "
                "by --json-key"));
  EXPECT_THAT(error("{}", "body"),
              HasSubstr("in0.jsonl:1: the object has no key 'body'"));
}

TEST_F(DocumentSourceText, BadFiles) {
  const auto error = [](std::vector<std::filesystem::path> paths) {
    return test::message_of<InputError>([&] { DocumentSource(paths, {}); });
  };
  EXPECT_THAT(error({}), HasSubstr("no input files"));
  EXPECT_THAT(error({scratch_.path()}),
              HasSubstr("is a directory: name the files in it"));
  EXPECT_THAT(error({scratch_ / "none"}), HasSubstr("none"));
  test::spill(scratch_ / "empty", "");
  EXPECT_THAT(error({scratch_ / "empty"}), HasSubstr("nothing to tokenize: input"));
  EXPECT_THAT(error({scratch_ / "empty", scratch_ / "empty"}),
              HasSubstr("all 2 inputs are empty"));
  test::spill(scratch_ / "t.gz", "\x1F\x8B\x08");
  EXPECT_THAT(error({scratch_ / "t.gz"}), HasSubstr("is a gzip file"));
}

// Whatever its zeros would be taken for.
TEST_F(DocumentSourceText, CutUnderItsReaders) {
  for (const char* extension : {".txt", ".jsonl"}) {
    const DocumentSource source = this->source({"{\"text\": \"a\"}\n"}, {}, extension);
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path())) {
      std::filesystem::resize_file(entry.path(), 0);
    }
    Collector collector;
    EXPECT_THAT(test::message_of<InputError>([&] { source.read(0, 1, collector, {}); }),
                HasSubstr(std::string(extension) + "' was cut short while it was read"));
  }
}

}  // namespace
}  // namespace trireme::data
