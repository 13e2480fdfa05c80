// What is wrong with decks of BERT and T5 and with their corpora is said in one list,
// with what to do, before anything is made: vocabularies without the tokens that samples
// need, corpora without sentences, sequences that are too short, stages without layers,
// blends without weights, lengths that tensor ranks do not share, and checkpoints of
// other tokenizers.
#include <string>
#include <utility>
#include <vector>

#include "regression/cli/sample_corpora.hpp"
#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

class KindsDeckCheck : public Workplace {
 protected:
  // One of each for all tests of this executable.
  static const fs::path& in_pieces() {  // of words, without sentences
    static const fs::path path = tokenized("pieces.h5", {"uncased"});
    return path;
  }
  static const fs::path& in_sentences() {
    static const fs::path path =
        tokenized("sentences.h5", {"uncased", "--sentences", "en"});
    return path;
  }
  static const fs::path& with_sentinels() {
    static const fs::path path =
        tokenized("sentinels.h5", {"unigram.model", "--extra-ids", "100"});
    return path;
  }
  // By a tokenizer of the fixtures, with other options.
  static fs::path tokenized(const std::string& name,
                            const std::vector<std::string>& tokenizer) {
    static const Scratch place;
    const fs::path path = place.path() / name;
    make_sample_corpus(path, tokenizer.at(0), {tokenizer.begin() + 1, tokenizer.end()});
    return path;
  }

  // Before any work: there is no run.
  void expect_no_run(const RunResult& result,
                     const std::vector<std::string>& parts) const {
    expect_refusal(result, parts);
    EXPECT_FALSE(fs::exists(run_dir()));
  }
};

TEST_F(KindsDeckCheck, VocabularyWithoutTheSpecialTokens) {
  const std::vector<std::string> alone = {"model.binary_head=false"};
  expect_no_run(train_kind("bert", corpus(), alone),
                {"1 error", "data.train: " + corpus().string(),
                 "its tokenizer (byte-level BPE) has no [PAD], no [CLS], no [SEP], no "
                 "[MASK], which the samples of a bert model are made with",
                 "trireme tokenize --tokenizer vocab.txt",
                 "a corpus of which samples of a bert model can be made"});
  // A corpus of one kind for the other.
  expect_no_run(train_kind("bert", with_sentinels(), alone),
                {"SentencePiece", "has no [CLS], no [SEP], no [MASK]"});
  expect_no_run(
      train_kind("t5", in_pieces()),
      {"1 error",
       "has no sentinels, which the samples of a t5 model are made "
       "with: make the corpus again, with a model of SentencePiece and `trireme "
       "tokenize --extra-ids 100`"});
  expect_no_run(train_kind("t5", corpus()), {"has no sentinels", "--extra-ids 100"});
  const fs::path bare = tokenized("bare.h5", {"unigram.model"});
  expect_no_run(train_kind("t5", bare),
                {"bare.h5", "(SentencePiece", "has no sentinels", "--extra-ids 100"});
  const fs::path few = tokenized("few.h5", {"unigram.model", "--extra-ids", "2"});
  expect_no_run(train_kind("t5", few, {"model.sequence=64"}),
                {"few.h5",
                 "a source of 64 (model.sequence) has 3 spans, and the "
                 "tokenizer 2 sentinels"});
}

