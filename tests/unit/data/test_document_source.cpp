// Documents of text files and JSON lines, whole and shared out to ranks, against a plain
// reading; bad input is named by file and line.
#include "data/document_source.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/machine.hpp"
#include "data/sentence_characters.hpp"
#include "data/sentences.hpp"
#include "support/compress.hpp"
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

// Where the first words of sentences are, each part split by itself: a sentence begins
// with the white space before its first word, or behind it.
std::vector<std::size_t> first_words(const SentenceSplitter& splitter,
                                     const std::vector<std::string>& parts) {
  std::vector<std::size_t> words;
  std::size_t from = 0;
  for (const std::string& part : parts) {
    std::vector<std::size_t> begins;
    splitter.split(part, begins);
    for (const std::size_t at : begins) words.push_back(from + blanks_at(part, at).end);
    from += part.size();
  }
  return words;
}

// Ends of sentences, white space of one to three bytes, and what is none.
std::string text_of_blanks(std::mt19937& random, unsigned most_parts) {
  static constexpr const char* kParts[] = {
      "It is.",       "\u2003",     " ",         "\n",       "\n\n",   "\n \n",
      "\r\n",         "\r\n\r\n",   "»",         " J. S. ",  "1. A",   "\u3002",
      "\u2029",       "\xFF",       "\u4e2d",    "! \u00ab", "\u201c", "\t",
      "z. B",         "\u3000",     "\u00a0",    "\u2028",   "é \n",   "\xE3\x80",
      "\n\n\u3000\n", "\n\n\u2028", "\n\n\u00a0"};
  std::string text = "A";
  for (unsigned i = random() % most_parts; i > 0; --i) {
    text += kParts[random() % std::size(kParts)];
  }
  return text;
}

constexpr SourceOptions kSentences = {.cut_inside_documents = true,
                                      .cut_before_blank_lines_only = true};

// Sentences of the parts are those of the whole.
TEST_F(DocumentSourceText, CutsBeforeBlankLinesKeepSentences) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 400; ++trial) {
    const std::string text = text_of_blanks(random, 60);
    const auto cut = source({text}, kSentences);
    const SentenceSplitter splitter(static_cast<Language>(trial % 10));
    const auto expected = first_words(splitter, {text});
    for (const int ranks : {2, 3, 5, 64}) {
      Collector collector;
      for (int rank = 0; rank < ranks; ++rank) cut.read(rank, ranks, collector, {});
      ASSERT_EQ(collector.documents.at(0), text);
      ASSERT_EQ(first_words(splitter, collector.pieces), expected)
          << trial << ": " << ::testing::PrintToString(text);
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
  test::spill(scratch_ / "t.xz",
              "\xFD"
              "7zXZ");
  EXPECT_THAT(error({scratch_ / "t.xz"}), HasSubstr("is a xz file"));
  test::spill(scratch_ / "t.gz", "");
  EXPECT_THAT(error({scratch_ / "t.gz"}),
              HasSubstr("has the name of a gzip file, but what is in it is nothing"));
  test::spill(scratch_ / "t.gz", test::zstd_of("text"));
  EXPECT_THAT(error({scratch_ / "t.gz"}),
              HasSubstr("but what is in it is zstd: name it"));
  test::spill(scratch_ / "t.zst", "text");
  EXPECT_THAT(error({scratch_ / "t.zst"}),
              HasSubstr("but what is in it is uncompressed"));
}

// What is no text is told by its beginning, inside a compressed file, too.
TEST_F(DocumentSourceText, OtherFormats) {
  using namespace std::string_literals;
  const auto error = [&](const std::string& name, const std::string& content) {
    test::spill(scratch_ / name, content);
    return test::message_of<InputError>([&] {
      const DocumentSource source({scratch_ / name}, {});
      read(source);
    });
  };
  const std::string utf16 = "make it UTF-8 first: iconv -f UTF-16 -t UTF-8";
  const std::string utf32 = "make it UTF-8 first: iconv -f UTF-32 -t UTF-8";
  const struct {
    std::string bytes, name, fix;
  } formats[] = {
      {"BZh91AY&SY\x8c\x1f", "bzip2", "unpack it first"},
      {"BZh1\x17\x72\x45\x38\x50\x90\0\0\0\0"s, "bzip2", "unpack it first"},
      {"PK\x03\x04\x14", "zip", "unpack it first"},
      {"\x89PNG\r\n\x1a\n", "PNG", "take the text out of it first"},
      {"%PDF-1.7\n", "PDF", "take the text out of it first"},
      {"\xFF\xFE"
       "a\0"s,
       "UTF-16", utf16},
      {"\xFE\xFF\0a"s, "UTF-16", utf16},
      {"\xFF\xFE\0\0a\0\0\0"s, "UTF-32", utf32},
      {"\0\0\xFE\xFF\0\0\0a"s, "UTF-32", utf32},
  };
  for (const auto& [bytes, name, fix] : formats) {
    const std::string whole =
        "is a " + name + " file, expected plain text or JSON lines: " + fix;
    EXPECT_THAT(error("a.txt", bytes), testing::EndsWith(whole));
    EXPECT_THAT(error("a.txt.gz", test::gzip_of(bytes)), testing::EndsWith(whole));
  }
  for (const char* text : {"BZh", "BZh9 is a name", "PK is one, too", "%PDF"}) {
    EXPECT_EQ(error("a.txt", text), "(nothing thrown)") << text;
  }
}

// A part of the inputs' text, in each form that files have.
struct Form {
  const char* extension;
  std::string (*bytes_of)(const std::string& text);
};
const Form kForms[] = {
    {"", [](const std::string& text) { return text; }},
    {".gz", [](const std::string& text) { return test::gzip_of(text); }},
    {".zst", [](const std::string& text) { return test::zstd_of(text); }},
    {".gz",
     [](const std::string& text) {
       return test::gzip_of(text.substr(0, text.size() / 2)) +
              test::gzip_of(text.substr(text.size() / 2));
     }},
};

class DocumentSourceCompressed : public ::testing::Test {
 protected:
  // Input i in form `form` + i * `change`.
  DocumentSource source(const std::vector<std::string>& texts, SourceOptions options,
                        std::size_t form, std::size_t change = 0,
                        const std::string& extension = ".txt") {
    std::vector<std::filesystem::path> paths;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Form& taken = kForms[(form + i * change) % std::size(kForms)];
      paths.push_back(scratch_ /
                      ("in" + std::to_string(i) + extension + taken.extension));
      test::spill(paths.back(), taken.bytes_of(texts[i]));
    }
    return {paths, options};
  }
  test::Scratch scratch_;
};

