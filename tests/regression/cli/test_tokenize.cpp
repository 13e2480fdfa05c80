// `trireme tokenize`: what becomes a document, which tokenizers are read, and wrong
// input, after which there is no corpus and no leftover.
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "io/hdf5.hpp"
#include "regression/cli/workplace.hpp"
#include "support/compress.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Tokenize : public Workplace {
 protected:
  fs::path text(const std::string& name, const std::string& content) const {
    spill(scratch_ / name, content);
    return scratch_ / name;
  }
  fs::path out() const { return scratch_ / "out/corpus.h5"; }

  Tokenize() { fs::create_directories(scratch_ / "out"); }

  RunResult tokenize(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"tokenize", "--out", out()});
    return trireme(arguments);
  }
  // Done: what --json says.
  json done(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(),
                     {"--json", scratch_ / "result.json", "--overwrite"});
    const RunResult result = tokenize(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    out_ = result.out;
    err_ = result.err;
    return json::parse(slurp(scratch_ / "result.json"));
  }
  json inspected(const fs::path& path) const {
    const RunResult result =
        trireme({"inspect", path, "--verify", "--json", scratch_ / "inspect.json"});
    EXPECT_EQ(result.status, 0) << result.err;
    return json::parse(slurp(scratch_ / "inspect.json"));
  }
  // Refused, and nothing was made where the corpus was to be.
  void expect_refused(const std::vector<std::string>& arguments,
                      const std::vector<std::string>& parts) const {
    expect_refusal(tokenize(arguments), parts);
    EXPECT_THAT(tree(scratch_ / "out"), IsEmpty());
  }
  std::string out_, err_;
};

TEST_F(Tokenize, TrainsATokenizer) {
  const json result = done({"--train-bpe", "300", text("a.txt", small_text(4000))});
  EXPECT_EQ(result["vocabulary"], 300);
  EXPECT_EQ(result["documents"], 1);
  EXPECT_EQ(result["end_of_document"], 0);
  EXPECT_GT(result["bytes_per_token"], 1.5);
  EXPECT_THAT(out_, HasSubstr("trained a BPE of 300 tokens"));
  EXPECT_THAT(out_, HasSubstr("1 document,"));
  EXPECT_THAT(out_, HasSubstr("bytes per token"));
  EXPECT_THAT(out_, HasSubstr("MB/s"));
  const json corpus = inspected(out());
  EXPECT_EQ(corpus["tokens"], result["tokens"]);
  EXPECT_EQ(corpus["dtype"], "uint16");
  // Pairs run out: the real size is recorded.
  const json small = done({"--train-bpe", "5000", text("b.txt", "abc abc abd")});
  EXPECT_THAT(err_, HasSubstr("no more pairs"));
  EXPECT_EQ(small["ran_out_of_pairs"], true);
  EXPECT_LT(small["vocabulary"], 300);
  EXPECT_EQ(inspected(out())["vocabulary_size"], small["vocabulary"]);
}

// The same tokenizer in all forms in which one may come.
TEST_F(Tokenize, ReadsEveryFormOfATokenizer) {
  const fs::path fixture = source_file("tests/parity/fixtures/tokenizer/trained.json");
  const fs::path sample = source_file("tests/parity/fixtures/tokenizer/sample.txt");
  done({"--tokenizer", fixture, sample});
  const json expected = inspected(out());

  const json tokenizer = json::parse(slurp(fixture));
  std::string merges = "#version: 0.2\n";
  for (const json& merge : tokenizer["model"]["merges"]) {
    merges += merge.is_string()
                  ? merge.get<std::string>()
                  : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    merges += "\n";
  }
  fs::create_directories(scratch_ / "files");
  const fs::path vocab = text("files/vocab.json", tokenizer["model"]["vocab"].dump());
  const fs::path merges_file = text("files/merges.txt", merges);
  fs::copy_file(out(), scratch_ / "given.h5");
  const std::vector<std::vector<std::string>> forms = {
      {"--tokenizer", vocab, "--tokenizer", merges_file},
      {"--tokenizer", vocab, merges_file},  // as people write it
      {"--tokenizer", scratch_ / "files"},
      {"--tokenizer", scratch_ / "given.h5"}};
  for (std::vector<std::string> form : forms) {
    form.push_back(sample);
    done(form);
    const json corpus = inspected(out());
    EXPECT_EQ(corpus["checksum"], expected["checksum"]) << form[1];
    EXPECT_EQ(corpus["tokens"], expected["tokens"]) << form[1];
  }
}

