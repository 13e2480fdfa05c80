// ckpt/hugging_face_config.cpp — config.json of a GPT-2, checked key by key, and back.
//
// A key that changes what the model computes, and that Trireme has not, is refused: it
// would compute something else without a word. All that is wrong is said together. Keys
// that are not there have transformers' defaults (GPT2Config), except the sizes: a file
// without them says nothing of the model.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "ckpt/hugging_face.hpp"
#include "io/json.hpp"

namespace trireme::ckpt {

namespace {

// This type keeps no order, because finding a key among the very many of a strange file
// must not take long.
using ConfigJson = nlohmann::json;

// LayerNorm's epsilon of every model here (kernels/norm.hpp is given it by nn).
constexpr double kNormEpsilon = 1e-5;

// Takes values out of a JSON object and collects what is wrong with them.
class Fields {
 public:
  explicit Fields(const ConfigJson& json) : json_(json) {}

  index_t size(const char* key) {
    const auto it = json_.find(key);
    if (it == json_.end()) {
      fail("{}: missing", key);
    } else if (!it->is_number_integer() || it->get<double>() < 1 ||
               it->get<double>() > 2147483647.0) {
      fail("{}: expected a number of at least 1, found {}", key, io::json_excerpt(*it));
    } else {
      return it->get<index_t>();
    }
    return 0;
  }

  // null means the default, as in transformers.
  index_t size_or(const char* key, index_t fallback) {
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? fallback : size(key);
  }

  double probability(const char* key, double fallback) {
    const double value = number(key, fallback);
    if (!(value >= 0.0 && value < 1.0)) {
      fail("{}: expected a probability in [0, 1), found {}", key, value);
    }
    return value;
  }

  double number(const char* key, double fallback) {
    const auto it = json_.find(key);
    if (it == json_.end()) return fallback;
    if (it->is_number()) return it->get<double>();
    fail("{}: expected a number, found {}", key, io::json_excerpt(*it));
    return fallback;
  }

  // A switch that must have one value here.
  void must_be(const char* key, bool value, const char* why) {
    const auto it = json_.find(key);
    if (it == json_.end() || (it->is_boolean() && it->get<bool>() == value)) return;
    fail("{}: {} is not supported ({}); expected {}", key, io::json_excerpt(*it), why,
         value);
  }

  template <class... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  const std::vector<std::string>& problems() const { return problems_; }

 private:
  const ConfigJson& json_;
  std::vector<std::string> problems_;
};

void check_architecture(const ConfigJson& json, Fields& fields) {
  const auto activation = json.value("activation_function", ConfigJson("gelu_new"));
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    fields.fail(
        "activation_function: {} is not supported; expected \"gelu_new\" (GeLU's "
        "tanh form)",
        io::json_excerpt(activation));
  }
  const double epsilon = fields.number("layer_norm_epsilon", kNormEpsilon);
  if (epsilon != kNormEpsilon) {
    fields.fail("layer_norm_epsilon: {} is not supported; expected {}", epsilon,
                kNormEpsilon);
  }
  fields.must_be("scale_attn_weights", true,
                 "scores are divided by the root of head size");
  fields.must_be("scale_attn_by_inverse_layer_idx", false,
                 "scores are not divided by the layer's number");
  fields.must_be("add_cross_attention", false, "there is no encoder to attend to");
  if (json.contains("quantization_config") && !json["quantization_config"].is_null()) {
    fields.fail(
        "quantization_config: quantised weights are not supported; save the model "
        "in fp32, fp16 or bf16");
  }
}

// The end-of-text id: an integer, null, absent, or (newer files) a list.
void read_end_of_text(const ConfigJson& json, const std::string& where,
                      Gpt2Config& config, Log& log) {
  auto it = json.find("eos_token_id");
  if (it == json.end() || it->is_null()) return;
  const ConfigJson value = it->is_array() && !it->empty() ? it->front() : *it;
  if (value.is_number_integer()) {
    const auto id = value.get<index_t>();
    if (id >= 0 && id < config.vocab) {
      config.end_of_text = id;
      return;
    }
  }
  log.warning(
      "'{}': eos_token_id {} is no id of the vocabulary (0 to {}); the model is taken "
      "to have no end-of-text token",
      where, io::json_excerpt(*it), config.vocab - 1);
}

}  // namespace

Gpt2Config parse_gpt2_config(const std::string& text, const std::string& where,
                             Log& log) {
  const ConfigJson json = io::parse_json_file<ConfigJson>(text, where);
  TRIREME_REQUIRE_INPUT(json.is_object(),
                        "'{}' is not a JSON object: is it the config.json "
                        "of a Hugging Face model?",
                        where);
  const auto type = json.value("model_type", ConfigJson("none"));
  TRIREME_REQUIRE_INPUT(type == "gpt2",
                        "'{}': model_type is {}; Trireme converts \"gpt2\" models", where,
                        io::json_excerpt(type));
  Fields fields(json);
  Gpt2Config config;
  config.layers = fields.size("n_layer");
  config.hidden = fields.size("n_embd");
  config.heads = fields.size("n_head");
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
  check_architecture(json, fields);
  if (!fields.problems().empty()) {
    std::string message =
        fmt::format("'{}' is not a model that Trireme can take:", where);
    for (const std::string& problem : fields.problems()) message += "\n  " + problem;
    throw InputError(message);
  }

  if (embedding_dropout != config.dropout) {
    log.warning("'{}': embd_pdrop is {}, resid_pdrop {}; the latter is used for both",
                where, embedding_dropout, config.dropout);
  }
  if (json.value("reorder_and_upcast_attn", ConfigJson(false)) != false) {
    log.warning(
        "'{}': reorder_and_upcast_attn changes the order of rounding only, and is "
        "not kept",
        where);
  }
  read_end_of_text(json, where, config, log);
  return config;
}

std::string gpt2_config_json(const Gpt2Config& config) {
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
  json["layer_norm_epsilon"] = kNormEpsilon;
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
  return io::exact_json_text(json, 2) + "\n";
}

}  // namespace trireme::ckpt
