// ckpt/hugging_face.cpp — the files of a directory and the layout of its tensors; see
// hugging_face.hpp.
//
// A dialect's list says for every tensor its names on both sides, its shape and whether
// it is transposed; reading and writing walk along it. Of a tensor of ours that is
// several there (queries, keys and values) each is a run of whole rows, so that stacking
// them is putting one behind the other. Writing asks for a tensor of ours once, however
// many it is there: its parts follow one another.
#include "ckpt/hugging_face.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "ckpt/foreign_tokenizer.hpp"
#include "ckpt/numbers.hpp"
#include "data/vocabulary_size.hpp"
#include "io/atomic_file.hpp"
#include "io/files.hpp"
#include "io/json.hpp"

namespace trireme::ckpt {

namespace {

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

// Tensors of ours as theirs. The one that was asked for last is kept: its parts are
// written one after the other.
class StoredForm {
 public:
  explicit StoredForm(const WeightSource& source) : source_(source) {}

  // Fills `bytes` with part number `part` of a tensor.
  void write(const ForeignTensor& tensor, std::size_t part, std::span<std::byte> bytes) {
    read(tensor);
    const std::size_t count = values_.size() / tensor.theirs.size();
    const float* from = values_.data() + part * count;
    if (tensor.is_transposed) {
      const Shape stored = tensor.stored_shape();
      transposed_.resize(count);
      transpose(from, stored[1], stored[0], transposed_.data());
      from = transposed_.data();
    }
    TRIREME_REQUIRE(bytes.size() == count * sizeof(float), "'{}': {} for {}",
                    tensor.theirs[part], format_plural(bytes.size(), "byte"),
                    format_plural(count, "element"));
    if (count > 0) std::memcpy(bytes.data(), from, bytes.size());
  }

 private:
  void read(const ForeignTensor& tensor) {
    if (name_ == tensor.name) return;
    name_.clear();
    values_.resize(static_cast<std::size_t>(element_count(tensor.shape)));
    source_(tensor, values_);
    name_ = tensor.name;
  }

