// data/bpe_trainer.hpp — learns byte-pair merges from word counts: the most frequent pair
// is merged first; of equally frequent ones that with the smaller ids. The result is that
// of Hugging Face's BpeTrainer with min_frequency 0, the 256 bytes as initial alphabet
// and
// "<|endoftext|>" as special token: id 0 is the end of a document, then the bytes in the
// order of their visible characters, then the merges.
#ifndef TRIREME_DATA_BPE_TRAINER_HPP_
#define TRIREME_DATA_BPE_TRAINER_HPP_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/bpe.hpp"
#include "data/pre_tokenizer.hpp"

namespace trireme::data {

// Counts the pieces of GPT-2's pre-tokenizer. Documents are counted one by one: pieces do
// not reach over their ends.
class WordCounter {
 public:
  WordCounter();
  // Invalid UTF-8 is repaired and counted, as in encoding.
  void add(std::string_view text);
  void add_count(std::string_view word, std::uint64_t count);

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  using Counts = std::unordered_map<std::string, std::uint64_t, Hash, std::equal_to<>>;
  const Counts& counts() const { return counts_; }
  std::uint64_t replaced_sequences() const { return replaced_; }

  // The counts as bytes that another process can be sent and can add to its own.
  std::string packed() const;
  void add_packed(std::string_view packed);

 private:
  PreTokenizer pre_tokenizer_;
  PreTokenizer::Scanner scanner_;
  Counts counts_;
  std::string repaired_;
  std::uint64_t replaced_ = 0;
};

struct TrainedBpe {
  std::vector<std::string> tokens;  // bytes by id; of the end of a document its text
  std::vector<Pair> merges;
  bool ran_out_of_pairs = false;  // fewer tokens than asked for

  // The tokenizer.json of it.
  std::string json() const;
};

inline constexpr TokenId kSmallestTrainedVocabulary = 257;  // end of document and bytes

// progress(tokens so far) is called now and then; may be empty. InputError when `size` is
// below kSmallestTrainedVocabulary.
TrainedBpe train_bpe(const WordCounter::Counts& counts, TokenId size,
                     const std::function<void(TokenId)>& progress = {});

}  // namespace trireme::data

#endif  // TRIREME_DATA_BPE_TRAINER_HPP_
