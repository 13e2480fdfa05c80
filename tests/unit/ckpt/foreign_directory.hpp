// tests/unit/ckpt/foreign_directory.hpp — what transformers has saved of a small model,
// in memory, to be spoilt and written; and what conversions of it must keep.
#ifndef TRIREME_TESTS_UNIT_CKPT_FOREIGN_DIRECTORY_HPP_
#define TRIREME_TESTS_UNIT_CKPT_FOREIGN_DIRECTORY_HPP_

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "ckpt/convert.hpp"
#include "ckpt/hugging_face.hpp"
#include "ckpt/reader.hpp"
#include "config/load.hpp"
#include "io/files.hpp"
#include "io/safetensors.hpp"
#include "support/safetensors.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::test {

inline io::Path parity_directory(const std::string& name) {
  const char* source = std::getenv("TRIREME_SOURCE_DIR");
  return io::Path(source != nullptr ? source : ".") / "tests/parity/fixtures" / name;
}

struct ForeignDirectory {
  struct Stored {
    Shape shape;
    std::vector<float> values;
  };

  explicit ForeignDirectory(const char* fixture)
      : ForeignDirectory(parity_directory(fixture)) {}
  explicit ForeignDirectory(const io::Path& from) {
    const io::SafetensorsReader reader(from / "model.safetensors");
    for (const auto& [name, tensor] : reader.tensors()) {
      tensors[name] = {tensor.shape, reader.read_float(name)};
    }
    config = nlohmann::json::parse(io::read_file(from / "config.json"));
  }

  // Takes the front of names off, and leaves out the tensors that do not have it.
  void strip_prefix(const std::string& prefix) {
    std::map<std::string, Stored> bare;
    for (const auto& [name, tensor] : tensors) {
      if (name.starts_with(prefix)) bare[name.substr(prefix.size())] = tensor;
    }
    tensors = bare;
  }
  void erase_all(const std::string& prefix) {
    std::erase_if(tensors,
                  [&](const auto& entry) { return entry.first.starts_with(prefix); });
  }
  // For every name that ends so, another end.
  void rename_ends(const std::string& end, const std::string& other) {
    std::map<std::string, Stored> renamed;
    for (const auto& [name, tensor] : tensors) {
      const bool has_end = name.ends_with(end);
      renamed[has_end ? name.substr(0, name.size() - end.size()) + other : name] = tensor;
    }
    tensors = renamed;
  }

  io::Path write(const io::Path& directory) const {
    io::create_directories(directory);
    io::write_file(directory / "config.json", config.dump());
    io::SafetensorsWriter writer;
    for (const auto& [name, stored] : tensors) {
      writer.add(name, DType::float32, stored.shape, from_memory(stored.values.data()));
    }
    writer.write(directory / "model.safetensors");
    return directory;
  }
  // In so many files, dealt round by round: what is one tensor here is in several of
  // them.
  io::Path write_dealt(const io::Path& directory, std::size_t files) const {
    io::create_directories(directory);
    io::write_file(directory / "config.json", config.dump());
    nlohmann::json index;
    for (std::size_t file = 0; file < files; ++file) {
      const std::string name =
          fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, files);
      io::SafetensorsWriter writer;
      std::size_t number = 0;
      for (const auto& [tensor, stored] : tensors) {
        if (number++ % files != file) continue;
        writer.add(tensor, DType::float32, stored.shape,
                   from_memory(stored.values.data()));
        index["weight_map"][tensor] = name;
      }
      writer.write(directory / name);
    }
    io::write_file(directory / "model.safetensors.index.json", index.dump());
    return directory;
  }

  nlohmann::json config;
  std::map<std::string, Stored> tensors;
};

// Tests on directories that they spoil.
class ForeignDirectoryTest : public ::testing::Test {
 protected:
  io::Path theirs() const { return scratch_ / "theirs"; }
  ckpt::HuggingFaceModel model_of(const ForeignDirectory& files) {
    return ckpt::HuggingFaceModel(files.write(theirs()), log_);
  }
  std::string error_of(const ForeignDirectory& files) {
    return message_of<InputError>([&] { model_of(files); });
  }
  std::string error_of_config(ForeignDirectory files, const char* key,
                              const nlohmann::json& value) {
    files.config[key] = value;
    return error_of(files);
  }
  // In the checkpoint that `ours` is.
  config::Deck deck_of_checkpoint() const {
    const ckpt::CheckpointReader reader(scratch_ / "ours" / "latest");
    return config::parse_resolved(reader.state().deck);
  }
  config::ModelConfig model_of_checkpoint() const { return deck_of_checkpoint().model; }

