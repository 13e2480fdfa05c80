// ckpt/hugging_face.hpp — GPT-2 models as Hugging Face Transformers keeps them, read and
// written: a directory with config.json, model.safetensors (or several files with an
// index) and, where there is one, the tokenizer's files.
//
// Their matrices are Conv1D's (in, out), ours (out, in); c_attn is [q; k; v] by whole
// heads in both. "transformer." before a name is optional; the causal-mask buffers of old
// files (attn.bias, attn.masked_bias) are no weights; the head is tied, so that
// lm_head.weight is accepted only where it equals the word embedding. Reference:
// transformers, models/gpt2/{configuration,modeling}_gpt2.py.
#ifndef TRIREME_CKPT_HUGGING_FACE_HPP_
#define TRIREME_CKPT_HUGGING_FACE_HPP_

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/shape.hpp"
#include "config/deck.hpp"
#include "data/tokenizer.hpp"
#include "io/safetensors.hpp"

namespace trireme::ckpt {

// What config.json says of the model, in the deck's terms (section `model`).
struct Gpt2Config : config::ModelConfig {
  // Only where it is inside the vocabulary.
  std::optional<index_t> end_of_text = {};
};

// One weight under both names. Shape is ours; theirs is the transpose where
// is_transposed.
struct Gpt2Tensor {
  std::string name;        // "layers/0/attention/qkv/weight"
  std::string their_name;  // "transformer.h.0.attn.c_attn.weight"
  Shape shape;
  bool is_transposed = false;
};

// Every weight of the model, in the order of the layers.
std::vector<Gpt2Tensor> gpt2_tensors(const Gpt2Config& config);

// config.json's text. `where` is for messages: an InputError lists all that is missing,
// of the wrong type or not what Trireme can compute; what is only odd is a warning.
Gpt2Config parse_gpt2_config(const std::string& text, const std::string& where, Log& log);
// The text of a config.json that transformers reads as the same model.
std::string gpt2_config_json(const Gpt2Config& config);

// Whether a path looks like a Hugging Face model: a directory with a config.json.
bool is_hugging_face_directory(const io::Path& path);

class HuggingFaceModel {
 public:
  // Reads config.json, maps the weights and checks that they are exactly those the
  // config asks for; one InputError names every missing, extra and wrong-shaped tensor.
  HuggingFaceModel(const io::Path& directory, Log& log);

  const Gpt2Config& config() const { return config_; }
  const std::vector<Gpt2Tensor>& tensors() const { return tensors_; }
  // The tokenizer's files as they are; empty where the directory has none that Trireme
  // can use (a warning says why).
  const data::TokenizerFiles& tokenizer_files() const { return tokenizer_files_; }

  // One tensor's elements in our layout, rounded to float where stored wider. InputError
  // where they are not finite.
  std::vector<float> read(const Gpt2Tensor& tensor) const;

 private:
  void check_tensors(const io::Path& directory, Log& log);
  // The name under which the file holds it: with or without "transformer.".
  std::string stored_name(const Gpt2Tensor& tensor) const;

  Gpt2Config config_;
  io::SafetensorsReader reader_;
  std::vector<Gpt2Tensor> tensors_;
  data::TokenizerFiles tokenizer_files_;
};

// Fills `values` with the elements, in our layout, of the tensor of that name.
using Gpt2Source = std::function<void(const Gpt2Tensor& tensor, std::span<float> values)>;

// Writes a directory that transformers' from_pretrained loads: config.json,
// generation_config.json, model.safetensors in fp32, the tokenizer's files. It must not
// exist (InputError), and appears under its name only when whole.
void write_hugging_face(const io::Path& directory, const Gpt2Config& config,
                        const Gpt2Source& source, const data::TokenizerFiles& tokenizer);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_HUGGING_FACE_HPP_
