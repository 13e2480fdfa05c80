// ckpt/dialects/t5.cpp — names and config.json of a T5; see t5.hpp.
//
// Keys that are not there have transformers' defaults, except the sizes. Two things are
// said in more ways than one. The activation: feed_forward_proj says it, and files repeat
// it in parts (dense_act_fn, is_gated_act), which transformers takes where they differ.
// The head: transformers 4 scales what a tied head reads, and no other; transformers 5
// has a key for the scale (scale_decoder_outputs), writes of all models that their heads
// are tied, and unties those whose files have another head. Here a head is tied and
// scaled, or neither.
#include "ckpt/dialects/t5.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "ckpt/dialects/config_fields.hpp"
#include "config/deck.hpp"
#include "data/tokenizer.hpp"
#include "io/json.hpp"

namespace trireme::ckpt {

namespace {

using config::Activation;

constexpr const char* kHead = "lm_head.weight";
// What T5 was trained with; of the length its config.json may say nothing, as positions
// have no table.
constexpr index_t kUsualLength = 512;

// A feed-forward block as config.json has it, and what it is here. Of those that are the
// same here the first is written.
struct Projection {
  const char* name;
  const char* activation;
  bool is_gated;
  Activation ours;
};
constexpr Projection kProjections[] = {
    {"relu", "relu", false, Activation::relu},
    {"gated-gelu", "gelu_new", true, Activation::geglu_tanh},
    {"gated-gelu_new", "gelu_new", true, Activation::geglu_tanh},
    {"gated-gelu_pytorch_tanh", "gelu_pytorch_tanh", true, Activation::geglu_tanh},
    // Without "_python" transformers means the other form.
    {"gated-gelu_python", "gelu_python", true, Activation::geglu}};

Activation read_projection(const nlohmann::json& json, ConfigFields& fields) {
  const Projection& projection = kProjections[fields.word(
      "feed_forward_proj",
      {kProjections[0].name, kProjections[1].name, kProjections[2].name,
       kProjections[3].name, kProjections[4].name})];
  const auto check = [&](const char* key, const nlohmann::json& expected) {
    const auto it = json.find(key);
    if (it == json.end() || *it == expected) return;
    fields.fail("{}: {}, and feed_forward_proj is \"{}\", which means {}", key,
                io::json_excerpt(*it), projection.name, io::json_excerpt(expected));
  };
  check("dense_act_fn", projection.activation);
  check("is_gated_act", projection.is_gated);
  return projection.ours;
}

const char* projection_of(Activation activation) {
  for (const Projection& projection : kProjections) {
    if (projection.ours == activation) return projection.name;
  }
  throw Error("projection_of: a model that is not expressible");
}

bool read_is_tied(ConfigFields& fields) {
  const bool is_tied = fields.boolean("tie_word_embeddings", true);
  const bool is_scaled = fields.boolean("scale_decoder_outputs", is_tied);
  if (is_scaled && !is_tied) {
    fields.fail(
        "scale_decoder_outputs: true is not supported with tie_word_embeddings false (a "
        "head of its own reads what the decoder makes as it is)");
  }
  return is_scaled;
}

void check_t5_architecture(const nlohmann::json& json, ConfigFields& fields) {
  fields.must_be("is_encoder_decoder", true, "there are an encoder and a decoder");
  fields.must_be("is_decoder", false, "there are an encoder and a decoder");
  const auto start = json.find("decoder_start_token_id");
  const auto padding = json.value("pad_token_id", nlohmann::json(0));
  if (start != json.end() && !start->is_null() && *start != padding) {
    fields.fail(
        "decoder_start_token_id: {} is not supported (decoders begin with the token for "
        "padding); expected pad_token_id, {}",
        io::json_excerpt(*start), io::json_excerpt(padding));
  }
  fields.refuse_quantised();
}

void read_buckets(ConfigFields& fields, ForeignConfig& config) {
  const index_t buckets = fields.size_or("relative_attention_num_buckets", 32);
  const index_t distance = fields.size_or("relative_attention_max_distance", 128);
  if (buckets % 2 != 0 || buckets < 4 || distance <= buckets / 2) {
    fields.fail(
        "relative_attention_num_buckets: {} is not supported with a "
        "relative_attention_max_distance of {}; expected an even number of at least 4 "
        "and less than twice that distance",
        buckets, distance);
  }
  config.relative_attention_num_buckets = buckets;
  config.relative_attention_max_distance = distance;
}

ForeignConfig read_t5_config(const nlohmann::json& json, const std::string& where,
                             Log& log) {
  ConfigFields fields(json);
  ForeignConfig config;
  config.kind = config::ModelKind::t5;
  config.norm = config::Norm::rmsnorm;
  config.position = config::Position::relative;
  config.bias = false;
  config.layers = fields.size("num_layers");
  config.decoder_layers = fields.size_or("num_decoder_layers", config.layers);
  config.hidden = fields.size("d_model");
  config.heads = config.kv_heads = fields.size("num_heads");
  config.head_size = fields.size("d_kv");
  config.ffn_hidden = fields.size("d_ff");
  config.vocab = fields.size("vocab_size");
  config.sequence = fields.size_or("n_positions", kUsualLength);
  config.dropout = config.attention_dropout = fields.probability("dropout_rate", 0.1);
  config.norm_epsilon = fields.positive("layer_norm_epsilon", 1e-6);
  config.activation = read_projection(json, fields);
  config.tie_embeddings = read_is_tied(fields);
  read_buckets(fields, config);
  check_t5_architecture(json, fields);
  const double factor = fields.number("initializer_factor", 1.0);
  fields.require_right(where);
  if (factor != 1.0) {
    log.warning("'{}': initializer_factor ({}) is of first weights only, and is not kept",
                where, factor);
  }
  const auto token = [&](const char* key, index_t usual, const char* what) {
    if (!json.contains(key)) {
      return usual < config.vocab ? std::optional(usual) : std::nullopt;
    }
    return read_token_id(json, key, config.vocab, what, where, log);
  };
  config.end_of_text = token("eos_token_id", 1, "end-of-text token");
  config.padding = token("pad_token_id", 0, "token for padding");
  return config;
}

void complete_t5(ForeignConfig& config, const HasTensor& has, const std::string& where,
                 Log&) {
  TRIREME_REQUIRE_INPUT(
      config.tie_embeddings || has(kHead) || !has("shared.weight"),
      "'{}': the weights have no {}, and what the head reads is not to be scaled "
      "(scale_decoder_outputs or tie_word_embeddings is false): a tied head is not "
      "supported without the scale, d_model^-1/2",
      where, kHead);
}

nlohmann::ordered_json t5_config_json(const ForeignConfig& config) {
  nlohmann::ordered_json json;
  json["architectures"] = {"T5ForConditionalGeneration"};
  json["model_type"] = "t5";
  json["vocab_size"] = config.vocab;
  json["n_positions"] = config.sequence;
  json["d_model"] = config.hidden;
  json["d_kv"] = config.head_elements();
  json["d_ff"] = config.ffn_hidden;
  json["num_layers"] = config.layers;
  json["num_decoder_layers"] = config.decoder_layers;
  json["num_heads"] = config.heads;
  json["relative_attention_num_buckets"] = config.relative_attention_num_buckets;
  json["relative_attention_max_distance"] = config.relative_attention_max_distance;
  json["feed_forward_proj"] = projection_of(config.activation);
  json["dropout_rate"] = config.dropout;
  json["layer_norm_epsilon"] = config.norm_epsilon;
  json["initializer_factor"] = 1.0;
  json["is_encoder_decoder"] = true;
  json["tie_word_embeddings"] = config.tie_embeddings;
  json["use_cache"] = true;
  // null, not absent: transformers would take 1 and 0 for them.
  json["eos_token_id"] = json["pad_token_id"] = json["decoder_start_token_id"] = nullptr;
  if (config.end_of_text) json["eos_token_id"] = *config.end_of_text;
  if (config.padding) {
    json["pad_token_id"] = json["decoder_start_token_id"] = *config.padding;
  }
  json["dtype"] = "float32";
  json["torch_dtype"] = "float32";  // its name before transformers 5
  return json;
}

nlohmann::ordered_json t5_generation(const ForeignConfig& config) {
  if (!config.end_of_text || !config.padding) return nullptr;
  nlohmann::ordered_json json;
  json["_from_model_config"] = true;
  json["decoder_start_token_id"] = json["pad_token_id"] = *config.padding;
  json["eos_token_id"] = *config.end_of_text;
  return json;
}

std::vector<std::string> inexpressible_in_t5(const config::ModelConfig& model) {
  Exportable only;
  only.check(model.norm == config::Norm::rmsnorm, "norm", "rmsnorm");
  only.check(model.activation == Activation::relu ||
                 model.activation == Activation::geglu_tanh ||
                 model.activation == Activation::geglu,
             "activation", "relu, geglu_tanh or geglu");
  only.check(model.position == config::Position::relative, "position", "relative");
  only.check(model.kv_heads == model.heads, "kv_heads", "as many as heads");
  only.check(!model.bias, "bias", "false");
  return only.problems;
}

std::vector<std::string> left_out_of_t5(const config::ModelConfig& model) {
  if (model.attention_dropout == model.dropout) return {};
  return {fmt::format(
      "model.attention_dropout ({}) is not kept: transformers' T5 has one dropout for "
      "all, which is given model.dropout ({})",
      model.attention_dropout, model.dropout)};
}

class T5Tensors {
 public:
  explicit T5Tensors(const config::ModelConfig& model)
      : c_(model), inner_(model.heads * model.head_elements()) {
    add("embedding/word", {"shared"}, c_.vocab, c_.hidden);
    list.back().aliases = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"};
    if (c_.tie_embeddings) list.back().aliases.push_back(kHead);
    add_stack("encoder", c_.layers);
    add_stack("decoder", c_.decoder_layers);
    add_norm("final_norm", "decoder.final_layer_norm");
    if (!c_.tie_embeddings) add("head/word", {"lm_head"}, c_.vocab, c_.hidden);
  }