TEST_F(Tokenize, DocumentsOfText) {
  const fs::path file = text("a.txt", "one\ntwo\n\n \nthree\n");
  EXPECT_EQ(done({"--train-bpe", "257", file})["documents"], 1);
  // Every byte is a token of its own here, and each document has its end.
  const json whole = done({"--train-bpe", "257", "--documents", "file", file});
  EXPECT_EQ(whole["tokens"], 17 + 1);
  const json paragraphs = done({"--train-bpe", "257", "--documents", "blank-line", file});
  EXPECT_EQ(paragraphs["documents"], 2);
  EXPECT_EQ(paragraphs["tokens"], 7 + 5 + 2);
  const json lines = done({"--train-bpe", "257", "--documents", "line", file});
  EXPECT_EQ(lines["documents"], 3);
  EXPECT_EQ(lines["empty_documents"], 2);
  EXPECT_EQ(lines["tokens"], 3 + 3 + 5 + 3);
  EXPECT_EQ(done({"--train-bpe", "257", file, file})["documents"], 2);
  fs::remove(out());
  expect_refused({"--train-bpe", "257", "--documents", "page", file},
                 {"--documents", "page", "blank-line"});
}

TEST_F(Tokenize, JsonLines) {
  const fs::path file =
      text("a.jsonl",
           "{\"text\": \"ab\", \"body\": \"cdef\"}\n\n{\"text\": \"\\u00e4\", "
           "\"body\": \"\"}\n");
  const json texts = done({"--train-bpe", "257", file});
  EXPECT_EQ(texts["documents"], 2);
  EXPECT_EQ(texts["tokens"], 2 + 2 + 2);  // ä is two bytes
  const json bodies = done({"--train-bpe", "257", "--json-key", "body", file});
  EXPECT_EQ(bodies["documents"], 1);
  EXPECT_EQ(bodies["empty_documents"], 1);
  EXPECT_THAT(err_, HasSubstr("1 empty document left out"));
  fs::remove(out());
  expect_refused({"--train-bpe", "257", "--json-key", "content", file},
                 {"a.jsonl:1", "content", "text", "body", "--json-key"});
  expect_refused(
      {"--train-bpe", "257", text("b.jsonl", "{\"text\": \"a\"}\n{\"text\": ")},
      {"b.jsonl:2", "not valid JSON", "one object per line"});
  expect_refused({"--train-bpe", "257", text("c.jsonl", "{\"text\": 3}\n")},
                 {"c.jsonl:1", "'text' is number", "string"});
  expect_refused({"--train-bpe", "257", text("d.jsonl", "[1]\n")},
                 {"d.jsonl:1", "object", "array"});
}

TEST_F(Tokenize, InvalidUtf8IsReplacedAndCounted) {
  // Python's errors="replace" makes 1 + 2 + 1 of these.
  const json result = done({"--train-bpe", "257",
                            text("a.txt",
                                 "a\xff"
                                 "b\xc3\xc3"
                                 "c\xe6\xb0 d")});
  EXPECT_EQ(result["replaced_sequences"], 4);
  EXPECT_EQ(result["tokens"], 4 + 1 + 4 * 3 + 1);
  EXPECT_THAT(err_, HasSubstr("4 byte sequences that are not UTF-8"));
  EXPECT_EQ(
      done({"--train-bpe", "257", text("b.txt", "\u00e4\u6c34")})["replaced_sequences"],
      0);
  EXPECT_THAT(err_, Not(HasSubstr("UTF-8")));
}

