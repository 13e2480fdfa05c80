// ckpt/training_state.cpp — index.h5; see training_state.hpp.
#include "ckpt/training_state.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/version.hpp"
#include "ckpt/build_identity.hpp"
#include "io/hdf5.hpp"

namespace trireme::ckpt {

namespace {

constexpr const char* kIndexFormat = "trireme-checkpoint";

void write_tensors(io::H5File& file, const Manifest& manifest) {
  std::vector<std::vector<io::VirtualPiece>> pieces(manifest.tensors.size());
  for (const BlockEntry& block : manifest.blocks) {
    const Shape& shape = manifest.tensors[block.tensor].shape;
    pieces[block.tensor].push_back({start_of(block.place, shape),
                                    extent_of(block.place, shape),
                                    manifest.files[block.file].name, block.dataset});
  }
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorEntry& tensor = manifest.tensors[i];
    file.make_virtual_dataset(tensor.name, tensor.dtype, tensor.shape, pieces[i]);
  }
}

}  // namespace

void write_index(const Path& path, const TrainingState& state, const Manifest& manifest,
                 WriteFault fault) {
  io::H5File file = io::H5File::create(path);
  file.fail_writes(fault);
  file.set_attribute("format", std::string(kIndexFormat));
  file.set_attribute("format_version", std::int64_t{kFormatVersion});
  file.set_attribute(
      "kind", std::string(manifest.has_optimizer_state() ? "training" : "weights"));
  file.set_attribute("parameters", manifest.parameter_count());
  file.set_attribute("step", state.step);
  file.set_attribute("samples", state.samples);
  file.set_attribute("tokens", state.tokens);
  file.set_attribute("seed", state.seed);
  file.set_attribute("data_seed", state.data_seed);
  file.set_attribute("loss_scale", state.loss_scale);
  file.set_attribute("loss_scale_steps", state.loss_scale_steps);
  file.set_attribute("skipped_steps", state.skipped_steps);
  file.set_attribute("best_loss", state.best_loss);
  file.set_attribute("best_step", state.best_step);
  file.set_attribute("version", program_version());
  // A dataset: attributes end at 64 KiB.
  file.write_text("deck", state.deck);
  io::H5Group grid = file.make_group("grid");
  for (const auto& [axis, ranks] : state.grid) grid.set_attribute(axis, ranks);
  io::H5Group build = file.make_group("build");
  for (const auto& [name, value] : build_identity()) build.set_attribute(name, value);
  io::H5Group tokenizer = file.make_group("tokenizer");
  for (const auto& [name, content] : state.tokenizer)
    tokenizer.write_bytes(name, content);
  for (const auto& [key, value] : state.tokenizer_attributes) {
    tokenizer.set_attribute(key, value);
  }
  io::H5Group extra = file.make_group("extra");
  for (const auto& [key, value] : state.numbers) extra.set_attribute(key, value);
  for (const auto& [key, value] : state.texts) extra.write_text(key, value);
  write_tensors(file, manifest);
  file.close();
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainingState, step, samples, tokens, seed, data_seed,
                                   loss_scale, loss_scale_steps, skipped_steps, best_loss,
                                   best_step, deck, version, grid, tokenizer,
                                   tokenizer_attributes, numbers, texts)

// CBOR: a tokenizer's files need not be text, and infinities are numbers there.
std::string bytes_of(const TrainingState& state) {
  std::string bytes;
  nlohmann::json::to_cbor(nlohmann::json(state), bytes);
  return bytes;
}

TrainingState state_from_bytes(const std::string& bytes) {
  return nlohmann::json::from_cbor(bytes).get<TrainingState>();
}

TrainingState read_state(const Path& path) {
  const io::H5File file = io::H5File::open(path);
  TRIREME_REQUIRE_INPUT(file.has_attribute("format") &&
                            file.attribute<std::string>("format") == kIndexFormat,
                        "'{}' is not the index of a checkpoint", path.string());
  TrainingState state;
  state.step = file.attribute<std::int64_t>("step");
  state.samples = file.attribute<std::int64_t>("samples");
  state.tokens = file.attribute<std::int64_t>("tokens");
  state.seed = file.attribute<std::uint64_t>("seed");
  state.data_seed = file.attribute<std::uint64_t>("data_seed");
  state.loss_scale = file.attribute<double>("loss_scale");
  state.loss_scale_steps = file.attribute<std::int64_t>("loss_scale_steps");
  state.skipped_steps = file.attribute<std::int64_t>("skipped_steps");
  state.best_loss = file.attribute<double>("best_loss");
  state.best_step = file.attribute<std::int64_t>("best_step");
  state.version = file.attribute<std::string>("version");
  state.deck = file.read_text("deck");
  const io::H5Group grid = file.group("grid");
  for (const std::string& axis : grid.attribute_names()) {
    state.grid[axis] = grid.attribute<std::int64_t>(axis);
  }
  const io::H5Group tokenizer = file.group("tokenizer");
  for (const std::string& name : tokenizer.children()) {
    state.tokenizer[name] = tokenizer.read_bytes(name);
  }
  for (const std::string& key : tokenizer.attribute_names()) {
    state.tokenizer_attributes[key] = tokenizer.attribute<std::string>(key);
  }
  const io::H5Group extra = file.group("extra");
  for (const std::string& key : extra.attribute_names()) {
    state.numbers[key] = extra.attribute<double>(key);
  }
  for (const std::string& key : extra.children()) state.texts[key] = extra.read_text(key);
  return state;
}

}  // namespace trireme::ckpt
