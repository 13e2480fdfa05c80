// perf/micro/tokenize.cpp — what lies between text and a micro-batch, by one core.
//
// Byte-pair encoding with GPT-2's vocabulary, and WordPiece with one made of it, cased
// and uncased, in MB of text per second. Their bound is not memory (text is read once,
// four bytes per token are written: some hundred times less than the triad moves) but
// work per piece: the pattern, or the table of characters; one look-up in the cache of
// pieces; and the merges, or the trie, where it misses. English-like text repeats its
// words and shows the first two; mixed text, of random words and characters, shows the
// third.
// Batches move at least 2 bytes in and 16 out per token: `of_triad` is the share. A
// sample of T5, or of BERT with 512 positions, is to take 200 microseconds at most, of
// BERT with 128 positions 50: a small part of a step's time for it.
#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/utf8.hpp"
#include "bounds.hpp"
#include "comm/self_communicator.hpp"
#include "config/enums.hpp"
#include "data/batch_loader.hpp"
#include "data/corpus_writer.hpp"
#include "data/masked_vocabulary.hpp"
#include "data/sample_maker.hpp"

namespace trireme::perf {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kTextBytes = std::size_t{16} << 20;

// Beside the executable, or where TRIREME_GPT2_DIR says; empty: nowhere.
fs::path gpt2_directory() {
  if (const char* named = std::getenv("TRIREME_GPT2_DIR")) return named;
  const fs::path self = fs::read_symlink("/proc/self/exe");
  const fs::path place = self.parent_path().parent_path() / "share/trireme/gpt2";
  return fs::exists(place / "vocab.bpe") ? place : fs::path();
}

std::string random_word(std::mt19937_64& draw) {
  static constexpr std::string_view kLetters =
      "eeeetttaaaoooiinnsshhrrddlucmfwypvbgkjqxz";
  std::string word;
  for (std::uint64_t n = 1 + draw() % 9; n > 0; --n)
    word += kLetters[draw() % kLetters.size()];
  return word;
}

// GPT-2's own whole words by Zipf's law (rank k as often as 1/k), the rank that of their
// merge; one in sixteen with a random ending, mostly never seen before, so that there are
// some 4 bytes per token as in English.
std::string english_like_text(const data::Tokenizer& tokenizer) {
  std::vector<std::string> words;
  for (data::TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string_view token = tokenizer.bytes_of(id);
    if (token.size() > 1 && token[0] == ' ' && std::isalpha(token[1]) != 0) {
      words.emplace_back(token);
    }
  }
  std::mt19937_64 draw(1);
  std::uniform_real_distribution<double> uniform;
  const double most = std::log(static_cast<double>(words.size()));
  std::string text;
  while (text.size() < kTextBytes) {
    // The logarithm of a Zipf-distributed rank is uniform.
    text += words[static_cast<std::size_t>(std::exp(uniform(draw) * most)) - 1];
    const std::uint64_t mark = draw() % 64;
    if (mark < 4) text += random_word(draw);
    text += mark == 63 ? ".\n" : mark > 60 ? "." : mark > 56 ? "," : "";
  }
  return text;
}

// Words never seen before, digits, scripts, emoji, symbols and bytes that are no UTF-8.
std::string mixed_text() {
  std::mt19937_64 draw(2);
  std::string text;
  while (text.size() < kTextBytes) {
    switch (draw() % 8) {
      case 0:
        text += fmt::format("{} ", draw() % 1000000);
        break;
      case 1:
        for (int i = 0; i < 4; ++i) append_utf8(0x370 + draw() % 0x2000, text);
        break;
      case 2:
        append_utf8(0x4E00 + draw() % 0x5000, text);
        append_utf8(0x1F300 + draw() % 0x300, text);
        break;
      case 3:
        for (int i = 0; i < 3; ++i) text += static_cast<char>('!' + draw() % 15);
        break;
      case 4:
        text += draw() % 4 == 0 ? static_cast<char>(0x80 + draw() % 128) : '\n';
        break;
      default:
        text += ' ' + random_word(draw);
    }
  }
  return text;
}

enum class Case { kept, lowered };

// GPT-2's tokens as pieces: those with a space in front begin words, the others go on
// with them. Where case is kept no letter of the texts is taken away; lowered, as of BERT
// uncased, accents are taken away besides.
data::Tokenizer word_piece_of(const data::Tokenizer& tokenizer, Case letters) {
  std::string list = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (data::TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string token(tokenizer.bytes_of(id));
    const bool begins = token.starts_with(' ');
    std::string piece = token.substr(begins ? 1 : 0);
    if (piece.empty() || piece.find_first_of(" \n\r") != std::string::npos ||
        valid_utf8_prefix(piece) != piece.size()) {
      continue;
    }
    if (letters == Case::lowered) {
      for (char& c : piece) c = 'A' <= c && c <= 'Z' ? static_cast<char>(c + 32) : c;
    }
    list += begins ? piece + "\n" : "##" + piece + "\n";
    if (!begins && piece.size() <= 4) list += piece + "\n";
  }
  const char* config = letters == Case::lowered ? R"({"do_lower_case": true})"
                                                : R"({"do_lower_case": false})";
  return data::Tokenizer::from_files(
      {{"vocab.txt", list}, {"tokenizer_config.json", config}});
}

void encode(benchmark::State& state, const data::Tokenizer& tokenizer,
            const std::string& text) {
  std::vector<data::TokenId> ids;
  for (auto _ : state) {
    ids.clear();
    data::Encoder encoder(tokenizer);  // with an empty cache, as of a new corpus
    encoder.encode(text, ids);
    benchmark::DoNotOptimize(ids.data());
  }
  const double done = static_cast<double>(state.iterations());
  state.counters["MB/s"] = benchmark::Counter(
      done * static_cast<double>(text.size()) / 1e6, benchmark::Counter::kIsRate);
  state.counters["bytes_per_token"] =
      static_cast<double>(text.size()) / static_cast<double>(ids.size());
}

// Null, and the benchmark skipped, where GPT-2's files are not.
const data::Tokenizer* gpt2(benchmark::State& state) {
  const fs::path directory = gpt2_directory();
  if (directory.empty()) {
    state.SkipWithError("no GPT-2 vocabulary: tools/bootstrap, or set TRIREME_GPT2_DIR");
    return nullptr;
  }
  static const data::Tokenizer tokenizer = data::Tokenizer::load({directory});
  return &tokenizer;
}

void encode_english_like(benchmark::State& state) {
  if (const data::Tokenizer* tokenizer = gpt2(state)) {
    encode(state, *tokenizer, english_like_text(*tokenizer));
  }
}
BENCHMARK(encode_english_like)->Unit(benchmark::kMillisecond);

void encode_mixed(benchmark::State& state) {
  if (const data::Tokenizer* tokenizer = gpt2(state)) {
    encode(state, *tokenizer, mixed_text());
  }
}
BENCHMARK(encode_mixed)->Unit(benchmark::kMillisecond);

void encode_word_piece(benchmark::State& state, Case letters, bool is_mixed) {
  if (const data::Tokenizer* tokenizer = gpt2(state)) {
    encode(state, word_piece_of(*tokenizer, letters),
           is_mixed ? mixed_text() : english_like_text(*tokenizer));
  }
}
BENCHMARK_CAPTURE(encode_word_piece, cased_english_like, Case::kept, false)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_word_piece, cased_mixed, Case::kept, true)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_word_piece, uncased_english_like, Case::lowered, false)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_word_piece, uncased_mixed, Case::lowered, true)
    ->Unit(benchmark::kMillisecond);