TEST_F(Tokenize, RanksMakeTheSameFile) {
  const fs::path file = text("a.txt", small_text(3000));
  done({"--train-bpe", "280", file});
  const std::string alone = slurp(out());
  const RunResult result = trireme_on_ranks(
      3, {"tokenize", "--out", out(), "--train-bpe", "280", "--overwrite", file});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(slurp(out()) == alone);
}

// A directory of BERT's files: text is lowered, and [SEP] ends a document.
TEST_F(Tokenize, ReadsWordPiece) {
  fs::create_directory(scratch_ / "bert");
  text("bert/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n##re\n.\nsky\n");
  const fs::path file = text("a.txt", "There, the  sky.\n");
  json result = done({"--tokenizer", scratch_ / "bert", file});
  EXPECT_EQ(result["tokens"], 7);  // the ##re [UNK] the sky . [SEP]
  EXPECT_EQ(result["vocabulary"], 9);
  EXPECT_EQ(result["end_of_document"], 3);
  EXPECT_THAT(result["tokenizer"],
              HasSubstr("WordPiece, uncased (there is no tokenizer_"));
  EXPECT_EQ(inspected(out())["vocabulary_size"], 9);
  // A corpus brings it along, with what is said beside it.
  text("bert/tokenizer_config.json", "{\"do_lower_case\": false}");
  result = done({"--tokenizer", scratch_ / "bert/vocab.txt", file});
  EXPECT_EQ(result["tokens"], 6);  // [UNK] [UNK] the sky . [SEP]
  const fs::path other = scratch_ / "out/other.h5";
  const RunResult again =
      trireme({"tokenize", "--out", other, "--tokenizer", out(), file});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(slurp(other) == slurp(out()));
  EXPECT_THAT(again.out + again.err, HasSubstr("tokenizer: WordPiece, cased\n"));
}

TEST_F(Tokenize, KeepsSentences) {
  std::string chapters;
  for (int i = 0; i < 40; ++i) {
    chapters += fmt::format("Chapter {} begins. Mr. Adam, he said it.\n\nSo be it.", i);
  }
  const fs::path file = text("a.txt", chapters);
  json result = done({"--train-bpe", "280", "--sentences", "en", file});
  EXPECT_EQ(result["sentences"], 3 * 40 - 39);  // "it.Chapter" is within one
  const std::string alone = slurp(out());
  for (const int ranks : {2, 3, 5}) {
    const RunResult ranked =
        trireme_on_ranks(ranks, {"tokenize", "--out", out(), "--train-bpe", "280",
                                 "--sentences", "en", "--overwrite", file});
    ASSERT_EQ(ranked.status, 0) << ranked.err;
    EXPECT_TRUE(slurp(out()) == alone) << ranks;
  }
  const json shown = inspected(out());
  EXPECT_EQ(shown["sentences"], result["sentences"]);
  EXPECT_EQ(shown["sentence_language"], "en");
  EXPECT_EQ(done({"--train-bpe", "280", file})["sentences"], nullptr);
  EXPECT_EQ(inspected(out())["checksum"], shown["checksum"]);
  fs::remove(out());
  expect_refused({"--train-bpe", "280", "--sentences", "english", file},
                 {"'english'", "there are for: en, de"});
}

