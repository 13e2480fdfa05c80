// apps/tokenize.cpp — `trireme tokenize`: text files and JSON lines to a corpus, with a
// given tokenizer or with one trained on the text itself.
//
// The command is three steps: find or train the tokenizer, write the corpus, say what
// became of it. The inputs are opened once for each of the first two, because the
// tokenizer decides whether documents may be cut into pieces that ranks share
// (cut_inside_documents). Outputs are checked before the first byte of text is read, as
// the work may take hours.
#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/command_line.hpp"
#include "apps/progress_line.hpp"
#include "apps/subcommands.hpp"
#include "apps/tokenize_report.hpp"
#include "apps/tokenizer_option.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "comm/environment.hpp"
#include "comm/on_ranks.hpp"
#include "data/corpus_writer.hpp"
#include "data/sentence_piece_files.hpp"
#include "data/sentences.hpp"
#include "data/vocabulary_trainer.hpp"
#include "io/files.hpp"
#include "io/json.hpp"

namespace trireme::apps {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct TokenizeOptions {
  std::vector<std::string> tokenizer;
  std::int64_t train_bpe = 0, train_unigram = 0, train_wordpiece = 0;
  std::int64_t extra_ids = -1;  // not given
  std::string out;
  std::optional<std::string> documents, json_key;  // where given
  std::string json;
  std::string sentences;  // a language's code; empty: they are not kept
  bool cased = false, plain_text = false, overwrite = false;
  std::vector<std::string> inputs;

