// ckpt/hugging_face.hpp — models as Hugging Face Transformers keeps them, read and
// written: a directory with config.json, model.safetensors (or several files with an
// index) and, where there is one, the tokenizer's files.
//
// What the tensors are called there, and how they lie, a Dialect says; which one,
// config.json does.
#ifndef TRIREME_CKPT_HUGGING_FACE_HPP_
#define TRIREME_CKPT_HUGGING_FACE_HPP_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "ckpt/dialect.hpp"
#include "data/tokenizer.hpp"
#include "io/safetensors.hpp"

namespace trireme::ckpt {

// Whether a path looks like a Hugging Face model: a directory with a config.json.
bool is_hugging_face_directory(const io::Path& path);

class HuggingFaceModel {
 public:
  // Reads config.json, maps the weights and checks that they are exactly those the
  // config asks for; one InputError names every missing, extra and wrong-shaped tensor,
  // and every one that should equal another and does not. A warning names those that the
  // dialect lets be missing.
  HuggingFaceModel(const io::Path& directory, Log& log,
                   std::span<const Dialect> dialects = known_dialects());

  const Dialect& dialect() const { return dialect_; }
  const ForeignConfig& config() const { return config_; }
  const std::vector<ForeignTensor>& tensors() const { return tensors_; }
  // The tokenizer's files as they are; empty where the directory has none that Trireme
  // can use (a warning says why).
  const data::TokenizerFiles& tokenizer_files() const { return tokenizer_files_; }

  // Whether the files have it: false only for what may be missing.
  bool has(const ForeignTensor& tensor) const { return find_part(tensor, 0) != nullptr; }
  // One tensor's elements in our layout, rounded to float where stored wider. InputError
  // where they are not finite.
  std::vector<float> read(const ForeignTensor& tensor) const;

 private:
  using Recognised = std::pair<Dialect, ForeignConfig>;
  static Recognised recognise(const io::Path& config, Log& log,
                              std::span<const Dialect> dialects);
  HuggingFaceModel(const io::Path& directory, Log& log, Recognised recognised);

  // What config.json leaves to the weights to say, and the tensors that there have to be.
  void complete(const io::Path& directory, Log& log);
  class TensorCheck;
  void check_tensors(const io::Path& directory, Log& log) const;
  // What the files hold under a name with or without the dialect's prefix; null: nothing.
  const io::SafeTensor* find(const std::string& theirs) const;
  // One of the tensors that ours is there, under the first of its names that there is.
  const io::SafeTensor* find_part(const ForeignTensor& tensor, std::size_t part) const;
  std::vector<float> read_stored(const io::SafeTensor& stored) const;

  Dialect dialect_;
  ForeignConfig config_;
  io::SafetensorsReader reader_;
  std::vector<ForeignTensor> tensors_;
  data::TokenizerFiles tokenizer_files_;
};

// Fills `values` with the elements, in our layout, of the tensor of that name.
using WeightSource =
    std::function<void(const ForeignTensor& tensor, std::span<float> values)>;

// What transformers' save_pretrained puts into one file, at most.
inline constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

// Writes a directory that transformers' from_pretrained loads: config.json,
// generation_config.json, the weights in fp32, the tokenizer's files; returns how many
// files the weights are. They are model.safetensors, or, where they take more than
// `max_shard_bytes`, files of at most so many and an index. The directory must not exist
// (InputError), and appears under its name only when whole.
std::size_t write_hugging_face(const io::Path& directory, const Dialect& dialect,
                               const ForeignConfig& config, const WeightSource& source,
                               const data::TokenizerFiles& tokenizer,
                               std::uint64_t max_shard_bytes = kDefaultShardBytes);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_HUGGING_FACE_HPP_
