// data/bpe_trainer.cpp — see bpe_trainer.hpp.
//
// Two oddities of the algorithm matter for equal results. Different merges may give the
// same string ("ab"+"c", "a"+"bc"): they share one id. And the count of a pair is not set
// to zero when it is merged: if that string is formed again later, the pair may come up
// once more and is then listed twice; only its last place counts.
#include "data/bpe_trainer.hpp"

#include <cstring>
#include <queue>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/utf8.hpp"
#include "data/byte_alphabet.hpp"
#include "data/byte_level_bpe_files.hpp"

namespace trireme::data {
namespace {

constexpr const char* kEndOfDocument = "<|endoftext|>";

std::uint64_t key_of(Pair pair) {
  return std::uint64_t{pair.left} << 32 | pair.right;
}

struct PairHash {
  std::size_t operator()(std::uint64_t key) const {
    key *= 0x9E3779B97F4A7C15ull;
    return static_cast<std::size_t>(key ^ (key >> 32));
  }
};

struct Word {
  std::vector<TokenId> symbols;
  std::int64_t count;
};

// A pair in the queue, with the words that had it when it was put there.
struct Candidate {
  std::int64_t count;
  std::uint64_t pair;
  std::vector<std::uint32_t> words;  // ascending, each once

  // Top of the queue: largest count, then smallest pair.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Training {
 public:
  Training(const WordCounter::Counts& counts, TokenId size);
  TrainedBpe run(const std::function<void(TokenId)>& progress);

 private:
  void add_token(const std::string& bytes);
  void count_pairs();
  void enqueue_changed();
  void change(Pair pair, std::int64_t by, std::uint32_t word);
  void merge_in(std::uint32_t index, Pair pair, TokenId result);

  TokenId size_;
  TrainedBpe trained_;
  std::unordered_map<std::string, TokenId> id_of_;
  std::vector<Word> words_;
  std::unordered_map<std::uint64_t, std::int64_t, PairHash> pair_count_;
  // Pairs formed since the queue was last filled, and where.
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>, PairHash> formed_;
  std::priority_queue<Candidate> queue_;
};

Training::Training(const WordCounter::Counts& counts, TokenId size) : size_(size) {
  TRIREME_REQUIRE_INPUT(size >= kSmallestTrainedVocabulary,
                        "a trained vocabulary of {} is too small: 256 bytes and the end "
                        "of a document make {} at least",
                        format_plural(size, "token"), kSmallestTrainedVocabulary);
  trained_.tokens.reserve(size);
  add_token(kEndOfDocument);
  std::array<TokenId, 256> id_of_byte{};
  for (const std::uint8_t byte : ByteAlphabet().bytes_by_character()) {
    id_of_byte[byte] = static_cast<TokenId>(trained_.tokens.size());
    add_token(std::string(1, static_cast<char>(byte)));
  }
  words_.reserve(counts.size());
  for (const auto& [text, count] : counts) {
    Word word{{}, static_cast<std::int64_t>(count)};
    word.symbols.reserve(text.size());
    for (const char byte : text) {
      word.symbols.push_back(id_of_byte[static_cast<std::uint8_t>(byte)]);
    }
    words_.push_back(std::move(word));
  }
}

void Training::add_token(const std::string& bytes) {
  id_of_.emplace(bytes, static_cast<TokenId>(trained_.tokens.size()));
  trained_.tokens.push_back(bytes);
}

void Training::change(Pair pair, std::int64_t by, std::uint32_t word) {
  pair_count_[key_of(pair)] += by * words_[word].count;
  if (by < 0) return;
  std::vector<std::uint32_t>& places = formed_[key_of(pair)];
  if (places.empty() || places.back() != word) places.push_back(word);
}

void Training::count_pairs() {
  for (std::uint32_t index = 0; index < words_.size(); ++index) {
    const std::vector<TokenId>& symbols = words_[index].symbols;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      change({symbols[i], symbols[i + 1]}, 1, index);
    }
  }
}

void Training::enqueue_changed() {
  for (auto& [pair, places] : formed_) {
    const std::int64_t count = pair_count_[pair];
    if (count > 0) queue_.push({count, pair, std::move(places)});
  }
  formed_.clear();
}

// Replaces each `pair` in the word by `result`, left to right, and books what that does
// to the neighbouring pairs.
void Training::merge_in(std::uint32_t index, Pair pair, TokenId result) {
  std::vector<TokenId>& symbols = words_[index].symbols;
  std::size_t out = 0;
  for (std::size_t i = 0; i < symbols.size(); ++i, ++out) {
    if (symbols[i] != pair.left || i + 1 >= symbols.size() ||
        symbols[i + 1] != pair.right) {
      symbols[out] = symbols[i];
      continue;
    }
    if (out > 0) {
      change({symbols[out - 1], pair.left}, -1, index);
      change({symbols[out - 1], result}, 1, index);
    }
    if (i + 2 < symbols.size()) {
      change({pair.right, symbols[i + 2]}, -1, index);
      change({result, symbols[i + 2]}, 1, index);
    }
    symbols[out] = result;
    ++i;
  }
  symbols.resize(out);
}

TrainedBpe Training::run(const std::function<void(TokenId)>& progress) {
  count_pairs();
  enqueue_changed();
  while (trained_.tokens.size() < size_) {
    if (queue_.empty()) {
      trained_.ran_out_of_pairs = true;
      break;
    }
    Candidate top = std::move(const_cast<Candidate&>(queue_.top()));
    queue_.pop();
    const std::int64_t count = pair_count_[top.pair];
    if (top.count != count) {  // stale: back in line with what it is worth now
      top.count = count;
      if (count > 0) queue_.push(std::move(top));
      continue;
    }
    const Pair pair = {static_cast<TokenId>(top.pair >> 32),
                       static_cast<TokenId>(top.pair)};
    const std::string bytes = trained_.tokens[pair.left] + trained_.tokens[pair.right];
    if (!id_of_.contains(bytes)) add_token(bytes);
    trained_.merges.push_back(pair);
    for (const std::uint32_t word : top.words) merge_in(word, pair, id_of_.at(bytes));
    enqueue_changed();
    if (progress && trained_.merges.size() % 256 == 0) {
      progress(static_cast<TokenId>(trained_.tokens.size()));
    }
  }
  // A pair listed twice stands where it came last.
  std::unordered_map<std::uint64_t, std::size_t, PairHash> last;
  for (std::size_t i = 0; i < trained_.merges.size(); ++i) {
    last[key_of(trained_.merges[i])] = i;
  }
  std::vector<Pair> merges;
  for (std::size_t i = 0; i < trained_.merges.size(); ++i) {
    if (last[key_of(trained_.merges[i])] == i) merges.push_back(trained_.merges[i]);
  }
  trained_.merges = std::move(merges);
  return std::move(trained_);
}

}  // namespace