  // Of a vocabulary to be trained; 0: it is given.
  std::int64_t trained_size() const {
    return train_bpe + train_unigram + train_wordpiece;
  }
};

// `--tokenizer vocab.json merges.txt INPUT` : the second file looks like an input.
void take_tokenizer_file(TokenizeOptions& options) {
  if (options.tokenizer.size() != 1 || options.inputs.empty()) return;
  const fs::path file = fs::path(options.tokenizer[0]).filename();
  const fs::path next = fs::path(options.inputs[0]).filename();
  if (((file == "vocab.json" || file == "encoder.json") &&
       (next == "merges.txt" || next == "vocab.bpe")) ||
      ((next == "vocab.json" || next == "encoder.json") &&
       (file == "merges.txt" || file == "vocab.bpe"))) {
    options.tokenizer.push_back(options.inputs[0]);
    options.inputs.erase(options.inputs.begin());
  }
}

// How far rank 0 is, in bytes.
auto bytes_done(std::string what, bool is_shown) {
  return [what = std::move(what), line = ProgressLine(is_shown)](
             std::uint64_t done, std::uint64_t total) mutable {
    if (!line.is_due()) return;
    const double rate = static_cast<double>(done) / line.seconds();
    line.show(fmt::format("{}: {:3.0f} %  {:.1f} MB/s  {:.0f} s left", what,
                          100.0 * static_cast<double>(done) / static_cast<double>(total),
                          rate / 1e6, static_cast<double>(total - done) / rate));
  };
}

data::Documents documents_of(const std::string& name) {
  if (name == "line") return data::Documents::line;
  return name == "blank-line" ? data::Documents::blank_line : data::Documents::file;
}

// A corpus is replaced only where that is asked for, never where the new one is made from
// it, and nothing else is.
void check_outputs(const TokenizeOptions& options, Log& log) {
  std::vector<std::string> read = options.inputs;
  read.insert(read.end(), options.tokenizer.begin(), options.tokenizer.end());
  require_no_input(options.out, read);
  remove_leftovers(options.out, log);
  require_product(options.out,
                  {.one = "corpus",
                   .many = "corpora",
                   .datasets = {"tokens", "documents"},
                   .attributes = {"format_version", "token_count"},
                   .caution = " (a run that is reading it keeps the old one until it "
                              "ends; it cannot be resumed with the new one)"},
                  options.overwrite ? Replace::yes : Replace::no);
  require_apart({{"--out", options.out}, {"--json", options.json}});
  require_output(options.json, read);
}

// A compressed file is one rank's, and so is a file that is a document where the
// tokenizer cuts none. Returns how many ranks are idle; where it is as many as are
// `known` to be, nothing is said.
int warn_of_idle_ranks(const data::DocumentSource& source, int ranks, int known,
                       Log& log) {
  const std::size_t packed = source.compressed_inputs(), whole = source.whole_documents();
  const int idle = packed + whole > 0 ? source.idle_ranks(ranks) : 0;
  if (idle == known) return idle;
  std::string files;
  if (packed > 0) files = format_plural(packed, "compressed file");
  if (packed > 0 && whole > 0) files += " and ";
  if (whole > 0) {
    files += format_plural(whole, "file that is one document",
                           "files that are one document each");
  }
  log.warning("{}, {}: {} {} nothing to do{}; split {} into more files{}", files,
              format_plural(ranks, "rank"), idle, idle == 1 ? "has" : "have",
              whole > 0 ? " (this tokenizer cuts no document)" : "",
              packed + whole == 1 ? "it" : "them",
              whole > 0 ? ", or say by --documents what a document is" : "");
  return idle;
}

// T5's number, where nothing else is asked for.
constexpr std::int64_t kTrainedSentinels = 100;

data::TrainedTokenizer train_by_kind(const TokenizeOptions& options,
                                     const data::DocumentSource& source,
                                     comm::Communicator& world) {
  const auto size = static_cast<data::TokenId>(options.trained_size());
  const auto progress = bytes_done("counting words", world.rank() == 0);
  if (options.train_unigram > 0) {
    return data::train_unigram(
        source, size, options.extra_ids < 0 ? kTrainedSentinels : options.extra_ids,
        world, progress);
  }
  if (options.train_wordpiece > 0) {
    return data::train_word_piece(source, size,
                                  options.cased ? data::BasicTokenizerOptions::cased()
                                                : data::BasicTokenizerOptions::uncased(),
                                  world, progress);
  }
  return data::train_byte_level_bpe(source, size, world, progress);
}

data::Tokenizer train_tokenizer(const TokenizeOptions& options,
                                const data::DocumentSource& source,
                                comm::Communicator& world, Log& log, Json& result) {
  const auto start = Clock::now();
  data::TrainedTokenizer trained = train_by_kind(options, source, world);
  log.info("trained a {} of {} on {} in {:.2f} s",
           options.train_unigram > 0     ? "unigram model"
           : options.train_wordpiece > 0 ? "WordPiece"
                                         : "BPE",
           format_plural(trained.tokenizer.vocabulary_size(), "token"),
           format_plural(trained.words, "different word"),
           std::chrono::duration<double>(Clock::now() - start).count());
  if (trained.ran_out_of_pairs) {
    log.warning("the text has no more {}: the vocabulary is of {}, not of {}",
                options.train_unigram > 0 ? "pieces" : "pairs to merge",
                format_plural(trained.tokenizer.vocabulary_size(), "token"),
                options.trained_size());
  }
  result["ran_out_of_pairs"] = trained.ran_out_of_pairs;
  return std::move(trained.tokenizer);
}

void check_vocabulary_options(const TokenizeOptions& options) {
  const int trained = static_cast<int>(options.train_bpe > 0) +
                      static_cast<int>(options.train_unigram > 0) +
                      static_cast<int>(options.train_wordpiece > 0);
  TRIREME_REQUIRE_INPUT(
      trained + static_cast<int>(!options.tokenizer.empty()) == 1,
      "give one of --tokenizer (gpt2, or files of one), --train-bpe SIZE, "
      "--train-unigram SIZE and --train-wordpiece SIZE");
  TRIREME_REQUIRE_INPUT(!options.cased || options.train_wordpiece > 0,
                        "--cased is for --train-wordpiece: other vocabularies keep case");
  TRIREME_REQUIRE_INPUT(
      options.extra_ids < 0 || options.train_bpe + options.train_wordpiece == 0,
      "--extra-ids is for SentencePiece models and --train-unigram");
}

// What says how to read inputs of one kind needs one of that kind.
void check_input_options(const TokenizeOptions& options,
                         const data::DocumentSource& source) {
  TRIREME_REQUIRE_INPUT(
      !options.documents || source.json_inputs() < source.inputs(),
      "--documents is for plain text, and the input is JSON lines alone, where each line "
      "is a document: leave it out");
  TRIREME_REQUIRE_INPUT(
      !options.json_key || source.json_inputs() > 0,
      "--json-key is for JSON lines (.jsonl, .ndjson, .json), and no input has such a "
      "name: leave it out, or rename the input");
}

data::Tokenizer given_tokenizer(const TokenizeOptions& options) {
  const data::Tokenizer tokenizer = load_tokenizer(options.tokenizer);
  return options.extra_ids < 0 ? tokenizer
                               : data::with_sentinels(tokenizer, options.extra_ids);
}

int run_tokenize(TokenizeOptions options, comm::Environment& environment) {
  comm::Communicator& world = *environment.world();
  const bool speaks = world.rank() == 0;
  Log log(speaks);

  // 1. Input, and the tokenizer: given, or trained on it.
  take_tokenizer_file(options);
  comm::on_first_rank(world, [&] { check_outputs(options, log); });
  check_vocabulary_options(options);
  data::CorpusOptions corpus_options;
  if (!options.sentences.empty()) {
    corpus_options.sentences = data::language_of(options.sentences);
  }
  const std::vector<fs::path> inputs(options.inputs.begin(), options.inputs.end());
  data::SourceOptions source_options{documents_of(options.documents.value_or("file")),
                                     options.json_key.value_or("text"), true};
  const data::DocumentSource any_cut(inputs, source_options);
  check_input_options(options, any_cut);
  const bool trains = options.trained_size() > 0;
  const int idle = trains ? warn_of_idle_ranks(any_cut, world.size(), 0, log) : 0;
  Json result;
  result["corpus"] = options.out;
  const data::Tokenizer tokenizer =
      trains ? train_tokenizer(options, any_cut, world, log, result)
             : given_tokenizer(options);

  // 2. The corpus.
  source_options.cut_inside_documents = tokenizer.can_cut_before_space();
  source_options.cut_before_blank_lines_only = corpus_options.sentences.has_value();
  const data::DocumentSource source(inputs, source_options);
  warn_of_idle_ranks(source, world.size(), idle, log);
  if (options.plain_text) corpus_options.added_tokens = data::AddedTokens::as_text;
  corpus_options.progress = bytes_done("tokenizing", speaks);
  const data::CorpusSummary summary =
      data::write_corpus(tokenizer, source, options.out, world, corpus_options);

  // 3. What became of it.
  if (!speaks) return 0;
  const TokenizeReport report{options.out, options.sentences, tokenizer, summary,
                              world.size()};
  report.tell(log);
  result.update(report.json());
  if (!options.json.empty())
    io::write_file(options.json, io::json_text(result, 2) + "\n");
  return 0;
}

// Where the tokenizer comes from.
void add_vocabulary_options(CLI::App& command, TokenizeOptions& options) {
  command
      .add_option(
          "--tokenizer", options.tokenizer,
          "gpt2; tokenizer.json; vocab.json and merges.txt (name the option twice); "
          "BERT's vocab.txt; a model of SentencePiece (T5's spiece.model); a directory "
          "with them; or a corpus, a checkpoint or a run, for the one it was made with")
      ->allow_extra_args(false)
      ->delimiter(',');
  command
      .add_option("--train-bpe", options.train_bpe,
                  "train a byte-level BPE on the text; SIZE of the whole vocabulary, 256 "
                  "bytes and end of document included")
      ->type_name("SIZE")
      ->check(CLI::Range(257, 1 << 26));
  command
      .add_option("--train-unigram", options.train_unigram,
                  "train a unigram model as T5's on the text; SIZE of the whole "
                  "vocabulary, bytes and sentinels included")
      ->type_name("SIZE")
      ->check(CLI::Range(260, 1 << 26));
  command
      .add_option("--train-wordpiece", options.train_wordpiece,
                  "train a WordPiece vocabulary as BERT's on the text, uncased; SIZE of "
                  "all of it")
      ->type_name("SIZE")
      ->check(CLI::Range(6, 1 << 26));
  command.add_flag("--cased", options.cased,
                   "the WordPiece vocabulary keeps case and accents");
  command
      .add_option("--extra-ids", options.extra_ids,
                  "sentinels of T5 (<extra_id_0> and on) behind the pieces of a "
                  "SentencePiece model; --train-unigram makes 100")
      ->type_name("N")
      ->check(CLI::Range(0, 100000));
}

}  // namespace