// T5's and BERT's vocabularies, the same for any number of ranks.
TEST_F(Tokenize, TrainsOtherVocabularies) {
  const fs::path file = text("a.txt", small_text(6000));
  const std::vector<std::vector<std::string>> kinds = {
      {"--train-unigram", "420"}, {"--train-wordpiece", "120", "--cased"}};
  for (const std::vector<std::string>& kind : kinds) {
    std::vector<std::string> arguments = kind;
    arguments.push_back(file);
    const json result = done(arguments);
    EXPECT_LE(result["vocabulary"], std::stoi(kind[1]));
    const std::string alone = slurp(out());
    const json shown = inspected(out());
    EXPECT_EQ(shown["vocabulary_size"], result["vocabulary"]);
    std::vector<std::string> ranked = {"tokenize", "--out", out(), "--overwrite"};
    ranked.insert(ranked.end(), arguments.begin(), arguments.end());
    const RunResult three = trireme_on_ranks(3, ranked);
    ASSERT_EQ(three.status, 0) << three.err;
    EXPECT_TRUE(slurp(out()) == alone) << kind[0];
    // Words are counted by all ranks; a SentencePiece model cuts no document.
    const auto idle = HasSubstr(
        "1 file that is one document, 3 ranks: 2 have nothing to do (this tokenizer cuts "
        "no document); split it into more files, or say by --documents what a document "
        "is");
    if (kind[0] == "--train-unigram") {
      EXPECT_THAT(three.err, idle);
    } else {
      EXPECT_THAT(three.err, Not(HasSubstr("nothing to do")));
    }
    // Given, it is the same tokenizer.
    fs::copy_file(out(), scratch_ / "given.h5", fs::copy_options::overwrite_existing);
    done({"--tokenizer", scratch_ / "given.h5", file});
    EXPECT_TRUE(slurp(out()) == alone) << kind[0];
  }
  EXPECT_THAT(done({"--train-unigram", "420", file})["tokenizer"].get<std::string>(),
              HasSubstr("SentencePiece, unigram with byte fallback"));
  EXPECT_EQ(done({"--train-wordpiece", "120", file})["tokenizer"], "WordPiece, uncased");
}

TEST_F(Tokenize, AddsSentinelsToAModel) {
  const fs::path model = source_file("tests/parity/fixtures/tokenizer/unigram.model");
  const fs::path file = text("a.txt", "In the beginning");
  EXPECT_EQ(done({"--tokenizer", model, file})["vocabulary"], 4000);
  EXPECT_EQ(done({"--tokenizer", model, "--extra-ids", "100", file})["vocabulary"], 4100);
  EXPECT_EQ(inspected(out())["end_of_document"], 1);
  fs::remove(out());
  expect_refused({"--train-bpe", "300", "--extra-ids", "100", file},
                 {"--extra-ids is for SentencePiece models"});
  expect_refused({"--train-bpe", "300", "--cased", file},
                 {"--cased is for --train-wordpiece"});
  expect_refused({"--train-bpe", "300", "--train-unigram", "400", file},
                 {"give one of --tokenizer"});
  expect_refused({file}, {"give one of --tokenizer", "--train-wordpiece SIZE"});
  expect_refused({"--tokenizer", text("cut.model", slurp(model).substr(0, 5000)), file},
                 {"cut.model", "cut short"});
  // Of 4000 pieces, put in the place of another model's.
  fs::create_directories(scratch_ / "t5");
  const fs::path put = text("t5/spiece.model", slurp(model));
  text("t5/config.json", "{\"vocab_size\": 1000}");
  for (const fs::path& given : {scratch_ / "t5", put}) {
    expect_refused({"--tokenizer", given, file},
                   {"t5/spiece.model' has 4,000 pieces", "vocab_size 1000",
                    "another model's", "Copy the model's own again"});
  }
  text("t5/config.json", "{\"vocab_size\": 4128}");
  EXPECT_EQ(done({"--tokenizer", scratch_ / "t5", file})["vocabulary"], 4000);
  fs::remove(out());
  text("t5/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n");
  expect_refused({"--tokenizer", scratch_ / "t5", file},
                 {"t5/vocab.txt' and '", "t5/spiece.model' are of two tokenizers",
                  "give the file of one"});
}

TEST_F(Tokenize, ReadsCompressedFiles) {
  const std::string lines = json{{"text", small_text(3000)}}.dump() + "\n";
  const json expected = done({"--train-bpe", "280", text("a.jsonl", lines + lines)});
  const std::string plain = slurp(out());
  EXPECT_EQ(expected["documents"], 2);
  EXPECT_THAT(err_, Not(HasSubstr("nothing to do")));
  const std::vector<fs::path> packed = {
      text("a.jsonl.gz", gzip_of(lines) + gzip_of(lines)),
      text("a.jsonl.zst", zstd_of(lines) + zstd_of(lines))};
  for (const fs::path& file : packed) {
    EXPECT_EQ(done({"--train-bpe", "280", file})["input_bytes"], expected["input_bytes"]);
    EXPECT_TRUE(slurp(out()) == plain) << file;
    const RunResult result = trireme_on_ranks(
        3, {"tokenize", "--out", out(), "--train-bpe", "280", "--overwrite", file});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(slurp(out()) == plain) << file;
    EXPECT_THAT(result.err, HasSubstr("1 compressed file, 3 ranks: 2 have nothing to do; "
                                      "split it into more files"));
  }
}