  std::vector<ForeignTensor> list;

 private:
  void add(const std::string& ours, const std::vector<std::string>& theirs, index_t rows,
           index_t columns) {
    list.push_back(
        {.name = ours + "/weight", .theirs = theirs, .shape = {rows, columns}});
    for (std::string& name : list.back().theirs) name += ".weight";
  }

  void add_norm(const std::string& ours, const std::string& theirs) {
    list.push_back(
        {.name = ours + "/weight", .theirs = {theirs + ".weight"}, .shape = {c_.hidden}});
  }

  void add_stack(const std::string& stack, index_t layers) {
    add(stack + "/relative_bias",
        {stack + ".block.0.layer.0.SelfAttention.relative_attention_bias"},
        c_.relative_attention_num_buckets, c_.heads);
    for (index_t i = 0; i < layers; ++i) {
      const std::string ours = fmt::format("{}/layers/{}/", stack, i);
      const std::string theirs = fmt::format("{}.block.{}.layer.", stack, i);
      add_attention(ours, theirs + "0.");
      if (stack == "decoder") add_cross_attention(ours, theirs + "1.");
      add_feed_forward(ours, theirs + (stack == "decoder" ? "2." : "1."));
    }
    if (stack == "encoder") add_norm("encoder/final_norm", "encoder.final_layer_norm");
  }

