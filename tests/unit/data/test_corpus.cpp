// What a corpus holds; damaged, foreign and missing files; a full disk.
#include "data/corpus.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "data/corpus_format.hpp"
#include "io/checksum.hpp"
#include "io/hdf5.hpp"
#include "support/hdf5_edit.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::data {
namespace {

using test::make_corpus;
using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string open_error(const std::filesystem::path& path) {
  return message_of<InputError>([&] { Corpus corpus(path); });
}

TEST(CorpusFile, HoldsTheTokensOfTheDocuments) {
  const test::Scratch scratch;
  const Tokenizer tokenizer = test::trained_tokenizer();
  const std::vector<std::string> texts = {"In the beginning", " God",
                                          "created\n the heaven"};
  const CorpusSummary summary = make_corpus(scratch, "c.h5", texts, tokenizer);
  const Corpus corpus(scratch / "c.h5");
  std::vector<TokenId> stream;
  std::vector<index_t> begins;
  for (const std::string& text : texts) {
    begins.push_back(static_cast<index_t>(stream.size()));
    for (const TokenId id : tokenizer.encode(text)) stream.push_back(id);
    stream.push_back(tokenizer.end_of_document());
  }
  ASSERT_EQ(corpus.token_count(), static_cast<index_t>(stream.size()));
  EXPECT_EQ(summary.tokens, stream.size());
  EXPECT_EQ(corpus.document_count(), 3);
  EXPECT_EQ(corpus.vocabulary_size(), 700u);
  for (index_t i = 0; i < corpus.token_count(); ++i) {
    EXPECT_EQ(corpus.token(i), stream[static_cast<std::size_t>(i)]);
  }
  for (std::size_t document = 0; document < begins.size(); ++document) {
    EXPECT_EQ(corpus.document_begin(static_cast<index_t>(document)), begins[document]);
  }
  std::vector<std::int32_t> out(3);
  corpus.copy(2, 3, out.data());
  EXPECT_EQ(out[0], static_cast<std::int32_t>(stream[2]));
  EXPECT_EQ(out[2], static_cast<std::int32_t>(stream[4]));
  EXPECT_THROW(corpus.copy(corpus.token_count() - 1, 2, out.data()), Error);
  EXPECT_EQ(corpus.verify(), "");
  // The tokenizer comes along.
  const Tokenizer embedded = Tokenizer::from_files(corpus.tokenizer_files());
  EXPECT_EQ(embedded.files(), tokenizer.files());
}

TEST(CorpusFile, KnowsItsEntropy) {
  const test::Scratch scratch;
  make_corpus(scratch, "c.h5", {io::read_file(test::fixture("sample.txt"))},
              test::trained_tokenizer());
  const Corpus corpus(scratch / "c.h5");
  std::map<TokenId, double> counts;
  for (index_t i = 0; i < corpus.token_count(); ++i) counts[corpus.token(i)] += 1.0;
  double entropy = 0.0;
  for (const auto& [id, count] : counts) {
    const double p = count / static_cast<double>(corpus.token_count());
    entropy -= p * std::log(p);
  }
  EXPECT_NEAR(corpus.unigram_entropy(), entropy, 1e-12);
  EXPECT_DOUBLE_EQ(entropy_of({1, 1, 0, 1, 1}), std::log(4.0));
}

// As docs/corpora.md defines it.
TEST(CorpusFile, HasTheDocumentedChecksum) {
  const test::Scratch scratch;
  std::string text;
  while (text.size() < (std::size_t{9} << 20)) text += "beginning, God created \xFF it. ";
  make_corpus(scratch, "c.h5", {text}, test::trained_tokenizer());
  const io::H5File file = io::H5File::open(scratch / "c.h5");
  const auto tokens = file.dataset("tokens").read<std::uint16_t>();
  std::vector<std::uint64_t> sums;
  for (std::size_t at = 0; at < tokens.size(); at += 2097152) {  // 4 MiB of uint16
    const std::size_t count = std::min<std::size_t>(2097152, tokens.size() - at);
    sums.push_back(io::checksum(tokens.data() + at, count * 2));
  }
  ASSERT_GT(sums.size(), 1u);
  EXPECT_EQ(file.attribute<std::string>("checksum"),
            io::to_hex(io::checksum(sums.data(), sums.size() * 8)));
  EXPECT_EQ(file.dataset("tokens").dtype(), DType::uint16);
}

TEST(CorpusFile, IsWideForLargeVocabularies) {
  EXPECT_EQ(token_type(65536), DType::uint16);
  EXPECT_EQ(token_type(65537), DType::uint32);
  const test::Scratch scratch;
  // The trained tokenizer with an added token of a high id.
  std::string json = io::read_file(test::fixture("trained.json"));
  const std::string list = "\"added_tokens\":[";
  json.insert(json.find(list) + list.size(), "{\"id\":70000,\"content\":\"<far>\"},");
  const Tokenizer tokenizer = Tokenizer::from_files({{"tokenizer.json", json}});
  make_corpus(scratch, "c.h5", {"a<far>b"}, tokenizer);
  const Corpus corpus(scratch / "c.h5");
  EXPECT_EQ(io::H5File::open(scratch / "c.h5").dataset("tokens").dtype(), DType::uint32);
  EXPECT_EQ(corpus.vocabulary_size(), 70001u);
  EXPECT_EQ(corpus.token(1), 70000u);
  EXPECT_EQ(corpus.verify(), "");
}

CorpusOptions with_sentences() {
  CorpusOptions options;
  options.sentences = Language::english;
  return options;
}

// The text of every sentence, as its tokens spell it.
std::vector<std::string> sentences_of(const Corpus& corpus) {
  const Tokenizer tokenizer = Tokenizer::from_files(corpus.tokenizer_files());
  std::vector<std::string> texts;
  for (index_t i = 0; i < corpus.sentence_count(); ++i) {
    std::string text;
    const index_t end = i + 1 < corpus.sentence_count() ? corpus.sentence_begin(i + 1)
                                                        : corpus.token_count();
    for (index_t at = corpus.sentence_begin(i); at < end; ++at) {
      const TokenId id = corpus.token(at);
      if (id != corpus.end_of_document()) text += tokenizer.bytes_of(id);
    }
    texts.push_back(text);
  }
  return texts;
}

TEST(CorpusSentences, AreKeptWhereAskedFor) {
  const test::Scratch scratch;
  const std::vector<std::string> texts = {
      "It was good. And Mr. Adam\xFF said: Yes!\n\nSo be it.", "", " One.  Two \n"};
  const CorpusSummary summary =
      make_corpus(scratch, "c.h5", texts, test::trained_tokenizer(), with_sentences());
  const Corpus corpus(scratch / "c.h5");
  ASSERT_TRUE(corpus.has_sentences());
  EXPECT_EQ(corpus.sentence_language(), "en");
  EXPECT_EQ(summary.sentences, 5u);
  EXPECT_EQ(summary.replaced_sequences, 1u);
  EXPECT_THAT(sentences_of(corpus),
              ElementsAre("It was good.", " And Mr. Adam\uFFFD said: Yes!",
                          "\n\nSo be it.", " One.", "  Two \n"));
  EXPECT_EQ(corpus.first_sentence_from(0), 0);
  EXPECT_EQ(corpus.first_sentence_from(1), 1);
  EXPECT_EQ(corpus.first_sentence_from(corpus.sentence_begin(3)), 3);
  EXPECT_EQ(corpus.first_sentence_from(corpus.sentence_begin(4) + 1), 5);
  EXPECT_EQ(corpus.verify(), "");
  EXPECT_THROW(corpus.sentence_begin(5), Error);

  // The tokens are those without.
  make_corpus(scratch, "plain.h5", texts, test::trained_tokenizer());
  const Corpus plain(scratch / "plain.h5");
  EXPECT_FALSE(plain.has_sentences());
  EXPECT_EQ(plain.sentence_count(), 0);
  EXPECT_EQ(plain.token_count(), corpus.token_count());
  EXPECT_EQ(plain.checksum(), corpus.checksum());
}

TEST(CorpusSentences, OfWordPieceBeginWithWords) {
  const test::Scratch scratch;
  const Tokenizer tokenizer = Tokenizer::load({test::fixture("uncased")});
  // A document of white space has no tokens but its end, and no sentence.
  make_corpus(scratch, "c.h5", {"God said. And it\n\n\n", " \n\n ", "\u4e2d. \u6587!"},
              tokenizer, with_sentences());
  const Corpus corpus(scratch / "c.h5");
  EXPECT_EQ(corpus.document_count(), 3);
  EXPECT_EQ(corpus.document_begin(2) - corpus.document_begin(1), 1);
  EXPECT_EQ(corpus.sentence_count(), 4);
  EXPECT_EQ(corpus.sentence_begin(2), corpus.document_begin(2));
  EXPECT_THAT(sentences_of(corpus)[0], " god said.");
  EXPECT_THAT(sentences_of(corpus)[1], " and it");
  EXPECT_EQ(corpus.verify(), "");
  EXPECT_THAT(message_of<InputError>([&] {
                make_corpus(scratch, "none.h5", {" \n\n "}, tokenizer, with_sentences());
              }),
              HasSubstr("there are no sentences"));
}

TEST(CorpusSentences, ThatAreDamagedAreFound) {
  const test::Scratch scratch;
  const std::filesystem::path path = scratch / "c.h5";
  make_corpus(scratch, "c.h5", {"It was. It is. So.", "Yes. No."},
              test::trained_tokenizer(), with_sentences());
  const std::string whole = test::slurp(path);
  const Corpus corpus(path);
  ASSERT_EQ(corpus.sentence_count(), 5);
  const auto at = [&](index_t sentence) {
    return static_cast<std::uint64_t>(corpus.sentence_begin(sentence));
  };
  const std::uint64_t place =
      io::H5File::open(path).dataset("sentences").offset().value();
  const auto verified = [&](index_t sentence, std::uint64_t begin) {
    test::spill(path, whole);
    io::FileWriter writer(path, io::FileWriter::Mode::existing);
    writer.write_at(place + static_cast<std::uint64_t>(sentence) * sizeof(begin), &begin,
                    sizeof(begin));
    writer.close();
    return message_of<InputError>([&] {
      const std::string problem = Corpus(path).verify();
      if (!problem.empty()) throw InputError(problem);
    });
  };
  EXPECT_EQ(verified(1, at(1)), "(nothing thrown)");
  EXPECT_THAT(verified(1, at(1) + 1), HasSubstr("/sentences has checksum"));
  EXPECT_THAT(verified(1, at(2)), HasSubstr("sentence 2 begins at token"));
  EXPECT_THAT(verified(3, at(3) + 1), HasSubstr("none that begins with document 1"));
  EXPECT_THAT(verified(2, at(3) - 1), HasSubstr("does not ascend within documents"));
  EXPECT_THAT(verified(0, 1), HasSubstr("none that begins with document 0"));
  EXPECT_THAT(verified(4, 1 << 20), HasSubstr("the last one at 1048576"));
  EXPECT_THAT(verified(0, ~std::uint64_t{0}), HasSubstr("the first one begins at token"));
  const auto error_with = [&](const auto& edit) {
    test::spill(path, whole);
    io::H5File file = io::H5File::open_for_writing(path);
    edit(file);
    file.close();
    return open_error(path);
  };
  EXPECT_THAT(error_with([](io::H5File& file) {
                file.set_attribute<std::uint64_t>("sentence_count", 4);
              }),
              HasSubstr("expected uint64 of shape (4)"));
  EXPECT_THAT(error_with([](io::H5File& file) {
                file.set_attribute<std::string>("sentence_checksum", "x");
              }),
              HasSubstr("its sentence_checksum is 'x'"));
  test::spill(path, whole);
  test::remove_object(path, "sentences");
  EXPECT_THAT(open_error(path), HasSubstr("it has no dataset sentences"));
  test::spill(path, whole);
  test::remove_attribute(path, "sentence_count");
  EXPECT_THAT(open_error(path), HasSubstr("it has no attribute sentence_count"));
}

TEST(CorpusDamage, IsFoundOnOpening) {
  const test::Scratch scratch;
  const Tokenizer tokenizer = test::trained_tokenizer();
  make_corpus(scratch, "c.h5", {io::read_file(test::fixture("sample.txt"))}, tokenizer);
  const std::string whole = test::slurp(scratch / "c.h5");

  EXPECT_THAT(open_error(scratch / "none.h5"), HasSubstr("none.h5"));
  EXPECT_THAT(open_error(scratch.path()), HasSubstr("directory"));
  test::spill(scratch / "text.h5", "just text");
  EXPECT_THAT(open_error(scratch / "text.h5"),
              HasSubstr("is not an HDF5 file: make a corpus with `trireme tokenize`"));
  test::spill(scratch / "empty.h5", "");
  EXPECT_THAT(open_error(scratch / "empty.h5"), HasSubstr("not an HDF5 file"));
  // Cut anywhere: never a crash, always an error.
  for (std::size_t cut = 9; cut < whole.size(); cut += whole.size() / 41 + 1) {
    test::spill(scratch / "cut.h5", whole.substr(0, cut));
    EXPECT_THAT(open_error(scratch / "cut.h5"), HasSubstr("cut.h5")) << cut;
  }
  test::spill(scratch / "cut.h5", whole.substr(0, whole.size() - 1));
  EXPECT_THAT(open_error(scratch / "cut.h5"), HasSubstr("truncated"));
  // The tokenizer spells every text: one letter of it is enough.
  std::string spelt = whole;
  spelt[spelt.find("\"merges\"") + 20] ^= 1;
  test::spill(scratch / "spelt.h5", spelt);
  EXPECT_THAT(open_error(scratch / "spelt.h5"), HasSubstr("its tokenizer has checksum"));
  // Someone else's HDF5 file.
  {
    io::H5File other = io::H5File::create(scratch / "other.h5");
    other.make_dataset("tokens", DType::float32, {3});
    other.close();
  }
  EXPECT_THAT(open_error(scratch / "other.h5"),
              HasSubstr("is an HDF5 file but not a corpus: it has no dataset documents, "
                        "attribute format_version"));
}

TEST(CorpusDamage, OfAttributesIsFound) {
  const test::Scratch scratch;
  const auto error_with = [&](const char* name, auto value) {
    make_corpus(scratch, "c.h5", {"some text", "more"}, test::trained_tokenizer());
    io::H5File file = io::H5File::open_for_writing(scratch / "c.h5");
    file.set_attribute<decltype(value)>(name, value);
    file.close();
    return open_error(scratch / "c.h5");
  };
  EXPECT_THAT(error_with("format_version", std::int64_t{9}),
              HasSubstr("has format version 9, this program reads version 1"));
  EXPECT_THAT(error_with("token_count", std::uint64_t{5}), HasSubstr("token_count is 5"));
  EXPECT_THAT(error_with("document_count", std::uint64_t{5}),
              HasSubstr("expected uint64 of shape (6)"));
  for (const char* name : {"token_count", "document_count"}) {
    EXPECT_THAT(error_with(name, std::uint64_t{1} << 63),
                HasSubstr(std::string(name) + " is 9223372036854775808"));
    EXPECT_THAT(error_with(name, (std::uint64_t{1} << 63) - 1),
                HasSubstr(std::string(name) + " is 9223372036854775807"));
    EXPECT_THAT(error_with(name, std::int64_t{-1}), HasSubstr("is -1; expected"));
  }
  EXPECT_THAT(error_with("end_of_document", std::uint64_t{700}),
              HasSubstr("end_of_document 700 is not in the vocabulary of 700"));
}

// HDF5 itself stumbles over some of these: the user's file is to blame, not the program.
TEST(CorpusDamage, OfStructureIsAnInputErrorOrHarmless) {
  const test::Scratch scratch;
  make_corpus(scratch, "c.h5", {"some text", "more"}, test::trained_tokenizer());
  const std::string whole = test::slurp(scratch / "c.h5");
  const index_t tokens = Corpus(scratch / "c.h5").token_count();
  std::mt19937 random(4);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string bytes = whole;
    for (int flips = 0; flips <= i % 3; ++flips) {
      const std::size_t at = random() % std::min<std::size_t>(bytes.size(), 6000);
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    }
    test::spill(scratch / "f.h5", bytes);
    try {
      EXPECT_EQ(Corpus(scratch / "f.h5").token_count(), tokens);
    } catch (const InputError& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr("f.h5"));
    }
  }
  EXPECT_GT(refused, 10);
}