TEST_F(Tokenize, DamagedCompressedFiles) {
  const auto refused = [&](const std::string& name, const std::string& bytes,
                           std::vector<std::string> parts) {
    parts.push_back(name);
    expect_refused({"--train-bpe", "280", text(name, bytes)}, parts);
  };
  const std::string gzip = gzip_of(small_text(3000)), zstd = zstd_of(small_text(3000));
  refused("a.txt.gz", gzip.substr(0, 100), {"at byte 100 of 100", "cut short"});
  refused("a.txt.zst", zstd.substr(0, 100), {"of 100", "cut short"});
  refused("b.txt.gz", gzip + "rest", {"trailing garbage: 4 bytes", "head -c"});
  refused("b.txt.zst", zstd + "rest", {"trailing garbage: 4 bytes", "head -c"});
  refused("c.txt.gz", "plain text",
          {"name of a gzip file", "what is in it is uncompressed"});
}

TEST_F(Tokenize, NothingToRead) {
  expect_refused({"--train-bpe", "300", text("empty.txt", "")},
                 {"empty.txt", "empty", "nothing to tokenize"});
  expect_refused(
      {"--train-bpe", "300", "--documents", "line", text("blank.txt", "\n \n")},
      {"nothing to tokenize", "no document with text"});
  expect_refused({"--train-bpe", "300", scratch_.path()},
                 {scratch_.path().string(), "is a directory", "name the files"});
  expect_refused({"--train-bpe", "300", scratch_ / "none.txt"},
                 {"none.txt", "does not exist"});
  expect_refused({"--train-bpe", "300",
                  text("a.xz",
                       "\xFD"
                       "7zXZ")},
                 {"a.xz", "xz", "unpack"});
  expect_refused({"--train-bpe", "300", corpus()}, {"corpus.h5", "HDF5"});
  expect_refused({"--train-bpe", "300"}, {"INPUT is required"});
}

