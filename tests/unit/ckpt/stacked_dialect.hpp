// tests/unit/ckpt/stacked_dialect.hpp — a dialect that has all that GPT-2's has not:
// tensors that are several there, transposed or not; names under which a tensor stands
// once more; weights that may be missing, those without its prefix; buffers. Its models
// are GPTs, so that checkpoints can be made of them.
#ifndef TRIREME_TESTS_UNIT_CKPT_STACKED_DIALECT_HPP_
#define TRIREME_TESTS_UNIT_CKPT_STACKED_DIALECT_HPP_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ckpt/dialect.hpp"
#include "io/files.hpp"
#include "io/safetensors.hpp"
#include "support/safetensors.hpp"

namespace trireme::test {

inline ckpt::ForeignConfig read_stacked_config(const nlohmann::json& json,
                                               const std::string&, Log&) {
  ckpt::ForeignConfig config;
  config.layers = json.at("layers");
  config.hidden = json.at("hidden");
  config.heads = config.kv_heads = json.at("heads");
  config.head_size = config.hidden / config.heads;
  config.ffn_hidden = json.at("inner");
  config.sequence = json.at("places");
  config.vocab = json.at("words");
  return config;
}

inline nlohmann::ordered_json stacked_config_json(const ckpt::ForeignConfig& config) {
  return {{"model_type", "stacked"},    {"layers", config.layers},
          {"hidden", config.hidden},    {"heads", config.heads},
          {"inner", config.ffn_hidden}, {"places", config.sequence},
          {"words", config.vocab}};
}

inline std::vector<ckpt::ForeignTensor> stacked_tensors(const config::ModelConfig& c) {
  std::vector<ckpt::ForeignTensor> tensors = {
      {.name = "embedding/word/weight",
       .theirs = {"body.words.weight"},
       .shape = {c.vocab, c.hidden},
       .aliases = {"top.words.weight", "body.words_again.weight"}},
      {.name = "embedding/position/weight",
       .theirs = {"top.places.weight"},
       .shape = {c.sequence, c.hidden},
       .if_missing = Initializer::normal(c.init_std)}};
  const auto add = [&](const std::string& ours, const std::vector<std::string>& theirs,
                       const Shape& shape, bool is_transposed = false) {
    const Shape bias = {shape[0]};
    for (const char* kind : {"weight", "bias"}) {
      const bool is_weight = kind == std::string("weight");
      tensors.push_back({.name = ours + "/" + kind,
                         .theirs = theirs,
                         .shape = is_weight ? shape : bias,
                         .is_transposed = is_weight && is_transposed});
      for (std::string& name : tensors.back().theirs) name += std::string(".") + kind;
    }
  };
  for (index_t i = 0; i < c.layers; ++i) {
    const std::string ours = fmt::format("layers/{}/", i);
    const std::string theirs = fmt::format("body.layer.{}.", i);
    add(ours + "input_norm", {theirs + "norm1"}, {c.hidden});
    add(ours + "attention/qkv", {theirs + "query", theirs + "key", theirs + "value"},
        {3 * c.hidden, c.hidden});
    add(ours + "attention/projection", {theirs + "out"}, {c.hidden, c.hidden});
    add(ours + "mlp_norm", {theirs + "norm2"}, {c.hidden});
    add(ours + "mlp/fc1", {theirs + "up_0", theirs + "up_1"}, {c.ffn_hidden, c.hidden},
        true);
    add(ours + "mlp/fc2", {theirs + "down"}, {c.hidden, c.ffn_hidden});
  }
  add("final_norm", {"top.norm"}, {c.hidden});
  tensors[tensors.size() - 2].if_missing = Initializer::constant(1.0);
  tensors.back().if_missing = Initializer::constant(0.0);
  return tensors;
}

inline ckpt::Dialect stacked_dialect() {
  return {.name = "Stacked",
          .model_type = "stacked",
          .kind = config::ModelKind::gpt,
          .prefix = "body.",
          .read_config = read_stacked_config,
          .config_json = stacked_config_json,
          .inexpressible =
              [](const config::ModelConfig& model) {
                return model.bias ? std::vector<std::string>()
                                  : std::vector<std::string>{
                                        "model.bias: only true can be "
                                        "exported"};
              },
          .tensors = stacked_tensors,
          .is_buffer = [](std::string_view name) { return name.ends_with("_ids"); }};
}

// A directory of theirs in memory, to be spoilt and written.
struct StackedFiles {
  struct Stored {
    Shape shape;
    std::vector<float> values;
  };

  StackedFiles() {
    config.layers = 2;
    config.hidden = 6;
    config.heads = config.kv_heads = 2;
    config.head_size = 3;
    config.ffn_hidden = 10;
    config.sequence = 7;
    config.vocab = 11;
    float next = 0.0f;
    for (const ckpt::ForeignTensor& tensor : stacked_tensors(config)) {
      for (const std::string& name : tensor.theirs) {
        Stored& stored = tensors[name];
        stored.shape = tensor.stored_shape();
        stored.values.resize(static_cast<std::size_t>(element_count(stored.shape)));
        for (float& value : stored.values) value = next += 0.125f;
      }
    }
  }

  io::Path write(const io::Path& directory) const {
    io::create_directories(directory);
    io::write_file(directory / "config.json", stacked_config_json(config).dump());
    io::SafetensorsWriter writer;
    for (const auto& [name, stored] : tensors) {
      writer.add(name, DType::float32, stored.shape, from_memory(stored.values.data()));
    }
    writer.write(directory / "model.safetensors");
    return directory;
  }

  ckpt::ForeignConfig config;
  std::map<std::string, Stored> tensors;
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_CKPT_STACKED_DIALECT_HPP_