  void add_attention(const std::string& ours, const std::string& theirs) {
    const std::string self = theirs + "SelfAttention.";
    add_norm(ours + "input_norm", theirs + "layer_norm");
    add(ours + "attention/qkv", {self + "q", self + "k", self + "v"}, 3 * inner_,
        c_.hidden);
    add(ours + "attention/projection", {self + "o"}, c_.hidden, inner_);
  }

  void add_cross_attention(const std::string& ours, const std::string& theirs) {
    const std::string cross = theirs + "EncDecAttention.";
    add_norm(ours + "cross_norm", theirs + "layer_norm");
    add(ours + "cross/q", {cross + "q"}, inner_, c_.hidden);
    add(ours + "cross/kv", {cross + "k", cross + "v"}, 2 * inner_, c_.hidden);
    add(ours + "cross/projection", {cross + "o"}, c_.hidden, inner_);
  }

  void add_feed_forward(const std::string& ours, const std::string& theirs) {
    const std::string dense = theirs + "DenseReluDense.";
    add_norm(ours + "mlp_norm", theirs + "layer_norm");
    if (c_.is_gated()) {
      add(ours + "mlp/fc1", {dense + "wi_0", dense + "wi_1"}, 2 * c_.ffn_hidden,
          c_.hidden);
    } else {
      add(ours + "mlp/fc1", {dense + "wi"}, c_.ffn_hidden, c_.hidden);
    }
    add(ours + "mlp/fc2", {dense + "wo"}, c_.hidden, c_.ffn_hidden);
  }

  const config::ModelConfig& c_;
  index_t inner_;  // elements of all heads together
};

std::vector<ForeignTensor> t5_tensors(const config::ModelConfig& model) {
  return std::move(T5Tensors(model).list);
}

// A table that the first files have, and that nothing reads: attention to the encoder has
// no bias.
bool is_unread_by_t5(std::string_view name) {
  return name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
}

}  // namespace

Dialect t5_dialect() {
  return {.name = "T5",
          .model_type = "t5",
          .kind = config::ModelKind::t5,
          .special_tokens = {{"eos_token", data::Special::end_of_document},
                             {"pad_token", data::Special::padding},
                             {"unk_token", data::Special::unknown}},
          .usual_sentinels = 100,
          .read_config = read_t5_config,
          .complete = complete_t5,
          .config_json = t5_config_json,
          .generation_config = t5_generation,
          .inexpressible = inexpressible_in_t5,
          .left_out = left_out_of_t5,
          .tensors = t5_tensors,
          .is_buffer = is_unread_by_t5};
}

}  // namespace trireme::ckpt