TEST_F(Tokenize, WrongTokenizers) {
  const fs::path file = text("a.txt", "a few words");
  expect_refused({file}, {"--tokenizer", "--train-bpe SIZE"});
  expect_refused({"--tokenizer", "gpt2", "--train-bpe", "300", file}, {"give one of"});
  expect_refused({"--train-bpe", "100", file}, {"--train-bpe", "100", "257"});
  expect_refused({"--tokenizer", scratch_ / "none.json", file},
                 {"none.json", "does not exist"});
  expect_refused({"--tokenizer", text("t.json", "{\"model\": "), file},
                 {"t.json:1:", "not valid JSON"});
  expect_refused({"--tokenizer",
                  text("u.json",
                       "{\"model\": {\"type\": \"WordLevel\", "
                       "\"vocab\": [], \"unk_id\": 0}}"),
                  file},
                 {"u.json", "WordLevel", "BPE on bytes", "WordPiece"});
  expect_refused(
      {"--tokenizer", text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nth"), file},
      {"vocab.txt", "last line, 6,", "cut short"});
  expect_refused({"--tokenizer", text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n"), file},
                 {"vocab.txt", "lack [MASK]", "Take the whole"});
  // Of a model's directory, cut at the end of a line.
  fs::create_directories(scratch_ / "model");
  text("model/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n");
  text("model/config.json", "{\"vocab_size\": 30522}");
  for (const char* const given : {"model", "model/vocab.txt"}) {
    expect_refused({"--tokenizer", scratch_ / given, file},
                   {"model/vocab.txt' has 6 lines", "vocab_size 30522",
                    "Copy the model's own again"});
  }
  expect_refused({"--tokenizer", file, file}, {"a.txt"});
  expect_refused({"--tokenizer", "wordpiece", file},
                 {"wordpiece", "does not exist", "gpt2"});
  expect_refused({"--tokenizer", scratch_ / "out", file}, {"out"});
}

TEST_F(Tokenize, WhereTheCorpusCannotGo) {
  const fs::path file = text("a.txt", small_text(100));
  const std::string before = slurp(file);
  const auto refuse = [&](const fs::path& where, const std::vector<std::string>& parts) {
    expect_refusal(trireme({"tokenize", "--train-bpe", "257", "--out", where, file}),
                   parts);
  };
  refuse(scratch_ / "a.txt/corpus.h5", {"a.txt/corpus.h5", "Not a directory"});
  refuse(scratch_ / "none/corpus.h5", {"there is no directory", "none", "make it"});
  refuse(scratch_ / "out", {"is a directory", "name a file"});
  refuse("/proc/corpus.h5", {"/proc/corpus.h5"});
  // The text itself must not be written over.
  refuse(file, {"a.txt", "is also what is read"});
  refuse(scratch_ / "out/../a.txt", {"a.txt", "is also what is read"});
  expect_refusal(tokenize({"--train-bpe", "257", file, "--json", file}),
                 {"a.txt", "is also what is read"});
  expect_refusal(trireme({"tokenize", "--tokenizer", corpus(), "--overwrite", "--out",
                          corpus(), file}),
                 {"corpus.h5", "is also what is read"});
  EXPECT_EQ(slurp(file), before);
  EXPECT_EQ(tree(scratch_.path()), (std::set<std::string>{"a.txt", "out"}));
}

// A corpus may be what a run is being trained on.
TEST_F(Tokenize, ReplacesACorpusOnlyWhereAsked) {
  const fs::path file = text("a.txt", small_text(500));
  ASSERT_EQ(tokenize({"--train-bpe", "270", file}).status, 0);
  const std::string before = slurp(out());
  std::ifstream reader(out(), std::ios::binary);  // opened before
  expect_refusal(tokenize({"--train-bpe", "300", file}),
                 {"corpus.h5", "exists already", "--overwrite"});
  expect_refusal(
      trireme_on_ranks(2, {"tokenize", "--out", out(), "--train-bpe", "300", file}),
      {"corpus.h5", "exists already", "--overwrite"});
  EXPECT_TRUE(slurp(out()) == before);

  // Who has the old one keeps it, byte for byte; the new one has taken its name.
  const RunResult result = tokenize({"--train-bpe", "300", "--overwrite", file});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(inspected(out())["vocabulary_size"], 300);
  EXPECT_TRUE(std::string(std::istreambuf_iterator<char>(reader), {}) == before);
  EXPECT_EQ(tree(scratch_ / "out"), std::set<std::string>{"corpus.h5"});

  // A link that leads nowhere is a name that is taken, too.
  fs::remove(out());
  fs::create_symlink("nowhere", out());
  expect_refusal(tokenize({"--train-bpe", "300", file}), {"corpus.h5", "--overwrite"});
}

TEST_F(Tokenize, ReplacesCorporaAlone) {
  const fs::path file = text("a.txt", small_text(500));
  const fs::path cut = scratch_ / "cut.h5", vectors = scratch_ / "vectors.h5";
  spill(cut, slurp(corpus()).substr(0, 5000));
  io::H5File other = io::H5File::create(vectors);
  other.make_dataset("tokens", DType::int64, {1}).write(std::vector<std::int64_t>{1});
  other.close();
  ASSERT_EQ(train({"run.steps=2"}).status, 0);
  for (const fs::path& taken : {text("b.txt", "another text"), cut, vectors,
                                newest() / "index.h5", run_dir() / "deck.yaml"}) {
    SCOPED_TRACE(taken);
    const std::string before = slurp(taken);
    ASSERT_FALSE(before.empty());
    for (const int ranks : {1, 2}) {
      expect_refusal(trireme_on_ranks(ranks, {"tokenize", "--train-bpe", "270", "--out",
                                              taken, "--overwrite", file}),
                     {taken.filename(), "is no corpus", "remove it yourself"});
    }
    EXPECT_TRUE(slurp(taken) == before);
  }
}

// A killed call leaves its temporary files behind, of any size; and somebody may have
// planted a link under a name that can be guessed.
TEST_F(Tokenize, LeftoversOfKilledCallsGo) {
  const fs::path file = text("a.txt", small_text(500)), victim = scratch_ / "victim";
  spill(victim, "precious");
  // A process that has ended, and the program's own number with the names it once used.
  const std::string script =
      "d=\"$(dirname \"$2\")\"; h=$(hostname); sh -c 'echo $$' > \"$1/pid\"\n"
      "echo half > \"$d/.corpus.h5.tmp-$h-$(cat \"$1/pid\")-0123456789abcdef\"\n"
      "ln -s \"$1/victim\" \"$d/.corpus.h5.tmp-$h-$$\"\n"
      "exec \"$0\" tokenize --train-bpe 270 --out \"$2\" \"$1/a.txt\"";
  const RunResult result = run({"/bin/sh", "-c", script, std::getenv("TRIREME_BINARY"),
                                scratch_.path().string(), out().string()});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("removed '"));
  EXPECT_THAT(result.err, HasSubstr("(5 bytes, of process "));
  EXPECT_THAT(result.err, HasSubstr("another process is writing it"));
  EXPECT_EQ(slurp(victim), "precious");
  EXPECT_EQ(tree(scratch_ / "out").size(), 2u) << "the corpus and the link";
}

TEST_F(Tokenize, DiskFull) {
  const fs::path file = text("a.txt", small_text(20000));  // some 90 KB of tokens
  RunResult result = trireme_limited(
      "ulimit -f 40", {"tokenize", "--train-bpe", "270", "--out", out(), file});
  expect_error(result, 1, {"corpus.h5", "File too large"});
  EXPECT_THAT(tree(scratch_ / "out"), IsEmpty());

  // A corpus that was there stays.
  fs::copy_file(corpus(), out());
  result = trireme_limited("ulimit -f 40", {"tokenize", "--train-bpe", "270", "--out",
                                            out(), "--overwrite", file});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(slurp(out()) == slurp(corpus()));
  EXPECT_EQ(tree(scratch_ / "out").size(), 1u);

  const SmallDisk disk(scratch_ / "disk", 64 << 10);
  if (disk.is_mounted()) {
    result = trireme(
        {"tokenize", "--train-bpe", "270", "--out", scratch_ / "disk/corpus.h5", file});
    expect_error(result, 1,
                 {"corpus.h5", "No space left on device", "free on that file"});
    EXPECT_THAT(tree(scratch_ / "disk"), IsEmpty());
  }
}

// A text of another language than the tokenizer's is a corpus of nothing but [UNK].
TEST_F(Tokenize, WarnsOfUnknownTokens) {
  const fs::path words = text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n");
  const fs::path chinese = text("a.txt", "\u6c34\u706b\u6728\nthe the\n\u6c34\n");
  const auto counted = [&](const fs::path& file) {
    return done({"--tokenizer", words, "--documents", "line", file})["unknown_tokens"];
  };
  const std::string warning = "44 % of the tokens are [UNK]: the tokenizer has no pieces";
  EXPECT_EQ(counted(chinese), 4);  // of 9, with three ends
  EXPECT_THAT(err_, HasSubstr(warning));
  const RunResult ranked =
      trireme_on_ranks(3, {"tokenize", "--out", out(), "--overwrite", "--tokenizer",
                           words, "--documents", "line", chinese});
  ASSERT_EQ(ranked.status, 0) << ranked.err;
  EXPECT_THAT(ranked.err, HasSubstr(warning));

  // One of 100 is usual, and one of 99 is more than that.
  std::string usual = "\u6c34";
  for (int i = 0; i < 97; ++i) usual += " the";
  EXPECT_EQ(counted(text("more.txt", usual)), 1);
  EXPECT_THAT(err_, HasSubstr("1 % of the tokens are [UNK]"));
  EXPECT_EQ(counted(text("usual.txt", usual + " the")), 1);
  EXPECT_THAT(err_, Not(HasSubstr("of the tokens are")));
  // What a text spells is not unknown.
  EXPECT_EQ(counted(text("spelt.txt", "[UNK] the")), 0);
  EXPECT_THAT(err_, Not(HasSubstr("of the tokens are")));
  EXPECT_THAT(out_, HasSubstr("1 added token found in the text ([UNK]); --plain-text"));
}

TEST_F(Tokenize, NamesAddedTokensOfTheText) {
  const fs::path words = text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n");
  const fs::path file = text("a.txt", "the [MASK]\n[MASK] the\n[PAD] the\n");
  const std::string warning =
      "3 added tokens found in the text ([PAD] and others): a model reads padding and "
      "masked words there, as in a BERT's or T5's samples; --plain-text reads them as "
      "text";
  const std::vector<std::string> arguments = {"--tokenizer", words, "--documents", "line",
                                              file};
  EXPECT_EQ(done(arguments)["added_tokens_found"], 3);
  EXPECT_THAT(err_, HasSubstr(warning));
  std::vector<std::string> ranked = {"tokenize", "--out", out(), "--overwrite"};
  ranked.insert(ranked.end(), arguments.begin(), arguments.end());
  const RunResult three = trireme_on_ranks(3, ranked);
  ASSERT_EQ(three.status, 0) << three.err;
  EXPECT_THAT(three.err, HasSubstr(warning));
  EXPECT_EQ(done({"--plain-text", "--tokenizer", words, file})["added_tokens_found"], 0);
  EXPECT_THAT(out_ + err_, Not(HasSubstr("added token")));

  const fs::path model = source_file("tests/parity/fixtures/tokenizer/unigram.model");
  done({"--tokenizer", model, "--extra-ids", "2", text("t5.txt", "In <extra_id_1>")});
  EXPECT_THAT(err_, HasSubstr("(<extra_id_1>): a model reads hidden spans there"));
  done({"--tokenizer", model, "--extra-ids", "2", text("t5.txt", "A</s>b <extra_id_0>")});
  EXPECT_THAT(err_, HasSubstr("(</s> and others): a model reads ends of documents and "
                              "hidden spans there"));
}

// Bytes are those of texts, whatever is around them.
TEST_F(Tokenize, BytesPerTokenAreOfTheText) {
  const json plain = done(
      {"--train-bpe", "257", "--documents", "line", text("a.txt", "ab\n\u00e4cd\n")});
  EXPECT_EQ(plain["text_bytes"], 6);
  EXPECT_EQ(plain["input_bytes"], 8);
  EXPECT_DOUBLE_EQ(plain["bytes_per_token"], 6.0 / 8.0);  // each byte, and two ends
  const json lines = done(
      {"--train-bpe", "257",
       text("a.jsonl", "{\"text\": \"ab\", \"id\": 1}\n{\"text\": \"\\u00e4cd\"}\n")});
  EXPECT_EQ(lines["text_bytes"], 6);
  EXPECT_EQ(lines["bytes_per_token"], plain["bytes_per_token"]);
}

TEST_F(Tokenize, RefusesOptionsOfOtherInputs) {
  const fs::path plain = text("a.txt", "ab"), lines = text("b.jsonl", "{\"t\": \"c\"}\n");
  expect_refused({"--train-bpe", "257", "--json-key", "text", plain},
                 {"--json-key is for JSON lines", "leave it out"});
  expect_refused({"--train-bpe", "257", "--json-key", "t", "--documents", "file", lines},
                 {"--documents is for plain text", "leave it out"});
  const json both = done(
      {"--train-bpe", "257", "--json-key", "t", "--documents", "line", plain, lines});
  EXPECT_EQ(both["documents"], 2);
}

}  // namespace
}  // namespace trireme::test