TEST(CorpusDamage, OfTokensIsFoundByVerify) {
  const test::Scratch scratch;
  make_corpus(scratch, "c.h5", {"some text", "more"}, test::trained_tokenizer());
  const auto at = io::H5File::open(scratch / "c.h5").dataset("tokens").offset().value();
  std::string bytes = test::slurp(scratch / "c.h5");
  bytes[at + 1] = static_cast<char>(bytes[at + 1] ^ 0x40);
  test::spill(scratch / "d.h5", bytes);
  EXPECT_THAT(Corpus(scratch / "d.h5").verify(), HasSubstr("the file is damaged"));
}

// A corpus of documents of one token each, more than are read at a time.
TEST(CorpusDamage, OfDocumentsIsFoundAnywhere) {
  const test::Scratch scratch;
  constexpr std::uint64_t kDocuments = 1200001;
  std::uint64_t documents_at = 0;
  {
    io::H5File file = io::H5File::create(scratch / "c.h5");
    for (const auto& [name, value] : {std::pair("vocabulary_size", std::uint64_t{300}),
                                      std::pair("end_of_document", std::uint64_t{256}),
                                      std::pair("token_count", kDocuments),
                                      std::pair("document_count", kDocuments)}) {
      file.set_attribute<std::uint64_t>(name, value);
    }
    file.set_attribute<std::int64_t>("format_version", kCorpusFormatVersion);
    file.set_attribute<std::string>("checksum", io::to_hex(0));
    const auto count = static_cast<index_t>(kDocuments);
    file.make_dataset("tokens", DType::uint16, {count})
        .write(std::vector<std::uint16_t>(kDocuments, 256));
    auto documents = file.make_dataset("documents", DType::uint64, {count + 1});
    std::vector<std::uint64_t> offsets(kDocuments + 1);
    std::iota(offsets.begin(), offsets.end(), std::uint64_t{0});
    documents.write(offsets);
    documents_at = documents.offset().value();
    file.close();
  }
  const auto set = [&](std::uint64_t document, std::uint64_t begin) {
    io::FileWriter writer(scratch / "c.h5", io::FileWriter::Mode::existing);
    writer.write_at(documents_at + document * sizeof(begin), &begin, sizeof(begin));
    writer.close();
  };
  EXPECT_EQ(Corpus(scratch / "c.h5").documents_problem(), "");
  constexpr std::uint64_t kAtOnce = std::uint64_t{1} << 19;
  for (const std::uint64_t bad :
       {std::uint64_t{1}, std::uint64_t{2047}, std::uint64_t{2048}, kAtOnce - 1, kAtOnce,
        kAtOnce + 1, 2 * kAtOnce, kDocuments - 1}) {
    for (const std::uint64_t value : {bad - 1, bad + 1, ~std::uint64_t{0}}) {
      SCOPED_TRACE(fmt::format("document {} begins at {}", bad, value));
      set(bad, value);
      // Who begins too early ends the one before; who begins too late ends there itself.
      const std::uint64_t named = value < bad ? bad - 1 : bad;
      const std::string expected =
          fmt::format("does not ascend: document {} begins at token {} and ends at token",
                      named, named == bad ? value : bad - 1);
      EXPECT_THAT(Corpus(scratch / "c.h5").documents_problem(), HasSubstr(expected));
    }
    set(bad, bad);
  }
  EXPECT_EQ(Corpus(scratch / "c.h5").documents_problem(), "");
  set(0, 1);
  EXPECT_THAT(open_error(scratch / "c.h5"),
              HasSubstr("the first document begins at token 1, expected 0"));
  set(0, 0);
  set(kDocuments, 7);
  EXPECT_THAT(open_error(scratch / "c.h5"),
              HasSubstr("1200000, ends at token 7, expected 1200001"));
}

