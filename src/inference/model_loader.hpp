// inference/model_loader.hpp — a trained model from a checkpoint, ready to be used: its
// dimensions, weights, layers and tokenizer.
#ifndef TRIREME_INFERENCE_MODEL_LOADER_HPP_
#define TRIREME_INFERENCE_MODEL_LOADER_HPP_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "ckpt/reader.hpp"
#include "ckpt/training_state.hpp"
#include "comm/process_groups.hpp"
#include "config/deck.hpp"
#include "data/tokenizer.hpp"
#include "io/files.hpp"
#include "model/blueprint.hpp"
#include "step/replica.hpp"

namespace trireme::inference {

// The deck of the run that wrote a checkpoint, the vocabulary as a number. InputError
// where it cannot be used.
config::Deck deck_of(const ckpt::CheckpointReader& reader);

// A deck for who only uses a model, to be parsed with overrides: the model, what its
// samples are, and the type that it computes in. `use` stands where runs name
// directories.
config::Deck deck_of_use(const config::Deck& trained, const std::string& use);

// Whether who only uses a model may set this key of `precision`.
bool is_precision_of_use(std::string_view key);
// Whether --set says how to multiply.
bool names_products(const std::vector<std::string>& overrides);

struct LoadedModel {
  io::Path path;                 // of the step directory
  ckpt::TrainingState training;  // step, seeds ...
  config::Deck deck;             // of the run that wrote it
  std::unique_ptr<step::Replica> replica;
  // No tokenizer where the checkpoint has none (a converted model without its tokenizer's
  // files).
  std::optional<data::Tokenizer> tokenizer;
  // What the checkpoint says, or else the tokenizer's.
  std::optional<data::TokenId> end_of_document;
  // Of a model that makes texts from others: what stands before the first word of one.
  std::optional<data::TokenId> first_word = {};

  // Tokens that the model can produce and the tokenizer can spell: a vocabulary padded to
  // a round number has more rows than tokens.
  index_t usable_vocabulary() const;
  // Of who reads texts. InputError where there is none.
  const data::Tokenizer& tokenizer_of_texts() const;
  // InputError where a text's token has no row in the model's table of words.
  void require_known(data::TokenId id) const;
};

// `path`: a run directory, its `checkpoints`, one step_* directory or `latest`; of
// several the newest that is complete (a warning names newer ones that are not). Weights
// of any floating-point type are converted to that of training, and multiplied as in
// training, or as `overrides` say: KEY=VALUE, is_precision_of_use(). InputError: no such
// checkpoint, damage, weights of another shape than the deck in it says, other keys, a
// kind of model that has no such use.
LoadedModel load_model(const comm::ProcessGroups& groups, const io::Path& path, Log& log,
                       const std::vector<std::string>& overrides = {},
                       model::Use use = model::Use::text);

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_MODEL_LOADER_HPP_