TEST_F(DocumentSourceCompressed, GivesTheDocumentsOfPlainFiles) {
  std::mt19937 random(2);
  const char* parts[] = {"a",     "bc",       " ", "\n",   "\n\n",
                         "\n \n", "\xC2\xA0", "é", "\r\n", "x y"};
  for (int trial = 0; trial < 12; ++trial) {
    std::vector<std::string> texts(1 + random() % 4);
    for (std::string& text : texts) {
      for (unsigned i = random() % 40; i > 0; --i) text += parts[random() % 10];
    }
    texts[0] += "z";  // not all empty
    for (const Documents documents :
         {Documents::file, Documents::line, Documents::blank_line}) {
      const SourceOptions options{documents, "text", trial % 2 == 0};
      DocumentSource::ReadStats plain;
      const auto expected = read(source(texts, options, 0), 1, &plain);
      for (const std::size_t change : {0, 1}) {
        for (std::size_t form = 1; form < std::size(kForms); ++form) {
          const auto all = source(texts, options, form, change);
          DocumentSource::ReadStats stats;
          ASSERT_EQ(read(all, 1, &stats), expected) << trial;
          ASSERT_EQ(stats.empty_documents, plain.empty_documents);
          ASSERT_EQ(stats.unpacked_bytes, plain.unpacked_bytes);
          for (const int ranks : {2, 3, 5, 17}) ASSERT_EQ(read(all, ranks), expected);
        }
      }
    }
  }
}