TEST_F(KindsDeckCheck, CorpusWithoutSentencesForPairs) {
  for (const std::string pairs : {"order", "next"}) {
    expect_no_run(
        train_kind("bert", in_pieces(), {"data.pairs=" + pairs}),
        {"1 error", "data.train: " + in_pieces().string(),
         "has no sentences, and data.pairs: " + pairs + " makes pairs of segments",
         "make it again with `trireme tokenize --sentences LANGUAGE` (a model that is "
         "trained with data.pairs: none and model.binary_head: false needs none)"});
  }
  // Documents of a sentence each, and one document alone, have none either.
  const fs::path single = scratch_ / "single.h5", alone = scratch_ / "alone.h5";
  const fs::path lines = scratch_ / "lines.txt";
  spill(lines, "He went home.\nShe stayed there.\nThey met again.\n");
  make_corpus_of(lines, single, "uncased", {"--sentences", "en", "--documents", "line"});
  make_corpus_of(lines, alone, "uncased", {"--sentences", "en"});
  expect_no_run(train_kind("bert", single),
                {"single.h5", "has no document of two sentences", "--documents"});
  // Where only blank lines end sentences, longer documents have no more of them.
  const fs::path whole = scratch_ / "whole.h5";
  make_corpus_of(lines, whole, "uncased", {"--sentences", "none", "--documents", "line"});
  const RunResult by_blank_lines = train_kind("bert", whole);
  expect_no_run(by_blank_lines,
                {"whole.h5", "has no document of two sentences",
                 "made with --sentences none", "`trireme tokenize --sentences en`"});
  EXPECT_THAT(by_blank_lines.err, testing::Not(testing::HasSubstr("--documents")));
  expect_no_run(train_kind("bert", alone, {"data.pairs=next"}),
                {"alone.h5", "has one document with text", "--documents blank-line",
                 "data.pairs: order"});
  // Both corpora are to have them, and both are named.
  expect_no_run(train_kind("bert", in_pieces(),
                           {"data.validation={book: " + in_pieces().string() + "}"}),
                {"2 errors", "data.train", "data.validation.book"});
  expect_no_run(train_kind("bert", in_sentences(),
                           {"data.validation={book: " + in_pieces().string() + "}"}),
                {"1 error", "data.validation.book: " + in_pieces().string()});
}

// A corpus that has pairs may have none in what is trained or validated.
TEST_F(KindsDeckCheck, PartsWithoutPairs) {
  const std::string lone = "He went home.\n", pair = "She stayed. They met again.\n";
  std::string many;
  for (int i = 0; i < 300; ++i) many += lone;
  const std::vector<std::string> by_line = {"--sentences", "en", "--documents", "line"};
  const auto made = [&](const std::string& name, const std::string& text,
                        const std::vector<std::string>& options) {
    spill(scratch_ / (name + ".txt"), text);
    make_corpus_of(scratch_ / (name + ".txt"), scratch_ / (name + ".h5"), "uncased",
                   options);
    return scratch_ / (name + ".h5");
  };
  const std::string no_pair = "has no document of two sentences, and data.pairs: order";
  const auto expect_taken = [&](const fs::path& corpus,
                                const std::vector<std::string>& keys) {
    const RunResult result = train_kind("bert", corpus, keys, {"--dry-run"});
    EXPECT_EQ(result.status, 0) << result.err;
  };
  const fs::path last = made("last", many + pair, by_line);
  expect_no_run(train_kind("bert", last),
                {"1 error", "data.train", "'train' of corpus '" + last.string(), no_pair,
                 "data.split", "data.validation", "--documents blank-line",
                 "samples of which something counts"});
  // Of a blend each corpus has its own parts.
  expect_no_run(
      train_kind("bert", last,
                 {"data.train=[" + in_sentences().string() + ", " + last.string() + "]"}),
      {"1 error", "'train' of corpus '" + last.string()});
  // Validation without a pair still has words that are masked.
  expect_taken(made("first", pair + many, by_line), {});
  // A run under way has the samples that it has.
  const RunResult under_way =
      train_kind("bert", last, {}, {"--resume", scratch_ / "none"});
  EXPECT_NE(under_way.status, 0);
  EXPECT_THAT(under_way.err, testing::Not(testing::HasSubstr(no_pair)));

  std::string sentences;
  for (int i = 0; i < 100; ++i) sentences += "She stayed. They met again.\n";
  const fs::path two = made("two", sentences + "\n" + sentences,
                            {"--sentences", "en", "--documents", "blank-line"});
  expect_no_run(
      train_kind("bert", two, {"data.pairs=next", "data.split=[0.45, 0.55, 0.0]"}),
      {"1 error",
       "'train' of corpus '" + two.string() +
           "' has one document with text, and data.pairs: next",
       "data.split", "data.validation", "data.pairs: order"});
  // What is said to be done can be done.
  expect_taken(two, {"data.pairs=next"});
  expect_taken(two, {"data.pairs=next", "data.split=[1.0, 0.0, 0.0]"});
  expect_taken(two, {"data.split=[0.45, 0.55, 0.0]", "data.pairs=order"});
}

