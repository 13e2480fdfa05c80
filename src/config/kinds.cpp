// config/kinds.cpp — see kinds.hpp.
//
// Keys are told apart by a table, and not by sections of their own for each kind, as most
// mean the same in several kinds and have the names of the field. Defaults are those of
// the published models, so that a deck of a kind says what it has else and nothing more.
// They are filled in after all that is given has been read: some follow others, and all
// follow the kind, in whatever order a deck has them.
#include "config/kinds.hpp"

#include <algorithm>
#include <cmath>

#include "config/span_lengths.hpp"

namespace trireme::config {
namespace {

struct KeyOfKinds {
  std::string_view key;
  std::vector<ModelKind> kinds;
};

const std::vector<KeyOfKinds>& keys_of_kinds() {
  using enum ModelKind;
  static const std::vector<KeyOfKinds> all = {
      {"model.init_std", {gpt, bert}},
      {"model.decoder_layers", {t5}},
      {"model.decoder_sequence", {t5}},
      {"model.norm_epsilon", {bert, t5}},
      {"model.norm_placement", {bert}},
      {"model.type_vocab_size", {bert}},
      {"model.binary_head", {bert}},
      {"model.max_predictions", {bert}},
      {"model.relative_attention_num_buckets", {t5}},
      {"model.relative_attention_max_distance", {t5}},
      {"data.mask_eod_loss", {gpt}},
      {"data.mask_prob", {bert, t5}},
      {"data.short_seq_prob", {bert}},
      {"data.whole_words", {bert}},
      {"data.max_ngrams", {bert}},
      {"data.pairs", {bert}},
      {"data.pack", {bert, t5}},
      {"data.reset_attention_mask", {bert}},
      {"data.reset_position_ids", {bert}},
      {"data.mean_noise_span_length", {t5}},
      {"parallel.split", {t5}},
      // Text that continues none: others complete what they read.
      {"run.sample_every", {gpt}}};
  return all;
}

// What a kind of the literature has by default: GPT-2's, BERT's and T5 v1.0's.
struct Variants {
  Norm norm = Norm::layernorm;
  double norm_epsilon = 1e-5;
  Activation activation = Activation::gelu_tanh;
  Position position = Position::learned;
  bool bias = true;
  bool pack = false;  // GPT's windows are, always
};

Variants variants_of(ModelKind kind) {
  switch (kind) {
    case ModelKind::gpt:
      return {};
    case ModelKind::bert:
      return {.norm_epsilon = 1e-12, .activation = Activation::gelu};
    case ModelKind::t5:
      return {.norm = Norm::rmsnorm,
              .norm_epsilon = 1e-6,
              .activation = Activation::relu,
              .position = Position::relative,
              .bias = false,
              .pack = true};
  }
  return {};
}

// Sets what is not given.
class Filler {
 public:
  explicit Filler(const Given& given) : given_(given) {}

  template <class T>
  void operator()(const char* key, T& member, T value) const {
    if (!given_(key)) member = value;
  }

 private:
  const Given& given_;
};

void fill_variants(ModelConfig& model, DataConfig& data, const Filler& fill) {
  const Variants variants = variants_of(model.kind);
  fill("model.norm", model.norm, variants.norm);
  fill("model.norm_epsilon", model.norm_epsilon, variants.norm_epsilon);
  fill("model.activation", model.activation, variants.activation);
  fill("model.position", model.position, variants.position);
  fill("model.bias", model.bias, variants.bias);
  fill("data.pack", data.pack, variants.pack);
}

// The tokens of a full sample that are masked, which are fewer than it has.
index_t most_predictions(const Deck& deck) {
  const auto tokens = static_cast<double>(deck.model.sequence);
  // 0.07 x 100 is 7.000000000000001 here, and is to be 7.
  const auto masked =
      static_cast<index_t>(std::ceil(deck.data.mask_prob * tokens * (1.0 - 1e-12)));
  const index_t text = deck.model.sequence - special_tokens(deck);
  return std::max<index_t>(1, std::min(masked, text));
}

void fill_bert(Deck& deck, const Filler& fill) {
  ModelConfig& model = deck.model;
  DataConfig& data = deck.data;
  fill("model.type_vocab_size", model.type_vocab_size, index_t{2});
  fill("model.binary_head", model.binary_head, true);
  fill("data.pairs", data.pairs, model.binary_head ? Pairs::order : Pairs::none);
  fill("data.short_seq_prob", data.short_seq_prob, data.pack ? 0.0 : 0.1);
  fill("model.max_predictions", model.max_predictions, most_predictions(deck));
  model.within_documents = data.pack && data.reset_attention_mask;
}

void fill_t5(Deck& deck, const Filler& fill) {
  ModelConfig& model = deck.model;
  fill("model.decoder_layers", model.decoder_layers, model.layers);
  fill("model.decoder_sequence", model.decoder_sequence, target_positions(deck));
}

}  // namespace

std::vector<ModelKind> all_kinds() {
  std::vector<ModelKind> kinds;
  for (const auto& choice : choices<ModelKind>()) kinds.push_back(choice.first);
  return kinds;
}

std::vector<ModelKind> kinds_with(std::string_view key) {
  const auto found = std::ranges::find(keys_of_kinds(), key, &KeyOfKinds::key);
  return found == keys_of_kinds().end() ? all_kinds() : found->kinds;
}

bool has_key(ModelKind kind, std::string_view key) {
  const std::vector<ModelKind> kinds = kinds_with(key);
  return std::ranges::find(kinds, kind) != kinds.end();
}

std::string kinds_text(const std::vector<ModelKind>& kinds) {
  std::string text;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (i > 0) text += i + 1 == kinds.size() ? " and " : ", ";
    text += name_of(kinds[i]);
  }
  return text;
}

void fill_model_defaults(Deck& deck, const Given& given) {
  const Filler fill(given);
  ModelConfig& model = deck.model;
  if (model.heads > 0) {
    fill("model.head_size", model.head_size, model.hidden / model.heads);
  }
  fill("model.ffn_hidden", model.ffn_hidden, 4 * model.hidden);
  fill("model.kv_heads", model.kv_heads, model.heads);
  fill("data.seed", deck.data.seed, deck.run.seed);
  fill_variants(model, deck.data, fill);
  if (model.kind == ModelKind::bert) fill_bert(deck, fill);
  if (model.kind == ModelKind::t5) fill_t5(deck, fill);
}

index_t special_tokens(const Deck& deck) {
  return deck.data.pairs == Pairs::none ? 2 : 3;
}

index_t target_positions(const Deck& deck) {
  return longest_spans(std::max(deck.model.sequence, kShortestSource),
                       deck.data.mask_prob, deck.data.mean_noise_span_length)
      .target;
}

}  // namespace trireme::config
