// perf/micro/sentence_piece.cpp — SentencePiece models as tokenizers, beside the library
// called directly, by one core.
//
// Both encode the same documents in turn, each first as often as the other, as the second
// finds all that it needs of a model in the caches; and the processor's time is taken,
// not the clock's; `of_library` is their ratio of speeds. What a tokenizer does besides
// is to look for invalid UTF-8 and added tokens, and to copy ids: the aim is 0.95.
#include <sentencepiece_processor.h>

#include <time.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.hpp"
#include "base/words.hpp"
#include "bounds.hpp"
#include "data/sentence_piece_files.hpp"
#include "data/sentence_piece_library.hpp"

namespace trireme::perf {
namespace {

constexpr std::size_t kDocuments = 501, kDocumentBytes = 4000;

// Words by Zipf's law, and of a text of many scripts every second one of Chinese.
std::vector<std::string> documents_of_words(bool is_mixed) {
  std::mt19937_64 draw(3);
  std::vector<std::string> words(20000);
  for (std::string& word : words) {
    for (std::uint64_t n = 2 + draw() % 8; n > 0; --n)
      word += "etaoinshrdlu"[draw() % 12];
  }
  std::uniform_real_distribution<double> uniform;
  const double most = std::log(static_cast<double>(words.size()));
  std::vector<std::string> documents(kDocuments);
  for (std::string& document : documents) {
    while (document.size() < kDocumentBytes) {
      document += words[static_cast<std::size_t>(std::exp(uniform(draw) * most)) - 1];
      document += draw() % 10 == 0 ? ".\n" : " ";
      for (std::uint64_t n = is_mixed ? draw() % 8 : 0; n > 0; --n) {
        append_utf8(0x4E00 + draw() % 0x800, document);
      }
    }
  }
  return documents;
}

std::string model_for(const std::vector<std::string>& documents,
                      const std::string& type) {
  std::vector<std::pair<std::string, std::uint64_t>> lines;
  for (const std::string& document : documents) {
    for (const std::string_view line : split(document, "\n")) {
      if (!line.empty()) lines.emplace_back(line, 1);
    }
  }
  return data::train_sentence_piece({{"model_type", type},
                                     {"vocab_size", "8000"},
                                     {"hard_vocab_limit", "false"},
                                     {"num_threads", "2"}},
                                    lines);
}

struct Trained {
  std::vector<std::string> documents;
  std::string model;
};

// A benchmark is begun several times, which a training each would make long.
const Trained& trained(const std::string& type, bool is_mixed) {
  static std::map<std::pair<std::string, bool>, Trained> all;
  const auto [place, is_new] = all.try_emplace({type, is_mixed});
  Trained& made = place->second;
  if (is_new) {
    made.documents = documents_of_words(is_mixed);
    made.model = model_for(made.documents, type);
  }
  return made;
}

double seconds_now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of(auto&& work) {
  const double start = seconds_now();
  work();
  return seconds_now() - start;
}

void encode_sentence_piece(benchmark::State& state, const char* type, bool is_mixed) {
  const auto& [documents, model] = trained(type, is_mixed);
  const data::Tokenizer tokenizer =
      data::tokenizer_from_sentence_piece("trained", model, {});
  sentencepiece::SentencePieceProcessor library;
  if (!library.LoadFromSerializedProto(model).ok()) return;
  data::Encoder encoder(tokenizer);
  std::vector<data::TokenId> ids;
  double ours = 0.0, theirs = 0.0, bytes = 0.0;
  const auto encode = [&](const std::string& document) {
    ours += seconds_of([&] {
      ids.clear();
      encoder.encode(document, ids);
    });
  };
  const auto call_library = [&](const std::string& document) {
    theirs +=
        seconds_of([&] { benchmark::DoNotOptimize(library.EncodeAsIds(document)); });
  };
  bool is_first = false;
  for (auto _ : state) {
    for (const std::string& document : documents) {
      is_first = !is_first;
      if (is_first) encode(document);
      call_library(document);
      if (!is_first) encode(document);
      bytes += static_cast<double>(document.size());
    }
  }
  state.counters["MB/s"] = bytes / 1e6 / ours;
  state.counters["library_MB/s"] = bytes / 1e6 / theirs;
  state.counters["of_library"] = theirs / ours;
}
BENCHMARK_CAPTURE(encode_sentence_piece, unigram, "unigram", false)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_sentence_piece, unigram_mixed, "unigram", true)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_sentence_piece, bpe, "bpe", false)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace trireme::perf