// Of a text of one token nothing can be hidden, and of none nothing masked.
TEST_F(KindsDeckCheck, DocumentsTooShortToCount) {
  const std::string halves = "data.split=[0.5, 0.5, 0.0]";
  std::string letters, blanks;
  for (int i = 0; i < 300; ++i) {
    letters += "a\n";
    blanks += "{\"text\": \" \"}\n";
  }
  const fs::path lines = scratch_ / "letters.txt", short_ones = scratch_ / "short.h5";
  spill(lines, letters);
  make_corpus_of(lines, short_ones, "unigram.model",
                 {"--extra-ids", "100", "--documents", "line"});
  expect_no_run(
      train_kind("t5", short_ones, {"data.pack=false", halves}),
      {"2 errors", "'train' of corpus '" + short_ones.string(),
       "'validation' of corpus '", "has no document of two tokens", "data.pack: true"});
  expect_no_run(
      train_kind("t5", short_ones, {"data.pack=false", "data.split=[1.0, 0.0, 0.0]"}),
      {"1 error", "corpus '" + short_ones.string() + "' has no document of two tokens",
       "--documents blank-line"});
  const RunResult packed = train_kind("t5", short_ones, {halves}, {"--dry-run"});
  EXPECT_EQ(packed.status, 0) << packed.err;
  const fs::path objects = scratch_ / "blanks.jsonl", empty = scratch_ / "empty.h5";
  spill(objects, blanks);
  make_corpus_of(objects, empty, "uncased", {});
  const std::string no_text = "has no document with a token of text";
  expect_no_run(train_kind("bert", empty, {"model.binary_head=false"}),
                {"2 errors", "'train' of corpus '" + empty.string(), no_text});
  expect_no_run(train_kind("gpt", empty, {"data.mask_eod_loss=true", halves}),
                {"2 errors", "'validation' of corpus '" + empty.string(), no_text});
  const RunResult unmasked = train_kind("gpt", empty, {halves}, {"--dry-run"});
  EXPECT_EQ(unmasked.status, 0) << unmasked.err;
}

// What is proposed in the place of a corpus is no vocabulary of another kind's.
TEST_F(KindsDeckCheck, CorpusThatIsNotThere) {
  const std::string fix = "\n    nearest: the path of a corpus";
  for (const std::string kind : {"gpt", "bert", "t5"}) {
    SCOPED_TRACE(kind);
    const RunResult result = train_kind(kind, scratch_ / "none.h5", {}, {"--dry-run"});
    expect_no_run(result, {"1 error", "none.h5", "and only it says the vocabulary",
                           fix + (kind == "gpt" ? ", or model.vocab: 50257\n" : "\n")});
  }
}

TEST_F(KindsDeckCheck, SequenceShorterThanTheSpecialTokens) {
  expect_no_run(train_kind("bert", in_sentences(), {"model.sequence=4"}),
                {"1 error", "model.sequence: 4",
                 "is too short for [CLS] token [SEP] token [SEP]", "model.sequence: 5"});
  expect_no_run(
      train_kind("bert", in_pieces(), {"model.sequence=2", "model.binary_head=false"}),
      {"1 error", "is too short for [CLS] token [SEP]", "model.sequence: 3"});
  expect_no_run(train_kind("t5", with_sentinels(), {"model.sequence=2"}),
                {"1 error", "is too short for a token, a sentinel and the end",
                 "model.sequence: 3"});
  expect_no_run(train_kind("t5", with_sentinels(), {"model.decoder_sequence=4"}),
                {"1 error", "model.decoder_sequence: 4",
                 "is too short for what the "
                 "corruption makes"});
  // Longer than all of the corpus.
  expect_no_run(train_kind("bert", in_sentences(), {"model.sequence=1000000"}),
                {"1 error", "data.train", "room for one sample in each part"});
  expect_no_run(train_kind("t5", with_sentinels(), {"model.sequence=1000000"}),
                {"1 error", "data.train"});
}