// A directory that is gone afterwards.
struct Scratch {
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "trireme-micro-XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

std::shared_ptr<const data::Corpus> english_corpus(const data::Tokenizer& tokenizer,
                                                   const Scratch& scratch) {
  const fs::path words = scratch.path / "words.txt", file = scratch.path / "corpus.h5";
  std::ofstream(words) << english_like_text(tokenizer);
  const auto self = comm::make_self_communicator("perf");
  data::write_corpus(tokenizer,
                     data::DocumentSource({words}, {.cut_inside_documents = true}), file,
                     *self, {});
  return std::make_shared<const data::Corpus>(file);
}

// Micro-batches of 4 samples of 1024 tokens in random order, as fast as the loader's one
// thread makes them.
void batch_loader(benchmark::State& state) {
  const data::Tokenizer* tokenizer = gpt2(state);
  if (tokenizer == nullptr) return;
  constexpr index_t kSequence = 1024, kColumns = 4;
  const Scratch scratch;
  const auto corpus = english_corpus(*tokenizer, scratch);
  const data::Dataset dataset({{corpus, {0, corpus->token_count()}, 1.0}},
                              data::sample_rules(data::NextTokenRules{kSequence}, 1),
                              data::Order::shuffled, "train");
  data::BatchLoader loader(
      dataset,
      [](index_t n) {
        return data::ColumnRange{n * kColumns, kColumns};
      },
      {.spec = {.streams = {{"text", kSequence}},
                .fields = {{.name = "tokens"},
                           {.name = "positions", .holds = Holds::places},
                           {.name = "labels"},
                           {.name = "loss_mask", .holds = Holds::weights}}},
       .fields = {0, 1, 2, 3},
       .max_columns = kColumns});
  const double tokens = kSequence * kColumns;
  run_memory_bound(state, 18.0 * tokens, [&](const Exec&) {
    benchmark::DoNotOptimize(loader.next().view().fields[0]);
  });
  state.counters["tokens/s"] = benchmark::Counter(
      tokens * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(batch_loader)->UseRealTime();

// T5's samples of 512 and 114 positions, one at a time, as a loader's thread makes them.
void span_samples(benchmark::State& state) {
  const data::Tokenizer* tokenizer = gpt2(state);
  if (tokenizer == nullptr) return;
  const Scratch scratch;
  const auto corpus = english_corpus(*tokenizer, scratch);
  const data::SpanRules rules{
      .source = 512, .target = 114, .first_sentinel = 50000, .sentinels = 100};
  const data::Dataset dataset({{corpus, {0, corpus->token_count()}, 1.0}},
                              data::sample_rules(rules, 1), data::Order::shuffled,
                              "train");
  const auto maker = data::make_sample_maker(dataset);
  data::Batch batch(
      {.streams = {{"source", rules.source}, {"target", rules.target}},
       .fields = {{.name = "source"},
                  {.name = "source_lengths", .per = Per::sample, .holds = Holds::lengths},
                  {.name = "target", .stream = 1},
                  {.name = "target_lengths",
                   .per = Per::sample,
                   .stream = 1,
                   .holds = Holds::lengths},
                  {.name = "labels", .stream = 1},
                  {.name = "loss_mask", .stream = 1, .holds = Holds::weights}}},
      1);
  index_t position = 0;
  for (auto _ : state) {
    batch.fill(*maker, position++, 1);
    benchmark::DoNotOptimize(batch.view().fields[0]);
  }
}
BENCHMARK(span_samples)->Unit(benchmark::kMicrosecond);

// Documents of some 40 sentences of 25 words.
std::shared_ptr<const data::Corpus> corpus_of_sentences(const data::Tokenizer& tokenizer,
                                                        const data::Tokenizer& gpt2,
                                                        const Scratch& scratch) {
  const fs::path words = scratch.path / "words.txt", file = scratch.path / "corpus.h5";
  std::string text;
  int count = 0;
  for (const char c : english_like_text(gpt2)) {
    if (c == ' ' && ++count % 25 == 0) text += count % 1000 == 0 ? ".\n\n" : ". A";
    text += c;
  }
  std::ofstream(words) << text;
  const auto self = comm::make_self_communicator("perf");
  data::CorpusOptions options;
  options.sentences = data::Language::english;
  data::write_corpus(
      tokenizer,
      data::DocumentSource({words}, {.documents = data::Documents::blank_line}), file,
      *self, options);
  return std::make_shared<const data::Corpus>(file);
}

// BERT's samples of 128 and 512 positions, likewise.
void masked_samples(benchmark::State& state) {
  const data::Tokenizer* gpt2_tokenizer = gpt2(state);
  if (gpt2_tokenizer == nullptr) return;
  const data::Tokenizer tokenizer = word_piece_of(*gpt2_tokenizer, Case::kept);
  const Scratch scratch;
  const auto corpus = corpus_of_sentences(tokenizer, *gpt2_tokenizer, scratch);
  const index_t sequence = state.range(0), predictions = sequence * 15 / 100 + 1;
  const data::MaskedRules rules{
      .sequence = sequence,
      .predictions = predictions,
      .short_seq_prob = 0.1,
      .max_ngrams = 3,
      .pairs = config::Pairs::order,
      .vocabulary =
          std::make_shared<const data::MaskedVocabulary>(data::masked_vocabulary(
              tokenizer, tokenizer.vocabulary_size(), tokenizer.end_of_document()))};
  const data::Dataset dataset({{corpus, {0, corpus->token_count()}, 1.0}},
                              data::sample_rules(rules, 1), data::Order::shuffled,
                              "train");
  const auto maker = data::make_sample_maker(dataset);
  data::Batch batch(
      {.streams = {{"text", sequence}, {"predictions", predictions, false}},
       .fields = {{.name = "tokens"},
                  {.name = "token_types", .holds = Holds::classes, .below = 2},
                  {.name = "lengths", .per = Per::sample, .holds = Holds::lengths},
                  {.name = "masked_positions", .stream = 1, .holds = Holds::rows},
                  {.name = "masked_labels", .stream = 1},
                  {.name = "masked_weights", .stream = 1, .holds = Holds::weights},
                  {.name = "pair_labels", .per = Per::sample, .holds = Holds::classes},
                  {.name = "pair_weights", .per = Per::sample, .holds = Holds::weights}}},
      1);
  index_t position = 0;
  for (auto _ : state) {
    batch.fill(*maker, position++, 1);
    benchmark::DoNotOptimize(batch.view().fields[0]);
  }
}
BENCHMARK(masked_samples)->Arg(128)->Arg(512)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace trireme::perf