void add_tokenize(CommandLine& line) {
  const auto options = std::make_shared<TokenizeOptions>();
  CLI::App& command = line.add_command(
      "tokenize",
      "Make a corpus from text (.txt: plain; .jsonl: JSON lines; either as .gz or "
      ".zst). Run under mpiexec, all ranks share the work; the result is the same.",
      [options](comm::Environment& environment) {
        return run_tokenize(*options, environment);
      });
  add_vocabulary_options(command, *options);
  command.add_option("--out", options->out, "the corpus to write (.h5)")->required();
  command.add_flag("--overwrite", options->overwrite,
                   "replace the corpus where there is one of that name");
  command
      .add_option(
          "--documents", options->documents,
          "what is one document of a text file: the file, what lies between blank "
          "lines, or a line")
      ->check(CLI::IsMember({"file", "blank-line", "line"}))
      ->default_str("file");
  command
      .add_option(
          "--sentences", options->sentences,
          "keep where sentences begin, by the rules of this language (en, de, ...; "
          "none: only blank lines end one); BERT's pairs need it")
      ->type_name("LANGUAGE");
  command.add_option("--json-key", options->json_key, "key of the text in JSON lines")
      ->default_str("text");
  command.add_flag(
      "--plain-text", options->plain_text,
      "added tokens in the text, such as <|endoftext|>, are text like other");
  command.add_option("--json", options->json, "write the result to this file too");
  command.add_option("INPUT", options->inputs, "text files")->required();
}

}  // namespace trireme::apps