  Scratch scratch_;
  Log log_{false};
};

inline std::vector<float> read_ours(const ckpt::HuggingFaceModel& model,
                                    const std::string& name) {
  for (const ckpt::ForeignTensor& tensor : model.tensors()) {
    if (tensor.name == name) return model.read(tensor);
  }
  throw Error("no tensor " + name);
}

// The oracle beside a fixture has a gradient for each parameter of ours.
inline void expect_names_of_oracle(const std::string& fixture) {
  Log log(false);
  const ckpt::HuggingFaceModel model(parity_directory(fixture), log);
  EXPECT_TRUE(log.warnings().empty()) << log.warnings().front();
  const io::SafetensorsReader oracle(parity_directory(fixture) / "oracle.safetensors");
  std::size_t gradients = 0;
  for (const auto& [name, tensor] : oracle.tensors()) {
    if (name.starts_with("gradient/")) ++gradients;
  }
  EXPECT_EQ(model.tensors().size(), gradients);
  for (const ckpt::ForeignTensor& tensor : model.tensors()) {
    EXPECT_EQ(tensor.shape, oracle.at("gradient/" + tensor.name).shape) << tensor.name;
  }
}

inline void expect_same_files(const io::Path& a, const io::Path& b) {
  const io::SafetensorsReader before(a), after(b);
  EXPECT_EQ(before.tensors().size(), after.tensors().size());
  for (const auto& [name, tensor] : before.tensors()) {
    ASSERT_TRUE(after.has(name)) << name;
    EXPECT_EQ(after.at(name).shape, tensor.shape) << name;
    EXPECT_EQ(elements<float>(after.at(name)), elements<float>(tensor)) << name;
  }
}

// Theirs, ours, theirs, in one file and in several, read and written: the same bits, and
// every key of config.json that both write has the same value.
inline void expect_round_trip(const io::Path& theirs, const io::Path& scratch) {
  Log log(false);
  ckpt::import_hugging_face(theirs, scratch / "ours", log);
  ckpt::export_hugging_face(scratch / "ours", scratch / "again", log);
  const ckpt::Converted cut =
      ckpt::export_hugging_face(scratch / "ours", scratch / "cut", log, 20000);
  EXPECT_GT(cut.files, 3u);
  expect_same_files(theirs, scratch / "again");
  expect_same_files(theirs, scratch / "cut");
  const io::Path dealt = ForeignDirectory(theirs).write_dealt(scratch / "dealt", 3);
  for (const io::Path& several : {scratch / "cut", dealt}) {
    const io::Path name = several.filename();
    ckpt::import_hugging_face(several, scratch / "ours_of" / name, log);
    ckpt::export_hugging_face(scratch / "ours_of" / name, scratch / "again_of" / name,
                              log);
    expect_same_files(theirs, scratch / "again_of" / name);
  }
  EXPECT_TRUE(log.warnings().empty()) << log.warnings().front();
  const auto read = [](const io::Path& directory) {
    return nlohmann::json::parse(io::read_file(directory / "config.json"));
  };
  const nlohmann::json before = read(theirs), after = read(scratch / "again");
  for (const auto& [key, value] : after.items()) {
    if (!before.contains(key)) continue;
    EXPECT_EQ(value, before[key]) << key;
  }
}

// Parameters of the model that a config.json describes.
inline index_t parameters_of(const nlohmann::json& config) {
  Log log(false);
  const ckpt::Dialect& dialect =
      ckpt::dialect_of_config(config, "config.json", ckpt::known_dialects());
  const ckpt::ForeignConfig model = dialect.read_config(config, "config.json", log);
  EXPECT_TRUE(log.warnings().empty()) << log.warnings().front();
  EXPECT_TRUE(dialect.inexpressible(model).empty());
  // What is written is read as the same.
  const std::string once = dialect.config_json(model).dump();
  const auto json = nlohmann::json::parse(once);
  EXPECT_EQ(dialect.config_json(dialect.read_config(json, "again", log)).dump(), once);
  for (const auto& [key, value] : json.items()) {
    if (!config.contains(key)) continue;
    EXPECT_EQ(value, config[key]) << key;
  }
  index_t sum = 0;
  for (const ckpt::ForeignTensor& tensor : dialect.tensors(model)) {
    sum += element_count(tensor.shape);
  }
  return sum;
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_CKPT_FOREIGN_DIRECTORY_HPP_
