// Checkpoints of a small GPT, and of a small T5, with random weights and a tokenizer,
// made by the library.
#ifndef TRIREME_REGRESSION_CLI_SMALL_CHECKPOINT_HPP_
#define TRIREME_REGRESSION_CLI_SMALL_CHECKPOINT_HPP_

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/params.hpp"
#include "ckpt/save.hpp"
#include "comm/process_groups.hpp"
#include "config/load.hpp"
#include "data/bpe_trainer.hpp"
#include "data/tokenizer.hpp"
#include "step/model_state.hpp"
#include "unit/io/scratch.hpp"
#include "unit/step/random_model.hpp"

namespace trireme::test {

inline constexpr int kVocabulary = 300;
inline constexpr int kContext = 24;

inline data::Tokenizer small_tokenizer() {
  data::WordCounter words;
  for (int i = 0; i < 50; ++i) {
    words.add(
        "in the beginning was the word, and the word was with the end of it all. "
        "und die Tür ist größer als das Schöne: 水と火, 山と川");
  }
  return data::Tokenizer::from_files(
      {{"tokenizer.json", data::train_bpe(words.counts(), kVocabulary).json()}});
}

struct CheckpointOptions {
  bool with_tokenizer = true;
  std::int64_t step = 7;
  unsigned seed = 1;
  std::string vocab = "300";
  bool poisoned = false;  // one weight of layer 1 is no number
  // Of its deck: a rate that earlier versions took may be no right one now.
  double dropout = 0.1;
};

// Publishes a checkpoint of such a model below run / "checkpoints".
inline void make_checkpoint_of(const std::filesystem::path& run, const config::Deck& deck,
                               const std::optional<data::Tokenizer>& tokenizer,
                               const CheckpointOptions& options) {
  step::ModelState<float> state(comm::make_groups_of_one(), deck.model);
  randomize(state, 0.15, options.seed);
  if (options.poisoned) {
    state.params.slice(Slab::weight, state.registry.find("layers/1/mlp/fc1/weight"))(3) =
        NAN;
  }
  ckpt::TrainingState training;
  training.step = options.step;
  training.deck = config::resolved_text(deck);
  if (tokenizer) {
    training.tokenizer = tokenizer->files();
    training.tokenizer_attributes["end_of_document"] =
        std::to_string(tokenizer->end_of_document());
  }
  ckpt::save_checkpoint(Exec(), *comm::make_groups_of_one().world, run / "checkpoints",
                        training, ckpt::parts_of(state.params, ckpt::Content::weights));
}

inline void make_checkpoint(const std::filesystem::path& run,
                            const CheckpointOptions& options = {}) {
  config::Deck deck = config::parse(
      "model: {layers: 2, hidden: 32, heads: 4, sequence: 24, vocab: " + options.vocab +
          "}\ndata: {train: corpus.h5}\n",
      "small");
  deck.model.dropout = deck.model.attention_dropout = options.dropout;
  make_checkpoint_of(
      run, deck, options.with_tokenizer ? std::optional(small_tokenizer()) : std::nullopt,
      options);
}

// T5's, with sentinels behind its words. Of a build with SentencePiece.
inline data::Tokenizer small_t5_tokenizer() {
  const std::string fixtures =
      std::string(std::getenv("TRIREME_SOURCE_DIR")) + "/tests/parity/fixtures/tokenizer";
  return data::Tokenizer::from_files(
      {{"spiece.model", slurp(fixtures + "/unigram.model")},
       {"tokenizer_config.json", R"({"extra_ids": 100})"}});
}
// It reads kContext words, and writes half as many.
inline void make_t5_checkpoint(const std::filesystem::path& run) {
  const data::Tokenizer tokenizer = small_t5_tokenizer();
  const config::Deck deck = config::parse(
      "model: {kind: t5, layers: 1, decoder_layers: 2, hidden: 32, heads: 4, head_size: "
      "12, sequence: 24, decoder_sequence: 12, vocab: " +
          std::to_string(tokenizer.vocabulary_size()) + "}\ndata: {train: corpus.h5}\n",
      "small");
  make_checkpoint_of(run, deck, tokenizer, {});
}

}  // namespace trireme::test

#endif  // TRIREME_REGRESSION_CLI_SMALL_CHECKPOINT_HPP_
