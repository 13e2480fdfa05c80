// ckpt/dialects/bert.cpp — names and config.json of BERTs; see bert.hpp.
//
// The two dialects differ in where norms stand and in what those are called; all else is
// said once. Keys that are not there have transformers' defaults, except the sizes. Which
// heads a model has, its weights say: bert-base-uncased names BertForMaskedLM in its
// config.json, and has the head of pairs, too. Example of tensors: their
// bert.encoder.layer.0.attention.self.{query,key,value}.weight, (768, 768) each, are our
// layers/0/attention/qkv/weight of shape (2304, 768).
#include "ckpt/dialects/bert.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "ckpt/dialects/config_fields.hpp"
#include "config/deck.hpp"
#include "data/tokenizer.hpp"
#include "io/json.hpp"
#include "tensor/param_registry.hpp"

namespace trireme::ckpt {

namespace {

using config::Activation;
using config::NormPlacement;

constexpr const char* kBertPrefix = "bert.";
constexpr const char* kPooler = "bert.pooler.dense";
constexpr const char* kPairs = "cls.seq_relationship";

// That of transformers' class with all heads, or with that over words alone.
const char* architecture_of(const config::ModelConfig& model) {
  const bool is_post = model.norm_placement == NormPlacement::post;
  if (model.binary_head)
    return is_post ? "BertForPreTraining" : "MegatronBertForPreTraining";
  return is_post ? "BertForMaskedLM" : "MegatronBertForMaskedLM";
}

Activation read_bert_activation(ConfigFields& fields) {
  static constexpr Activation kActivations[] = {Activation::gelu, Activation::gelu,
                                                Activation::gelu_tanh,
                                                Activation::gelu_tanh, Activation::relu};
  return kActivations[fields.word(
      "hidden_act", {"gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "relu"})];
}

const char* bert_activation(Activation activation) {
  if (activation == Activation::gelu_tanh) return "gelu_new";
  return activation == Activation::relu ? "relu" : "gelu";
}

void check_bert_architecture(const nlohmann::json& json, ConfigFields& fields) {
  fields.word("position_embedding_type", {"absolute"});
  fields.must_be("is_decoder", false, "attention looks both ways");
  fields.must_be("add_cross_attention", false, "there is no encoder to attend to");
  fields.must_be("tie_word_embeddings", true,
                 "the head over words has the word embedding");
  const auto pruned = json.find("pruned_heads");
  if (pruned != json.end() && !pruned->empty()) {
    fields.fail("pruned_heads: {} is not supported; all layers have all heads",
                io::json_excerpt(*pruned));
  }
  fields.refuse_quantised();
}

ForeignConfig read_bert(const nlohmann::json& json, const std::string& where, Log& log,
                        NormPlacement placement) {
  ConfigFields fields(json);
  ForeignConfig config;
  config.kind = config::ModelKind::bert;
  config.norm_placement = placement;
  config.layers = fields.size("num_hidden_layers");
  config.hidden = fields.size("hidden_size");
  config.heads = config.kv_heads = fields.size("num_attention_heads");
  config.ffn_hidden = fields.size("intermediate_size");
  config.sequence = fields.size("max_position_embeddings");
  config.vocab = fields.size("vocab_size");
  config.type_vocab_size = fields.size("type_vocab_size");
  config.dropout = fields.probability("hidden_dropout_prob", 0.1);
  config.attention_dropout = fields.probability("attention_probs_dropout_prob", 0.1);
  config.init_std = fields.positive("initializer_range", 0.02);
  config.norm_epsilon = fields.positive("layer_norm_eps", 1e-12);
  config.activation = read_bert_activation(fields);
  if (config.heads > 0 && config.hidden % config.heads != 0) {
    fields.fail("num_attention_heads: {} do not divide hidden_size, {}",
                format_plural(config.heads, "head"), config.hidden);
  }
  check_bert_architecture(json, fields);
  fields.require_right(where);
  config.head_size = config.hidden / config.heads;
  config.binary_head = true;
  const auto classes = json.find("architectures");
  if (classes != json.end() && classes->is_array() && !classes->empty()) {
    ForeignConfig without = config;
    without.binary_head = false;
    config.binary_head = classes->front() != architecture_of(without);
  }
  config.padding = json.contains("pad_token_id")
                       ? read_token_id(json, "pad_token_id", config.vocab,
                                       "token for padding", where, log)
                       : std::optional<index_t>(0);
  return config;
}

ForeignConfig read_bert_config(const nlohmann::json& json, const std::string& where,
                               Log& log) {
  return read_bert(json, where, log, NormPlacement::post);
}

ForeignConfig read_megatron_bert_config(const nlohmann::json& json,
                                        const std::string& where, Log& log) {
  return read_bert(json, where, log, NormPlacement::pre);
}

void complete_bert(ForeignConfig& config, const HasTensor& has, const std::string& where,
                   Log& log) {
  const std::string weight = ".weight";
  const bool was_expected = config.binary_head;
  config.binary_head = has(kPooler + weight) || has(kPairs + weight);
  TRIREME_REQUIRE_INPUT(
      !config.binary_head || config.type_vocab_size > 1,
      "'{}': type_vocab_size is 1, and the weights have a head that judges pairs ({}): "
      "without a type for the second segment this is not supported",
      where, has(kPooler + weight) ? kPooler : kPairs);
  if (was_expected && !config.binary_head) {
    log.warning(
        "'{}': the weights have no head that judges pairs ({}, {}), which is left out: "
        "model.binary_head is false",
        where, kPooler, kPairs);
  }
}

nlohmann::ordered_json bert_config_json(const ForeignConfig& config) {
  const bool is_post = config.norm_placement == NormPlacement::post;
  nlohmann::ordered_json json;
  json["architectures"] = {architecture_of(config)};
  json["model_type"] = is_post ? "bert" : "megatron-bert";
  json["vocab_size"] = config.vocab;
  json["max_position_embeddings"] = config.sequence;
  json["type_vocab_size"] = config.type_vocab_size;
  json["hidden_size"] = config.hidden;
  json["num_hidden_layers"] = config.layers;
  json["num_attention_heads"] = config.heads;
  json["intermediate_size"] = config.ffn_hidden;
  json["hidden_act"] = bert_activation(config.activation);
  json["hidden_dropout_prob"] = config.dropout;
  json["attention_probs_dropout_prob"] = config.attention_dropout;
  json["layer_norm_eps"] = config.norm_epsilon;
  json["initializer_range"] = config.init_std;
  json["position_embedding_type"] = "absolute";  // until transformers 5
  json["is_decoder"] = false;
  json["tie_word_embeddings"] = true;
  json["use_cache"] = true;
  // null, not absent: transformers would take 0 for it.
  json["pad_token_id"] = nullptr;
  if (config.padding) json["pad_token_id"] = *config.padding;
  json["dtype"] = "float32";
  json["torch_dtype"] = "float32";  // its name before transformers 5
  return json;
}

std::vector<std::string> inexpressible_in_any_bert(const config::ModelConfig& model,
                                                   bool has_placement,
                                                   const char* placement) {
  Exportable only;
  only.check(has_placement, "norm_placement", placement);
  only.check(model.norm == config::Norm::layernorm, "norm", "layernorm");
  only.check(model.activation == Activation::gelu ||
                 model.activation == Activation::gelu_tanh ||
                 model.activation == Activation::relu,
             "activation", "gelu, gelu_tanh or relu");
  only.check(model.position == config::Position::learned, "position", "learned");
  only.check(model.type_vocab_size > 0, "type_vocab_size", "1 or more");
  only.check(!model.has_own_head_size(), "head_size", "hidden / heads");
  only.check(model.kv_heads == model.heads, "kv_heads", "as many as heads");
  only.check(model.bias, "bias", "true");
  only.check(model.tie_embeddings, "tie_embeddings", "true");
  return only.problems;
}

std::vector<std::string> inexpressible_in_bert(const config::ModelConfig& model) {
  return inexpressible_in_any_bert(model, model.norm_placement == NormPlacement::post,
                                   "post");
}

std::vector<std::string> inexpressible_in_megatron_bert(
    const config::ModelConfig& model) {
  return inexpressible_in_any_bert(model, model.norm_placement == NormPlacement::pre,
                                   "pre");
}

class BertTensors {
 public:
  explicit BertTensors(const config::ModelConfig& model)
      : c_(model), is_post_(model.norm_placement == NormPlacement::post) {
    add_embedding();
    for (index_t i = 0; i < c_.layers; ++i) add_layer(i);
    if (!is_post_) add_norm("final_norm", std::string(kBertPrefix) + "encoder.ln");
    add_heads();
  }

  std::vector<ForeignTensor> list;

 private:
  void add_table(const std::string& ours, const char* theirs, index_t rows) {
    list.push_back({.name = ours + "/weight",
                    .theirs = {std::string(kBertPrefix) + "embeddings." + theirs},
                    .shape = {rows, c_.hidden}});
  }

  void add_norm(const std::string& ours, const std::string& theirs) {
    list.push_back({.name = ours + "/weight",
                    .theirs = {theirs + ".weight"},
                    .shape = {c_.hidden},
                    .aliases = {theirs + ".gamma"}});
    list.push_back({.name = ours + "/bias",
                    .theirs = {theirs + ".bias"},
                    .shape = {c_.hidden},
                    .aliases = {theirs + ".beta"}});
  }

  void add_linear(const std::string& ours, const std::vector<std::string>& theirs,
                  index_t out, index_t in) {
    list.push_back({.name = ours + "/weight", .theirs = theirs, .shape = {out, in}});
    for (std::string& name : list.back().theirs) name += ".weight";
    list.push_back({.name = ours + "/bias", .theirs = theirs, .shape = {out}});
    for (std::string& name : list.back().theirs) name += ".bias";
  }

  void add_embedding() {
    add_table("embedding/word", "word_embeddings.weight", c_.vocab);
    list.back().aliases = {"cls.predictions.decoder.weight"};
    add_table("embedding/position", "position_embeddings.weight", c_.sequence);
    add_table("embedding/type", "token_type_embeddings.weight", c_.type_vocab_size);
    if (is_post_)
      add_norm("embedding/norm", std::string(kBertPrefix) + "embeddings.LayerNorm");
  }

  void add_layer(index_t i) {
    const std::string ours = fmt::format("layers/{}/", i);
    const std::string theirs = fmt::format("{}encoder.layer.{}.", kBertPrefix, i);
    const std::string self = theirs + "attention.self.";
    if (!is_post_) add_norm(ours + "input_norm", theirs + "attention.ln");
    add_linear(ours + "attention/qkv", {self + "query", self + "key", self + "value"},
               3 * c_.hidden, c_.hidden);
    add_linear(ours + "attention/projection", {theirs + "attention.output.dense"},
               c_.hidden, c_.hidden);
    if (is_post_)
      add_norm(ours + "attention_norm", theirs + "attention.output.LayerNorm");
    if (!is_post_) add_norm(ours + "mlp_norm", theirs + "ln");
    add_linear(ours + "mlp/fc1", {theirs + "intermediate.dense"}, c_.ffn_hidden,
               c_.hidden);
    add_linear(ours + "mlp/fc2", {theirs + "output.dense"}, c_.hidden, c_.ffn_hidden);
    if (is_post_) add_norm(ours + "mlp_norm", theirs + "output.LayerNorm");
  }

  // Without which models are often saved.
  void add_heads() {
    const std::size_t first = list.size();
    if (c_.binary_head) {
      add_linear("pair_head/pooler", {kPooler}, c_.hidden, c_.hidden);
      add_linear("pair_head/classifier", {kPairs}, 2, c_.hidden);
    }
    const std::string theirs = "cls.predictions.";
    add_linear("masked_head/dense", {theirs + "transform.dense"}, c_.hidden, c_.hidden);
    add_norm("masked_head/norm", theirs + "transform.LayerNorm");
    list.push_back({.name = "masked_head/bias",
                    .theirs = {theirs + "bias"},
                    .shape = {c_.vocab},
                    .aliases = {theirs + "decoder.bias"}});
    for (std::size_t i = first; i < list.size(); ++i) {
      const bool is_matrix = list[i].shape.size() == 2;
      const bool is_one = list[i].name == "masked_head/norm/weight";
      list[i].if_missing = is_matrix ? Initializer::normal(c_.init_std)
                                     : Initializer::constant(is_one ? 1.0 : 0.0);
    }
  }

  const config::ModelConfig& c_;
  bool is_post_;
};

std::vector<ForeignTensor> bert_tensors(const config::ModelConfig& model) {
  return std::move(BertTensors(model).list);
}

// Numbers of positions and the types of a sample of one segment.
bool is_bert_buffer(std::string_view name) {
  return name == "embeddings.position_ids" || name == "embeddings.token_type_ids";
}

// What both have.
Dialect any_bert() {
  return {.kind = config::ModelKind::bert,
          .prefix = kBertPrefix,
          .special_tokens = {{"pad_token", data::Special::padding},
                             {"unk_token", data::Special::unknown},
                             {"cls_token", data::Special::classify},
                             {"sep_token", data::Special::separate},
                             {"mask_token", data::Special::mask}},
          .complete = complete_bert,
          .config_json = bert_config_json,
          .tensors = bert_tensors,
          .is_buffer = is_bert_buffer};
}

}  // namespace

Dialect bert_dialect() {
  Dialect dialect = any_bert();
  dialect.name = "BERT";
  dialect.model_type = "bert";
  dialect.pairs = config::Pairs::next;
  dialect.read_config = read_bert_config;
  dialect.inexpressible = inexpressible_in_bert;
  return dialect;
}

Dialect megatron_bert_dialect() {
  Dialect dialect = any_bert();
  dialect.name = "MegatronBert";
  dialect.model_type = "megatron-bert";
  // As Megatron-LM trains it, where the models come from. (The text of transformers'
  // class speaks of the next sentence, as that of BERT's does.)
  dialect.pairs = config::Pairs::order;
  dialect.read_config = read_megatron_bert_config;
  dialect.inexpressible = inexpressible_in_megatron_bert;
  return dialect;
}

}  // namespace trireme::ckpt