// More than one window: cuts are found anew in each, lines are counted through all.
TEST_F(DocumentSourceCompressed, LongFiles) {
  std::string words, lines;
  std::mt19937 random(4);
  while (words.size() < (std::size_t{6} << 20)) {
    words += std::to_string(random() % 1000) + (random() % 50 == 0 ? "\n\n" : " ");
  }
  int count = 0;
  for (std::size_t at = 0; at < words.size(); at += 4001, ++count) {
    lines += "{\"text\": \"" + std::to_string(count) + "\"}\n";
    if (count == 1000) {  // longer than a window, so that there is no cut in it
      lines += "{\"text\": \"" + std::string(std::size_t{5} << 20, 'l') + "\"}\n";
    }
  }
  for (const std::size_t form : {1, 2}) {
    for (const SourceOptions& options :
         {SourceOptions{.cut_inside_documents = true},
          SourceOptions{.cut_inside_documents = false},
          SourceOptions{.documents = Documents::blank_line}}) {
      EXPECT_TRUE(read(source({words}, options, form)) ==
                  read(source({words}, options, 0)));
    }
    EXPECT_TRUE(read(source({lines}, {}, form, 0, ".jsonl"), 3) ==
                read(source({lines}, {}, 0, 0, ".jsonl")));
    const auto bad = source({lines + "{}\n"}, {}, form, 0, ".jsonl");
    EXPECT_THAT(test::message_of<InputError>([&] { read(bad); }),
                HasSubstr(fmt::format("{}:{}: the object has no key 'text'",
                                      kForms[form].extension, count + 2)));
  }
}

// Every piece may be encoded by itself.
TEST_F(DocumentSourceCompressed, CutsKeepTokenIds) {
  const Tokenizer tokenizer = test::trained_tokenizer();
  std::string text;
  while (text.size() < (std::size_t{5} << 20)) {
    text += io::read_file(test::fixture("sample.txt"));
    text += io::read_file(test::fixture("invalid.bin"));
  }
  std::vector<TokenId> ids[2];
  for (const std::size_t form : {0, 2}) {
    Collector collector;
    source({text}, {.cut_inside_documents = true}, form).read(0, 1, collector, {});
    Encoder encoder(tokenizer);
    for (const std::string& piece : collector.pieces) {
      encoder.encode(piece, ids[form / 2]);
    }
  }
  EXPECT_TRUE(ids[0] == ids[1]);
}

// Windows that end anywhere: within a character, within the white space around a blank
// line, before the end of a text that has nothing but white space left.
TEST_F(DocumentSourceCompressed, WindowsKeepSentences) {
  std::mt19937 random(5);
  std::size_t cuts = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const std::string text = text_of_blanks(random, 40);
    const SentenceSplitter splitter(static_cast<Language>(trial % 10));
    const auto expected = first_words(splitter, {text});
    for (std::size_t window = 1; window <= 40; window += 1 + random() % 4) {
      SourceOptions options = kSentences;
      options.window = window;
      Collector collector;
      source({text}, options, 1 + window % 3).read(0, 1, collector, {});
      ASSERT_EQ(collector.documents.at(0), text);
      ASSERT_EQ(first_words(splitter, collector.pieces), expected)
          << trial << ", " << window << ": " << ::testing::PrintToString(text);
      cuts += collector.pieces.size() - 1;
    }
  }
  EXPECT_GT(cuts, 1000u);
}

// The rank in whose part a file begins has all of it.
TEST_F(DocumentSourceCompressed, AFileIsOneRanks) {
  const auto one = source({"a text of its own"}, {}, 1);
  EXPECT_EQ(one.compressed_inputs(), 1u);
  EXPECT_EQ(one.idle_ranks(1), 0);
  EXPECT_EQ(one.idle_ranks(8), 7);
  Collector collector;
  one.read(0, 8, collector, {});
  EXPECT_THAT(collector.documents, ElementsAre("a text of its own"));
  const std::vector<std::string> texts(6, "a text of its own");
  const auto six = source(texts, {}, 1);
  EXPECT_EQ(six.idle_ranks(3), 0);
  EXPECT_EQ(six.idle_ranks(6), 0);
  EXPECT_EQ(six.idle_ranks(8), 2);
  Collector third;
  six.read(2, 3, third, {});
  EXPECT_EQ(third.documents.size(), 2u);
  EXPECT_EQ(source({"plain"}, {}, 0).compressed_inputs(), 0u);
}

// Plain texts, too, where documents are files and are not cut.
TEST_F(DocumentSourceCompressed, AFileThatIsNotCutIsOneRanks) {
  const std::vector<std::string> texts = {"a text of its own", "", "and a text of it"};
  const auto whole = source(texts, {}, 0);
  EXPECT_EQ(whole.whole_documents(), 2u);
  EXPECT_EQ(whole.idle_ranks(2), 0);
  EXPECT_EQ(whole.idle_ranks(5), 3);
  EXPECT_EQ(source(texts, {.documents = Documents::line}, 0).whole_documents(), 0u);
  EXPECT_EQ(source(texts, {.cut_inside_documents = true}, 0).whole_documents(), 0u);
  EXPECT_EQ(source(texts, {.cut_inside_documents = true}, 0).idle_ranks(2), 0);
  EXPECT_EQ(source({"packed"}, {}, 1).whole_documents(), 0u);
}

