// ckpt/dialects/gpt2.cpp — names, layout and config.json of a GPT-2; see gpt2.hpp.
//
// A key of config.json that changes what the model computes, and that Trireme has not, is
// refused: it would compute something else without a word. Keys that are not there have
// transformers' defaults (GPT2Config), except the sizes: a file without them says nothing
// of the model. Example of a tensor: their h.0.mlp.c_fc.weight of shape (in, out) =
// (768, 3072) is our layers/0/mlp/fc1/weight of shape (3072, 768).
#include "ckpt/dialects/gpt2.hpp"

#include <nlohmann/json.hpp>

#include "base/plural.hpp"
#include "ckpt/dialects/config_fields.hpp"
#include "config/deck.hpp"
#include "data/tokenizer.hpp"
#include "io/json.hpp"

namespace trireme::ckpt {

namespace {

constexpr const char* kGpt2Prefix = "transformer.";
// A GPT's is that of every architecture that says no other.
const double kGpt2NormEpsilon = config::ModelConfig().norm_epsilon;

void check_gpt2_architecture(const nlohmann::json& json, ConfigFields& fields) {
  const auto activation = json.value("activation_function", nlohmann::json("gelu_new"));
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    fields.fail(
        "activation_function: {} is not supported; expected \"gelu_new\" (GeLU's "
        "tanh form)",
        io::json_excerpt(activation));
  }
  const double epsilon = fields.number("layer_norm_epsilon", kGpt2NormEpsilon);
  if (epsilon != kGpt2NormEpsilon) {
    fields.fail("layer_norm_epsilon: {} is not supported; expected {}", epsilon,
                kGpt2NormEpsilon);
  }
  fields.must_be("scale_attn_weights", true,
                 "scores are divided by the root of head size");
  fields.must_be("scale_attn_by_inverse_layer_idx", false,
                 "scores are not divided by the layer's number");
  fields.must_be("add_cross_attention", false, "there is no encoder to attend to");
  fields.refuse_quantised();
}

ForeignConfig read_gpt2_config(const nlohmann::json& json, const std::string& where,
                               Log& log) {
  ConfigFields fields(json);
  ForeignConfig config;
  config.layers = fields.size("n_layer");
  config.hidden = fields.size("n_embd");
  config.heads = config.kv_heads = fields.size("n_head");
  config.sequence = fields.size("n_positions");
  config.vocab = fields.size("vocab_size");
  config.ffn_hidden = fields.size_or("n_inner", 4 * config.hidden);
  config.dropout = fields.probability("resid_pdrop", 0.1);
  config.attention_dropout = fields.probability("attn_pdrop", 0.1);
  config.init_std = fields.number("initializer_range", 0.02);
  const double embedding_dropout = fields.probability("embd_pdrop", 0.1);
  if (config.heads > 0 && config.hidden % config.heads != 0) {
    fields.fail("n_head: {} do not divide n_embd, {}",
                format_plural(config.heads, "head"), config.hidden);
  }
  check_gpt2_architecture(json, fields);
  fields.require_right(where);
  config.head_size = config.hidden / config.heads;

  if (embedding_dropout != config.dropout) {
    log.warning("'{}': embd_pdrop is {}, resid_pdrop {}; the latter is used for both",
                where, embedding_dropout, config.dropout);
  }
  if (json.value("reorder_and_upcast_attn", nlohmann::json(false)) != false) {
    log.warning(
        "'{}': reorder_and_upcast_attn changes the order of rounding only, and is "
        "not kept",
        where);
  }
  config.end_of_text =
      read_token_id(json, "eos_token_id", config.vocab, "end-of-text token", where, log);
  return config;
}

nlohmann::ordered_json gpt2_config_json(const ForeignConfig& config) {
  nlohmann::ordered_json json;
  json["architectures"] = {"GPT2LMHeadModel"};
  json["model_type"] = "gpt2";
  json["vocab_size"] = config.vocab;
  json["n_positions"] = config.sequence;
  json["n_embd"] = config.hidden;
  json["n_layer"] = config.layers;
  json["n_head"] = config.heads;
  json["n_inner"] = nullptr;
  if (config.ffn_hidden != 4 * config.hidden) json["n_inner"] = config.ffn_hidden;
  json["activation_function"] = "gelu_new";
  json["resid_pdrop"] = config.dropout;
  json["embd_pdrop"] = config.dropout;
  json["attn_pdrop"] = config.attention_dropout;
  json["layer_norm_epsilon"] = kGpt2NormEpsilon;
  json["initializer_range"] = config.init_std;
  json["scale_attn_weights"] = true;
  json["scale_attn_by_inverse_layer_idx"] = false;
  json["reorder_and_upcast_attn"] = false;
  json["tie_word_embeddings"] = true;
  json["use_cache"] = true;
  // null, not absent: transformers would take 50256 for it.
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  if (config.end_of_text)
    json["bos_token_id"] = json["eos_token_id"] = *config.end_of_text;
  json["dtype"] = "float32";
  json["torch_dtype"] = "float32";  // its name before transformers 5
  return json;
}

nlohmann::ordered_json gpt2_generation(const ForeignConfig& config) {
  if (!config.end_of_text) return nullptr;
  nlohmann::ordered_json json;
  json["_from_model_config"] = true;
  json["bos_token_id"] = json["eos_token_id"] = *config.end_of_text;
  return json;
}

std::vector<std::string> inexpressible_in_gpt2(const config::ModelConfig& model) {
  Exportable only;
  only.check(model.norm == config::Norm::layernorm, "norm", "layernorm");
  only.check(model.activation == config::Activation::gelu_tanh, "activation",
             "gelu_tanh");
  only.check(model.position == config::Position::learned, "position", "learned");
  only.check(!model.has_own_head_size(), "head_size", "hidden / heads");
  only.check(model.kv_heads == model.heads, "kv_heads", "as many as heads");
  only.check(model.bias, "bias", "true");
  only.check(model.tie_embeddings, "tie_embeddings", "true");
  return only.problems;
}

std::vector<ForeignTensor> gpt2_tensors(const config::ModelConfig& c) {
  std::vector<ForeignTensor> tensors;
  const auto vectors = [&](const std::string& ours, const std::string& theirs) {
    tensors.push_back({ours + "/weight", {theirs + ".weight"}, {c.hidden}});
    tensors.push_back({ours + "/bias", {theirs + ".bias"}, {c.hidden}});
  };
  const auto linear = [&](const std::string& ours, const std::string& theirs, index_t out,
                          index_t in) {
    tensors.push_back({ours + "/weight", {theirs + ".weight"}, {out, in}, true});
    tensors.push_back({ours + "/bias", {theirs + ".bias"}, {out}});
  };
  const std::string root(kGpt2Prefix);
  tensors.push_back({.name = "embedding/word/weight",
                     .theirs = {root + "wte.weight"},
                     .shape = {c.vocab, c.hidden},
                     .aliases = {"lm_head.weight"}});
  tensors.push_back(
      {"embedding/position/weight", {root + "wpe.weight"}, {c.sequence, c.hidden}});
  for (index_t i = 0; i < c.layers; ++i) {
    const std::string ours = fmt::format("layers/{}/", i);
    const std::string theirs = fmt::format("{}h.{}.", root, i);
    vectors(ours + "input_norm", theirs + "ln_1");
    linear(ours + "attention/qkv", theirs + "attn.c_attn", 3 * c.hidden, c.hidden);
    linear(ours + "attention/projection", theirs + "attn.c_proj", c.hidden, c.hidden);
    vectors(ours + "mlp_norm", theirs + "ln_2");
    linear(ours + "mlp/fc1", theirs + "mlp.c_fc", c.ffn_hidden, c.hidden);
    linear(ours + "mlp/fc2", theirs + "mlp.c_proj", c.hidden, c.ffn_hidden);
  }
  vectors("final_norm", root + "ln_f");
  return tensors;
}

// "h.0.attn.bias" and "h.0.attn.masked_bias": the causal mask as old versions saved it.
bool is_gpt2_mask(std::string_view name) {
  return name.starts_with("h.") &&
         (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

}  // namespace

Dialect gpt2_dialect() {
  return {.name = "GPT-2",
          .model_type = "gpt2",
          .kind = config::ModelKind::gpt,
          .prefix = kGpt2Prefix,
          .special_tokens = {{"bos_token", data::Special::end_of_document},
                             {"eos_token", data::Special::end_of_document},
                             {"unk_token", data::Special::end_of_document}},
          .read_config = read_gpt2_config,
          .config_json = gpt2_config_json,
          .generation_config = gpt2_generation,
          .inexpressible = inexpressible_in_gpt2,
          .tensors = gpt2_tensors,
          .is_buffer = is_gpt2_mask};
}

}  // namespace trireme::ckpt