  const WeightSource& source_;
  std::string name_;  // of what values_ holds
  std::vector<float> values_, transposed_;
};

}  // namespace

bool is_hugging_face_directory(const io::Path& path) {
  return std::filesystem::is_regular_file(path / "config.json");
}

HuggingFaceModel::Recognised HuggingFaceModel::recognise(
    const io::Path& path, Log& log, std::span<const Dialect> dialects) {
  const std::string where = path.string();
  const auto config = io::parse_json_file<nlohmann::json>(
      io::read_file(path, "Hugging Face model's config.json"), where);
  const Dialect& dialect = dialect_of_config(config, where, dialects);
  Recognised recognised = {dialect, dialect.read_config(config, where, log)};
  try {
    if (config.contains(data::kTokensKey)) {
      recognised.second.tokens = io::json_value<std::int64_t>(config, data::kTokensKey);
    }
  } catch (const io::JsonError& error) {
    throw InputError(error.in_file(where));
  }
  return recognised;
}

HuggingFaceModel::HuggingFaceModel(const io::Path& directory, Log& log,
                                   std::span<const Dialect> dialects)
    : HuggingFaceModel(directory, log,
                       recognise(directory / "config.json", log, dialects)) {}

HuggingFaceModel::HuggingFaceModel(const io::Path& directory, Log& log,
                                   Recognised recognised)
    : dialect_(std::move(recognised.first)),
      config_(std::move(recognised.second)),
      reader_(directory) {
  for (const std::string& warning : reader_.warnings()) log.warning("{}", warning);
  complete(directory, log);
  check_tensors(directory, log);
  tokenizer_files_ = find_tokenizer(directory, dialect_, config_, log);
}

void HuggingFaceModel::complete(const io::Path& directory, Log& log) {
  // A config may claim any number of layers: names are made for no more than there can
  // be.
  const index_t layers = config_.total_layers();
  TRIREME_REQUIRE_INPUT(std::cmp_less_equal(layers, reader_.tensors().size()),
                        "'{}': config.json says {}, and the weights have {} in all: they "
                        "are of another model",
                        directory.string(), format_plural(layers, "layer"),
                        format_plural(reader_.tensors().size(), "tensor"));
  if (dialect_.complete != nullptr) {
    const auto has = [&](const std::string& name) { return find(name) != nullptr; };
    dialect_.complete(config_, has, directory.string(), log);
  }
  tensors_ = dialect_.tensors(config_);
}

const io::SafeTensor* HuggingFaceModel::find(const std::string& theirs) const {
  for (const std::string& name : {dialect_.without_prefix(theirs), theirs}) {
    if (reader_.has(name)) return &reader_.at(name);
  }
  return nullptr;
}

const io::SafeTensor* HuggingFaceModel::find_part(const ForeignTensor& tensor,
                                                  std::size_t part) const {
  const io::SafeTensor* found = find(tensor.theirs.at(part));
  for (const std::string& alias : tensor.aliases) {
    if (found == nullptr && tensor.theirs.size() == 1) found = find(alias);
  }
  return found;
}

std::vector<float> HuggingFaceModel::read_stored(const io::SafeTensor& stored) const {
  std::vector<float> values = reader_.read_float(stored.name);
  const TensorEntry entry{stored.name, DType::float32, stored.shape};
  BadNumbers numbers(entry);
  numbers.look_at(whole(entry.shape), 0,
                  reinterpret_cast<const std::byte*>(values.data()),
                  values.size() * sizeof(float));
  TRIREME_REQUIRE_INPUT(numbers.count() == 0,
                        "'{}': {}: no model can be made of them. Export it again from "
                        "where it was trained",
                        stored.file.string(), numbers.text());
  return values;
}

std::vector<float> HuggingFaceModel::read(const ForeignTensor& tensor) const {
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(element_count(tensor.shape)));
  for (std::size_t part = 0; part < tensor.theirs.size(); ++part) {
    const io::SafeTensor* found = find_part(tensor, part);
    TRIREME_REQUIRE(found != nullptr, "'{}' is read, which is missing",
                    tensor.theirs[part]);
    const std::vector<float> stored = read_stored(*found);
    const std::size_t begin = values.size();
    if (!tensor.is_transposed) {
      values.insert(values.end(), stored.begin(), stored.end());
      continue;
    }
    const Shape shape = tensor.stored_shape();
    values.resize(begin + stored.size());
    transpose(stored.data(), shape[0], shape[1], values.data() + begin);
  }
  return values;
}

std::size_t write_hugging_face(const io::Path& path, const Dialect& dialect,
                               const ForeignConfig& config, const WeightSource& source,
                               const data::TokenizerFiles& tokenizer,
                               std::uint64_t max_shard_bytes) {
  // "out/" names out.
  const io::Path directory = path.has_filename() ? path : path.parent_path();
  io::require_absent(directory);
  // These may throw, and are therefore made before anything is written.
  const WrittenTokenizer written = for_transformers(tokenizer, dialect, config);
  nlohmann::ordered_json config_json = dialect.config_json(config);
  if (written.tokens) config_json[data::kTokensKey] = *written.tokens;
  const std::string config_text = io::exact_json_text(config_json, 2) + "\n";
  nlohmann::ordered_json generation;
  if (dialect.generation_config != nullptr) {
    generation = dialect.generation_config(config);
  }
  const std::vector<ForeignTensor> tensors = dialect.tensors(config);
  StoredForm stored(source);
  io::SafetensorsWriter writer;
  for (const ForeignTensor& tensor : tensors) {
    for (std::size_t part = 0; part < tensor.theirs.size(); ++part) {
      writer.add(tensor.theirs[part], DType::float32, tensor.stored_shape(),
                 [&stored, &tensor, part](std::span<std::byte> bytes) {
                   stored.write(tensor, part, bytes);
                 });
    }
  }

  io::StagedDirectory staged(directory);
  for (const auto& [name, content] : written.files) {
    io::write_file(staged.temporary() / name, content);
  }
  io::write_file(staged.temporary() / "config.json", config_text);
  if (!generation.is_null()) {
    io::write_file(staged.temporary() / "generation_config.json",
                   io::exact_json_text(generation, 2) + "\n");
  }
  const std::size_t files = writer.write_model(staged.temporary(), max_shard_bytes);
  staged.commit();
  return files;
}

}  // namespace trireme::ckpt