TEST_F(KindsDeckCheck, SplitThatLeavesAStageEmpty) {
  const std::vector<std::string> all = {"parallel.pipeline=4", "parallel.split=4"};
  const std::vector<std::string> parts = {
      "1 error", "parallel.split: 4",
      "leaves no chunk for the decoder; there are pipeline 4 × virtual_pipeline 1 = 4 "
      "chunks",
      "parallel.split: 3"};
  expect_no_run(train_kind("t5", with_sentinels(), all, {}, 4), parts);
  expect_no_run(train_kind("t5", with_sentinels(), all, {"--dry-run", "--ranks", "4"}),
                parts);
  expect_no_run(
      train_kind("t5", with_sentinels(),
                 {"model.decoder_layers=1", "parallel.pipeline=4", "parallel.split=1"},
                 {"--dry-run", "--ranks", "4"}),
      {"1 error",
       "gives the decoder 3 chunks for 1 layer: one would have nothing at all in it",
       "parallel.split: 2"});
  expect_no_run(train_kind("bert", in_sentences(), {"parallel.split=1"}),
                {"1 error", "is a key of t5, and model.kind is bert"});
}

TEST_F(KindsDeckCheck, BlendsWithZeroOrMissingWeights) {
  for (const auto& [kind, corpus] :
       {std::pair{"bert", in_sentences()}, {"t5", with_sentinels()}}) {
    SCOPED_TRACE(kind);
    const std::string entry = "{path: " + corpus.string();
    const auto blend = [&](const std::string& first, const std::string& second) {
      return train_kind(kind, corpus,
                        {"data.train=[" + entry + first + "}, " + entry + second + "}]"});
    };
    expect_no_run(blend(", weight: 2", ", weight: 0"),
                  {"1 error", "data.train",
                   "weight: 0 is too small; a corpus of which no sample is "
                   "wanted is left out of the list"});
    expect_no_run(blend(", weight: 2", ""),
                  {"1 error", "data.train", "has 2 corpora and 1 weight: none for",
                   "all have one, or none has for equal shares"});
    // What is said to be done can be done.
    for (const std::string weight : {"", ", weight: 2"}) {
      const RunResult mended = blend(weight, weight);
      EXPECT_EQ(mended.status, 0) << mended.err;
      fs::remove_all(run_dir());
    }
  }
}

// By such weights one of the corpora would never be taken. That is said before a job
// waits in a queue, in the words in which training says it.
TEST_F(KindsDeckCheck, BlendsWithWeightsTooFarApart) {
  const auto blend = [](const char* first, const char* second) {
    const std::string path = in_sentences().string();
    return "[{path: " + path + ", weight: " + first + "}, {path: " + path +
           ", weight: " + second + "}]";
  };
  const std::string far = "data.train=" + blend("1e10", "1"),
                    near = "data.train=" + blend("10000000000", "2.4");
  const std::vector<std::string> parts = {
      "1 error",
      "data.train: [{path: ",
      "(--set)",
      "has weights from 1 to 10000000000, too far apart: not all corpora would be taken",
      "allowed: weights of at least 2.4e-10 of their sum (2.4)",
      "nearest: data.train: " + blend("10000000000", "2.4")};
  expect_no_run(train_kind("bert", in_sentences(), {far}), parts);
  expect_no_run(train_kind("bert", in_sentences(), {far}, {"--dry-run"}), parts);
  const auto jobscript = [&](const std::string& set) {
    return trireme({"jobscript", scratch_ / "bert.yaml", "--machine", "cpu", "--nodes",
                    "1", "--time", "1h", "--set", set, "--out", scratch_ / "job.sbatch"});
  };
  expect_no_run(jobscript(far), parts);
  EXPECT_FALSE(fs::exists(scratch_ / "job.sbatch"));
  // What is said to be done can be done.
  const RunResult script = jobscript(near);
  EXPECT_EQ(script.status, 0) << script.err;
  const RunResult trained = train_kind("bert", in_sentences(), {near});
  EXPECT_EQ(trained.status, 0) << trained.err;
}

// A list that is wrong is mended as a whole, so that what is said can be put in its
// place.
TEST_F(KindsDeckCheck, BlendsWithMisspeltEntries) {
  const std::string path = in_sentences().string(),
                    meant = "[{path: " + path + ", weight: 3}, {path: " + path +
                            ", weight: 1}]";
  expect_no_run(train_kind("bert", in_sentences(),
                           {"data.train=[{path: " + path +
                            ", weight: '3'}, {path: " + path + ", weigth: 1}]"}),
                {"1 error", "weight: \"3\" is text in quotes; a number is wanted",
                 "nearest: data.train: " + meant});
  const RunResult trained = train_kind("bert", in_sentences(), {"data.train=" + meant});
  EXPECT_EQ(trained.status, 0) << trained.err;
}