// Those that read nothing, of inputs that are cut in any way.
TEST_F(DocumentSourceCompressed, CountsIdleRanks) {
  class Nobody : public DocumentSink {
   public:
    void begin_document() override {}
    void text(std::string_view) override {}
    void end_document() override {}
  } nobody;
  const std::vector<std::string> texts = {"a few words. of\n\nits own", "", "b\nc\nd\n",
                                          "one longer text of twelve words or so"};
  for (const std::size_t form : {0, 1, 2}) {
    for (const SourceOptions& options :
         {SourceOptions(), kSentences, SourceOptions{.documents = Documents::line},
          SourceOptions{.documents = Documents::blank_line},
          SourceOptions{.cut_inside_documents = true}}) {
      const auto all = source(texts, options, form);
      for (const int size : {1, 2, 3, 5, 8, 50, 300}) {
        int idle = 0;
        for (int rank = 0; rank < size; ++rank) {
          idle += all.read(rank, size, nobody, {}).bytes == 0 ? 1 : 0;
        }
        EXPECT_EQ(all.idle_ranks(size), idle) << form << ", " << size;
      }
    }
  }
}

TEST_F(DocumentSourceCompressed, ProgressIsOfTheFilesBytes) {
  const std::string text(std::size_t{20} << 20, 'x');
  const auto all = source({text, text}, {.documents = Documents::line}, 1);
  Collector collector;
  std::uint64_t last = 0;
  int calls = 0;
  const auto stats =
      all.read(0, 1, collector, [&](std::uint64_t done, std::uint64_t total) {
        EXPECT_LE(last, done);
        EXPECT_EQ(total, all.bytes());
        last = done;
        ++calls;
      });
  EXPECT_EQ(last, all.bytes());
  EXPECT_GT(calls, 4);
  EXPECT_LT(stats.bytes, 100000u);
  EXPECT_EQ(stats.unpacked_bytes, 2 * text.size());
}

TEST_F(DocumentSourceCompressed, TakesBoundedMemory) {
  class Counter : public DocumentSink {
   public:
    void begin_document() override { ++documents; }
    void text(std::string_view bytes) override { total += bytes.size(); }
    void end_document() override {}
    std::size_t documents = 0, total = 0;
  };
  std::string line(999, 'x');
  line += '\n';
  std::string text;
  while (text.size() < (std::size_t{1} << 20)) text += line;
  std::string gzip, zstd;
  const std::string gzip_member = test::gzip_of(text), zstd_frame = test::zstd_of(text);
  for (int i = 0; i < 200; ++i) {
    gzip += gzip_member;
    zstd += zstd_frame;
  }
  test::spill(scratch_ / "a.txt.gz", gzip);
  test::spill(scratch_ / "b.txt.zst", zstd);
  const DocumentSource all({scratch_ / "a.txt.gz", scratch_ / "b.txt.zst"},
                           {.documents = Documents::line});
  const std::int64_t before = peak_process_bytes();
  Counter counter;
  all.read(0, 1, counter, {});
  EXPECT_EQ(counter.documents, 400 * text.size() / line.size());
  EXPECT_LT(peak_process_bytes() - before, std::int64_t{32} << 20);
}

TEST_F(DocumentSourceCompressed, WhatIsNoTextOrDamaged) {
  const auto error = [&](const std::string& name, const std::string& bytes) {
    test::spill(scratch_ / name, bytes);
    const DocumentSource all({scratch_ / name}, {});
    return test::message_of<InputError>([&] { read(all); });
  };
  const std::string packed = test::gzip_of("some text");
  EXPECT_THAT(error("a.txt.gz", packed.substr(0, packed.size() - 2)),
              HasSubstr("a.txt.gz' at byte 27 of 27, in the gzip member that begins at "
                        "byte 0: the file ends inside it"));
  EXPECT_THAT(error("b.txt", packed + "more"),
              HasSubstr("b.txt' has trailing garbage: 4 bytes of no gzip member"));
  EXPECT_THAT(error("c.txt.zst", test::zstd_of(packed)), HasSubstr("is a gzip file"));
  std::string archive(512, '\0');
  archive.replace(257, 5, "ustar");
  EXPECT_THAT(error("d.tar.gz", test::gzip_of(archive)),
              HasSubstr("is a tar file, expected plain text or JSON lines: unpack it"));
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