WordCounter::WordCounter()
    : pre_tokenizer_(PreTokenizer::gpt2()), scanner_(pre_tokenizer_) {}

void WordCounter::add(std::string_view text) {
  scanner_.start(valid_utf8(text, repaired_, replaced_));
  std::string_view word;
  while (scanner_.next(word)) add_count(word, 1);
}

void WordCounter::add_count(std::string_view word, std::uint64_t count) {
  const auto found = counts_.find(word);
  if (found != counts_.end()) {
    found->second += count;
  } else {
    counts_.emplace(word, count);
  }
}

std::string WordCounter::packed() const {
  std::string bytes;
  for (const auto& [word, count] : counts_) {
    const std::uint64_t header[2] = {count, word.size()};
    bytes.append(reinterpret_cast<const char*>(header), sizeof(header));
    bytes.append(word);
  }
  return bytes;
}

void WordCounter::add_packed(std::string_view packed) {
  while (!packed.empty()) {
    std::uint64_t header[2];
    TRIREME_REQUIRE(packed.size() >= sizeof(header), "packed word counts end too early");
    std::memcpy(header, packed.data(), sizeof(header));
    packed.remove_prefix(sizeof(header));
    TRIREME_REQUIRE(packed.size() >= header[1], "packed word counts end too early");
    add_count(packed.substr(0, header[1]), header[0]);
    packed.remove_prefix(header[1]);
  }
}

std::string TrainedBpe::json() const {
  return tokenizer_json(tokens, merges, {{kEndOfDocument, 0}});
}

TrainedBpe train_bpe(const WordCounter::Counts& counts, TokenId size,
                     const std::function<void(TokenId)>& progress) {
  return Training(counts, size).run(progress);
}

}  // namespace trireme::data
