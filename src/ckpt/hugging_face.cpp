// ckpt/hugging_face.cpp — the weights: names, shapes, transposition; see
// hugging_face.hpp.
//
// One list, gpt2_tensors(), says for every tensor its name on both sides, its shape and
// whether it is transposed; reading, checking and writing walk along it. Example: their
// h.0.mlp.c_fc.weight of shape (in, out) = (768, 3072) is our layers/0/mlp/fc1/weight of
// shape (3072, 768). All tensors are checked before the first is read, and at most a few
// of one kind are named, since a wrong number of layers would miss hundreds.
#include "ckpt/hugging_face.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "ckpt/numbers.hpp"
#include "io/atomic_file.hpp"
#include "io/element_types.hpp"
#include "io/files.hpp"
#include "io/json.hpp"

namespace trireme::ckpt {

namespace {

constexpr std::string_view kRootPrefix = "transformer.";
constexpr const char* kHead = "lm_head.weight";
// More of one kind than this say nothing new (a wrong n_layer misses hundreds).
constexpr std::size_t kListed = 100;

std::string without_prefix(const std::string& name) {
  return name.starts_with(kRootPrefix) ? name.substr(kRootPrefix.size()) : name;
}

// "h.0.attn.bias" and "h.0.attn.masked_bias": the causal mask as old versions saved it.
bool is_mask_buffer(const std::string& name) {
  return name.starts_with("h.") &&
         (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

Shape stored_shape(const Gpt2Tensor& tensor) {
  return tensor.is_transposed ? Shape{tensor.shape[1], tensor.shape[0]} : tensor.shape;
}

// to (columns, rows) = transpose of from (rows, columns), in tiles that stay in the
// cache.
void transpose(const float* from, index_t rows, index_t columns, float* to) {
  constexpr index_t kTile = 32;
  for (index_t i0 = 0; i0 < rows; i0 += kTile) {
    const index_t i1 = std::min(i0 + kTile, rows);
    for (index_t j0 = 0; j0 < columns; j0 += kTile) {
      const index_t j1 = std::min(j0 + kTile, columns);
      for (index_t i = i0; i < i1; ++i) {
        for (index_t j = j0; j < j1; ++j) to[j * rows + i] = from[i * columns + j];
      }
    }
  }
}

void append(std::string& message, const char* title,
            const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  message += fmt::format("\n  {} ({}):", title, lines.size());
  for (std::size_t i = 0; i < std::min(lines.size(), kListed); ++i) {
    message += "\n    " + lines[i];
  }
  if (lines.size() > kListed) {
    message += fmt::format("\n    ... and {} more", lines.size() - kListed);
  }
}

std::string describe(const Gpt2Config& c) {
  return fmt::format("{}, hidden {}, {}, MLP {}, sequence {}, vocabulary {}",
                     format_plural(c.layers, "layer"), c.hidden,
                     format_plural(c.heads, "head"), c.ffn_hidden, c.sequence, c.vocab);
}

// tokenizer.json says all; vocab.json and merges.txt are the older form of the same. One
// that Trireme cannot use does not keep the weights from being read.
data::TokenizerFiles find_tokenizer(const io::Path& directory, index_t vocab, Log& log) {
  data::TokenizerFiles files;
  const auto add = [&](const char* name) {
    if (!std::filesystem::exists(directory / name)) return false;
    files[name] = io::read_file(directory / name, "tokenizer file");
    return true;
  };
  if (!add("tokenizer.json") && (!add("vocab.json") || !add("merges.txt"))) return {};
  try {
    const index_t size = data::Tokenizer::from_files(files).vocabulary_size();
    if (size > vocab) {
      log.warning(
          "'{}': the tokenizer has {}, the model {}: text with the others cannot be used",
          directory.string(), format_plural(size, "token"), vocab);
    }
  } catch (const InputError& error) {
    log.warning("'{}': the tokenizer is left out: {}", directory.string(), error.what());
    return {};
  }
  return files;
}

// The tokenizer's files under the names that transformers looks for.
data::TokenizerFiles for_transformers(const data::TokenizerFiles& files,
                                      const Gpt2Config& config) {
  data::TokenizerFiles renamed;
  for (const auto& [name, content] : files) {
    renamed[name == "encoder.json" ? "vocab.json"
            : name == "vocab.bpe"  ? "merges.txt"
                                   : name] = content;
  }
  if (renamed.empty()) return renamed;
  nlohmann::ordered_json json;
  // A tokenizer.json may differ from GPT-2's in its pre-tokenizer; the generic class asks
  // nothing of it.
  json["tokenizer_class"] =
      renamed.contains("tokenizer.json") ? "PreTrainedTokenizerFast" : "GPT2Tokenizer";
  json["model_max_length"] = config.sequence;
  json["add_prefix_space"] = false;
  json["clean_up_tokenization_spaces"] = false;
  const data::Tokenizer tokenizer = data::Tokenizer::from_files(files);
  if (config.end_of_text && *config.end_of_text < tokenizer.vocabulary_size()) {
    const auto id = static_cast<data::TokenId>(*config.end_of_text);
    json["bos_token"] = json["eos_token"] = json["unk_token"] = tokenizer.decode({id});
  }
  renamed["tokenizer_config.json"] = io::exact_json_text(json, 2) + "\n";
  return renamed;
}

}  // namespace

std::vector<Gpt2Tensor> gpt2_tensors(const Gpt2Config& c) {
  std::vector<Gpt2Tensor> tensors;
  const auto vectors = [&](const std::string& ours, const std::string& theirs) {
    tensors.push_back({ours + "/weight", theirs + ".weight", {c.hidden}});
    tensors.push_back({ours + "/bias", theirs + ".bias", {c.hidden}});
  };
  const auto linear = [&](const std::string& ours, const std::string& theirs, index_t out,
                          index_t in) {
    tensors.push_back({ours + "/weight", theirs + ".weight", {out, in}, true});
    tensors.push_back({ours + "/bias", theirs + ".bias", {out}});
  };
  const std::string root(kRootPrefix);
  tensors.push_back({"embedding/word/weight", root + "wte.weight", {c.vocab, c.hidden}});
  tensors.push_back(
      {"embedding/position/weight", root + "wpe.weight", {c.sequence, c.hidden}});
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

namespace {

// A config may claim any number of layers: names are made for no more than there can be.
std::vector<Gpt2Tensor> tensors_of(const Gpt2Config& config,
                                   const io::SafetensorsReader& reader,
                                   const io::Path& directory) {
  TRIREME_REQUIRE_INPUT(std::cmp_less_equal(config.layers, reader.tensors().size()),
                        "'{}': config.json says {}, and the weights have {} in all: they "
                        "are of another model",
                        directory.string(), format_plural(config.layers, "layer"),
                        format_plural(reader.tensors().size(), "tensor"));
  return gpt2_tensors(config);
}

}  // namespace

bool is_hugging_face_directory(const io::Path& path) {
  return std::filesystem::is_regular_file(path / "config.json");
}

HuggingFaceModel::HuggingFaceModel(const io::Path& directory, Log& log)
    : config_(parse_gpt2_config(
          io::read_file(directory / "config.json", "Hugging Face model's config.json"),
          (directory / "config.json").string(), log)),
      reader_(directory),
      tensors_(tensors_of(config_, reader_, directory)),
      tokenizer_files_(find_tokenizer(directory, config_.vocab, log)) {
  check_tensors(directory, log);
}

std::string HuggingFaceModel::stored_name(const Gpt2Tensor& tensor) const {
  const std::string bare = without_prefix(tensor.their_name);
  return reader_.has(bare) ? bare : tensor.their_name;
}

void HuggingFaceModel::check_tensors(const io::Path& directory, Log& log) {
  std::vector<std::string> missing, wrong, extra;
  std::set<std::string> expected;
  bool narrows = false;
  for (const Gpt2Tensor& tensor : tensors_) {
    const std::string bare = without_prefix(tensor.their_name);
    expected.insert(bare);
    const std::string name = stored_name(tensor);
    if (!reader_.has(name)) {
      missing.push_back(fmt::format("{} {}", name, to_string(stored_shape(tensor))));
      continue;
    }
    const io::SafeTensor& found = reader_.at(name);
    if (found.shape != stored_shape(tensor)) {
      wrong.push_back(fmt::format("{}: expected {}, found {}", name,
                                  to_string(stored_shape(tensor)),
                                  to_string(found.shape)));
    } else if (!found.dtype || !io::is_real(*found.dtype)) {
      wrong.push_back(fmt::format("{}: expected F32, F64, F16 or BF16, found {}", name,
                                  found.format));
    }
    narrows = narrows || found.dtype == DType::float64;
  }
  for (const auto& [name, tensor] : reader_.tensors()) {
    const std::string bare = without_prefix(name);
    const bool twice = bare != name && reader_.has(bare);
    if (twice && expected.contains(bare)) {
      extra.push_back(fmt::format("{}: stored as {} too", name, bare));
    } else if (!expected.contains(bare) && !is_mask_buffer(bare) && name != kHead) {
      extra.push_back(fmt::format("{} {}", name, to_string(tensor.shape)));
    }
  }
  if (!missing.empty() || !wrong.empty() || !extra.empty()) {
    std::string message =
        fmt::format("'{}': the tensors are not those of its config.json (GPT-2 with {}):",
                    directory.string(), describe(config_));
    append(message, "missing", missing);
    append(message, "wrong", wrong);
    append(message, "not part of the model", extra);
    throw InputError(message);
  }
  if (reader_.has(kHead)) {
    const Gpt2Tensor& word = tensors_.front();
    const bool tied = reader_.at(kHead).shape == stored_shape(word) &&
                      reader_.read_float(kHead) == reader_.read_float(stored_name(word));
    TRIREME_REQUIRE_INPUT(
        tied,
        "'{}': lm_head.weight {} is not the word embedding {}; Trireme's GPT-2 ties "
        "them, so "
        "that a model with an output matrix of its own cannot be converted",
        directory.string(), to_string(reader_.at(kHead).shape),
        to_string(stored_shape(word)));
  }
  if (narrows) {
    log.warning("'{}' holds fp64 weights; they are rounded to fp32", directory.string());
  }
}

std::vector<float> HuggingFaceModel::read(const Gpt2Tensor& tensor) const {
  const std::string name = stored_name(tensor);
  std::vector<float> stored = reader_.read_float(name);
  const TensorEntry entry{name, DType::float32, stored_shape(tensor)};
  BadNumbers numbers(entry);
  numbers.look_at(whole(entry.shape), 0,
                  reinterpret_cast<const std::byte*>(stored.data()),
                  stored.size() * sizeof(float));
  TRIREME_REQUIRE_INPUT(numbers.count() == 0,
                        "'{}': {}: no model can be made of them. Export it again from "
                        "where it was trained",
                        reader_.at(name).file.string(), numbers.text());
  if (!tensor.is_transposed) return stored;
  std::vector<float> values(stored.size());
  transpose(stored.data(), tensor.shape[1], tensor.shape[0], values.data());
  return values;
}

void write_hugging_face(const io::Path& path, const Gpt2Config& config,
                        const Gpt2Source& source, const data::TokenizerFiles& tokenizer) {
  // "out/" names out.
  const io::Path directory = path.has_filename() ? path : path.parent_path();
  io::require_absent(directory);
  // These may throw, and are therefore made before anything is written.
  const data::TokenizerFiles text_files = for_transformers(tokenizer, config);
  io::StagedDirectory staged(directory);
  for (const auto& [name, content] : text_files) {
    io::write_file(staged.temporary() / name, content);
  }
  io::write_file(staged.temporary() / "config.json", gpt2_config_json(config));
  if (config.end_of_text) {
    nlohmann::ordered_json generation;
    generation["_from_model_config"] = true;
    generation["bos_token_id"] = generation["eos_token_id"] = *config.end_of_text;
    io::write_file(staged.temporary() / "generation_config.json",
                   io::exact_json_text(generation, 2) + "\n");
  }

  io::SafetensorsWriter writer;
  for (const Gpt2Tensor& tensor : gpt2_tensors(config)) {
    writer.add(tensor.their_name, DType::float32, stored_shape(tensor),
               [&source, tensor](std::span<std::byte> bytes) {
                 std::vector<float> values(bytes.size() / sizeof(float));
                 source(tensor, values);
                 if (tensor.is_transposed) {
                   std::vector<float> theirs(values.size());
                   transpose(values.data(), tensor.shape[0], tensor.shape[1],
                             theirs.data());
                   values.swap(theirs);
                 }
                 if (!bytes.empty())
                   std::memcpy(bytes.data(), values.data(), bytes.size());
               });
  }
  writer.write(staged.temporary() / "model.safetensors");
  staged.commit();
}

}  // namespace trireme::ckpt
