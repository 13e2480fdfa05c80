// ckpt/dialect.hpp — how others keep the models of one kind: their names and layout of
// its tensors, and its config.json. A dialect is data; reading and writing
// (hugging_face.hpp) walk along its list of tensors and know no model.
//
// Worked example, of a dialect that keeps queries, keys and values apart:
//
//   ours    layers/0/attention/qkv/weight (3 h, h)
//   theirs  body.layer.0.{query,key,value}.weight, (h, h) each
//
// A new one is a file in dialects/ and a line in known_dialects().
#ifndef TRIREME_CKPT_DIALECT_HPP_
#define TRIREME_CKPT_DIALECT_HPP_

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/shape.hpp"
#include "config/deck.hpp"
#include "data/tokenizer.hpp"
#include "tensor/param_registry.hpp"

namespace trireme::ckpt {

// What config.json says of the model, in the deck's terms (section `model`), with every
// dimension filled in; lengths that are not there (max_predictions, decoder_sequence) are
// 0, for a new deck's.
struct ForeignConfig : config::ModelConfig {
  // Only where they are inside the vocabulary.
  std::optional<index_t> end_of_text = {};
  std::optional<index_t> padding = {};
  // How many tokens the tokenizer has, where the file says so (data::kTokensKey).
  std::optional<index_t> tokens = {};
};

// One weight of ours and what it is there.
struct ForeignTensor {
  std::string name;  // "layers/0/attention/qkv/weight"
  // The tensor that it is there; or several, which lie in ours one behind the other along
  // the first dimension, equal parts of it.
  std::vector<std::string> theirs;
  Shape shape;                 // ours
  bool is_transposed = false;  // each of theirs against its part of ours, a matrix
  // Other names of the one tensor that it is there: files may hold it under one of them,
  // or under several, and then equal. None of them is written.
  std::vector<std::string> aliases = {};
  // Of a weight that files may lack (a head that its model was saved without): what a new
  // model has there. None: it may not be missing.
  std::optional<Initializer> if_missing = {};

  // Of each of theirs.
  Shape stored_shape() const;
};

// Whether files have a tensor, by its name there with or without the prefix.
using HasTensor = std::function<bool(const std::string& theirs)>;

struct Dialect {
  std::string name = {};        // in messages: "GPT-2"
  std::string model_type = {};  // by which config.json names it: "gpt2"
  config::ModelKind kind = config::ModelKind::gpt;
  // That of their names which a file of the model without its heads lacks:
  // "transformer.".
  std::string prefix = {};
  // What tokenizer_config.json calls tokens that have a part in training.
  std::vector<std::pair<std::string, data::Special>> special_tokens = {};
  // What a head of pairs was trained to judge, of which config.json has no word.
  config::Pairs pairs = config::Pairs::none;
  // Sentinels of a SentencePiece model beside which no file says how many there are.
  std::int64_t usual_sentinels = 0;

  // `where` is for messages: an InputError lists all that is missing, of the wrong type
  // or not what Trireme can compute; what is only odd is a warning.
  ForeignConfig (*read_config)(const nlohmann::json& config, const std::string& where,
                               Log& log) = nullptr;
  // Changes what config.json leaves to the weights to say. None: it says all.
  void (*complete)(ForeignConfig& config, const HasTensor& has, const std::string& where,
                   Log& log) = nullptr;
  // A config.json that transformers reads as the same model.
  nlohmann::ordered_json (*config_json)(const ForeignConfig& config) = nullptr;
  // The generation_config.json beside it; null: none. None: as null.
  nlohmann::ordered_json (*generation_config)(const ForeignConfig& config) = nullptr;
  // What of our model cannot be said there, a line each: "model.bias: only true".
  std::vector<std::string> (*inexpressible)(const config::ModelConfig& model) = nullptr;
  // What of its training only is not kept there, a line each. None: nothing.
  std::vector<std::string> (*left_out)(const config::ModelConfig& model) = nullptr;
  // Every weight, in the order in which they are written.
  std::vector<ForeignTensor> (*tensors)(const config::ModelConfig& model) = nullptr;
  // Whether a tensor of files is no weight, by its name without the prefix.
  bool (*is_buffer)(std::string_view name) = nullptr;

  std::string without_prefix(const std::string& theirs) const;
};

// Those that the program converts.
std::span<const Dialect> known_dialects();
// The dialect that config.json's model_type names. InputError, which lists all.
const Dialect& dialect_of_config(const nlohmann::json& config, const std::string& where,
                                 std::span<const Dialect> dialects);
// The first dialect that can say all of a model. InputError with what each one cannot.
const Dialect& dialect_of_model(const config::ModelConfig& model,
                                const std::string& where,
                                std::span<const Dialect> dialects);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_DIALECT_HPP_