// The published sizes write 114 tokens, which eight tensor ranks do not share, nor four:
// said with a length that they share, with which the deck is right.
TEST_F(KindsDeckCheck, DecoderSequenceOfPublishedT5sUnderSequenceParallelism) {
  struct Size {
    const char *deck, *tensor, *fix;
  };
  for (const auto& [deck, tensor, fix] :
       {Size{"inputs/t5/3b.yaml", "4", "116"}, {"inputs/t5/11b.yaml", "8", "120"}}) {
    SCOPED_TRACE(deck);
    const auto dry_run = [&](const fs::path& path, const std::string& more) {
      std::vector<std::string> arguments = {
          "train", path, "--dry-run", "--ranks", "8", "--set", "parallel.sequence=true"};
      if (!more.empty()) arguments.insert(arguments.end(), {"--set", more});
      return trireme(arguments, {.directory = scratch_.path()});
    };
    const std::string length = std::string("model.decoder_sequence: ") + fix;
    // As the deck has it, and as it is taken where a deck names none.
    std::string text = slurp(source_file(deck));
    const std::size_t key = text.find("  decoder_sequence: 114");
    ASSERT_NE(key, std::string::npos);
    text.erase(key, text.find('\n', key) + 1 - key);
    spill(scratch_ / "without.yaml", text);
    for (const fs::path& path : {source_file(deck), scratch_ / "without.yaml"}) {
      expect_refusal(
          dry_run(path, ""),
          {"1 error", "model.decoder_sequence: 114",
           std::string("is not a multiple of parallel.tensor (") + tensor +
               "): tensor ranks hold equal parts of a sample (parallel.sequence)",
           std::string("allowed: a multiple of ") + tensor, "nearest: " + length});
      const RunResult mended =
          dry_run(path, std::string("model.decoder_sequence=") + fix);
      EXPECT_EQ(mended.status, 0) << mended.err;
      EXPECT_THAT(mended.out, testing::HasSubstr(std::string("512 + ") + fix));
    }
    EXPECT_THAT(dry_run(scratch_ / "without.yaml", "").err,
                testing::HasSubstr("(default)"));
  }
}

TEST_F(KindsDeckCheck, CorpusOfAnotherTokenizerThanTheCheckpoints) {
  const fs::path cased = tokenized("cased.h5", {"cased.json", "--sentences", "en"});
  const fs::path other = tokenized("other.h5", {"unigram.model", "--extra-ids", "90"});
  for (const auto& [kind, its, foreign] :
       {std::tuple{"bert", in_sentences(), cased}, {"t5", with_sentinels(), other}}) {
    SCOPED_TRACE(kind);
    fs::remove_all(run_dir());
    const RunResult trained = train_kind(kind, its);
    ASSERT_EQ(trained.status, 0) << trained.err;
    const std::vector<std::string> from = {"--init-from", run_dir(), "--run-dir",
                                           scratch_ / "branch"};
    expect_refusal(train_kind(kind, foreign, {}, from),
                   {"1 error", "--init-from", "another tokenizer"});
    EXPECT_FALSE(fs::exists(scratch_ / "branch"));
    // What samples would need of a corpus that is not to be taken is no second error.
    for (const fs::path& lacking : {corpus(), in_pieces()}) {
      if (std::string(kind) == "bert" && lacking == in_pieces()) continue;
      expect_refusal(train_kind(kind, lacking, {}, from),
                     {"1 error", "--init-from", "another tokenizer"});
      expect_refusal(
          train_kind(kind, lacking, {"run.steps=4"}, {"--resume", "auto"}),
          {"1 error", "data.train", "the checkpoint has ", "it defines the run"});
    }
    expect_refusal(train_kind(kind, foreign, {"run.steps=4"}, {"--resume", "auto"}),
                   {"1 error", "the checkpoint has ", "it defines the run"});
    // Two corpora of one deck.
    expect_refusal(
        train_kind(kind, its, {"data.validation={book: " + foreign.string() + "}"}, from),
        {"1 error", "was not made with the tokenizer of '" + its.string()});
  }
}

}  // namespace
}  // namespace trireme::test