// Under its readers: not by a signal, and not by other tokens.
TEST(CorpusDamage, CutUnderItsReadersIsAnInputError) {
  const test::Scratch scratch;
  make_corpus(scratch, "c.h5", {io::read_file(test::fixture("sample.txt"))},
              test::trained_tokenizer());
  const Corpus corpus(scratch / "c.h5");
  std::vector<std::int32_t> out(16);
  corpus.copy(0, 16, out.data());
  std::filesystem::resize_file(scratch / "c.h5", 0);
  EXPECT_THAT(message_of<InputError>([&] { corpus.copy(0, 16, out.data()); }),
              HasSubstr("c.h5' was cut short while it was read"));
}

TEST(CorpusDisk, FullLeavesNothing) {
  const test::Scratch scratch;
  std::string text;
  while (text.size() < (std::size_t{4} << 20)) text += "words and words \xFF ";
  test::spill(scratch / "in.txt", text);
  const DocumentSource source({scratch / "in.txt"}, {.cut_inside_documents = true});
  const auto self = comm::make_self_communicator("self");
  test::on_full_disks(std::size_t{1} << 20, [&](const test::FullDisk& disk) {
    for (const std::size_t memory : {std::size_t{1} << 28, std::size_t{1} << 10}) {
      CorpusOptions options;
      options.spool_memory = memory;  // the second: the spool itself does not fit
      const std::string message = message_of<Error>([&] {
        write_corpus(test::trained_tokenizer(), source, disk / "c.h5", *self, options);
      });
      EXPECT_THAT(message, HasSubstr(disk.cause()));
      EXPECT_TRUE(std::filesystem::is_empty(disk.path()));
    }
  });
}

TEST(CorpusDisk, OutputMustBeWritable) {
  const test::Scratch scratch;
  test::spill(scratch / "in.txt", "text");
  const DocumentSource source({scratch / "in.txt"}, {});
  const auto self = comm::make_self_communicator("self");
  const auto error = [&](const std::filesystem::path& out) {
    return message_of<InputError>(
        [&] { write_corpus(test::trained_tokenizer(), source, out, *self, {}); });
  };
  EXPECT_THAT(error(scratch / "none" / "c.h5"), HasSubstr("there is no directory"));
  EXPECT_THAT(error(scratch.path()), HasSubstr("directory"));
}

TEST(CorpusInput, WithoutTextIsRefused) {
  const test::Scratch scratch;
  test::spill(scratch / "in.jsonl", "{\"text\": \"\"}\n\n{\"text\": \"\"}\n");
  const DocumentSource source({scratch / "in.jsonl"}, {});
  const auto self = comm::make_self_communicator("self");
  EXPECT_THAT(message_of<InputError>([&] {
                write_corpus(test::trained_tokenizer(), source, scratch / "c.h5", *self,
                             {});
              }),
              HasSubstr("have no document with text (2 empty ones)"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "c.h5"));
}

}  // namespace
}  // namespace trireme::data
