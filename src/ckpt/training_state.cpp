// ckpt/training_state.cpp — index.h5; see training_state.hpp.
//
// The state is stored as attributes and datasets, which people and scripts read with
// h5py; from rank to rank it travels as CBOR (bytes_of). Reading trusts nothing: the file
// must be of the same save as the manifest, every tensor must be there with its shape,
// and its virtual dataset must point to the very blocks that the manifest lists.
#include "ckpt/training_state.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/version.hpp"
#include "ckpt/build_identity.hpp"
#include "io/hdf5.hpp"

namespace trireme::ckpt {

namespace {

// The blocks that index.h5 shows each tensor by.
std::vector<std::vector<io::VirtualPiece>> pieces_of(const Manifest& manifest) {
  std::vector<std::vector<io::VirtualPiece>> pieces(manifest.tensors.size());
  for (const BlockEntry& block : manifest.blocks) {
    const Shape& shape = manifest.tensors[block.tensor].shape;
    pieces[block.tensor].push_back({start_of(block.place, shape),
                                    extent_of(block.place, shape),
                                    manifest.files[block.file].name, block.dataset});
  }
  return pieces;
}

void write_tensors(io::H5File& file, const Manifest& manifest) {
  const auto pieces = pieces_of(manifest);
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorEntry& tensor = manifest.tensors[i];
    file.make_virtual_dataset(tensor.name, tensor.dtype, tensor.shape, pieces[i]);
  }
}

// What of a state is an attribute of the index, in the order in which they are written.
template <class State, class Use>
void each_attribute(State& state, const Use& use) {
  use("step", state.step);
  use("samples", state.samples);
  use("tokens", state.tokens);
  use("seed", state.seed);
  use("data_seed", state.data_seed);
  use("loss_scale", state.loss_scale);
  use("loss_scale_steps", state.loss_scale_steps);
  use("skipped_steps", state.skipped_steps);
  use("best_loss", state.best_loss);
  use("best_step", state.best_step);
  use("version", state.version);
}

}  // namespace

void write_index(const Path& path, const TrainingState& state, const Manifest& manifest,
                 Fault fault) {
  io::H5File file = io::H5File::create(path);
  file.fail_writes(fault);
  file.set_attribute("format", std::string(kFormat));
  file.set_attribute("format_version", std::int64_t{kFormatVersion});
  file.set_attribute("run", manifest.run);
  file.set_attribute("save", manifest.save);
  file.set_attribute(
      "kind", std::string(manifest.has_optimizer_state() ? "training" : "weights"));
  file.set_attribute("parameters", manifest.parameter_count());
  TrainingState stored = state;
  stored.version = program_version();
  each_attribute(stored, [&](const char* name, const auto& value) {
    file.set_attribute(name, value);
  });
  // The deck is a dataset, because attributes end at 64 KiB.
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

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainingState, run, step, samples, tokens, seed,
                                   data_seed, loss_scale, loss_scale_steps, skipped_steps,
                                   best_loss, best_step, deck, version, grid, tokenizer,
                                   tokenizer_attributes, numbers, texts)

// The state travels as CBOR, because a tokenizer's files need not be text, and because
// infinities are numbers there.
std::string bytes_of(const TrainingState& state) {
  std::string bytes;
  nlohmann::json::to_cbor(nlohmann::json(state), bytes);
  return bytes;
}

TrainingState state_from_bytes(const std::string& bytes) {
  return nlohmann::json::from_cbor(bytes).get<TrainingState>();
}

namespace {

TrainingState read_state(const io::H5File& file) {
  TrainingState state;
  if (file.has_attribute("run")) state.run = file.attribute<std::string>("run");
  each_attribute(state, [&](const char* name, auto& value) {
    value = file.attribute<std::remove_reference_t<decltype(value)>>(name);
  });
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

void check_state(const TrainingState& state, const std::string& where) {
  const auto check = [&](const char* name, auto value, bool holds, const char* expected) {
    TRIREME_REQUIRE_INPUT(holds, "'{}': {} is {}; expected {}", where, name, value,
                          expected);
  };
  const auto check_count = [&](const char* name, std::int64_t value) {
    check(name, value, value >= 0 && value <= kMaxCount, "a count");
  };
  check_count("step", state.step);
  check_count("samples", state.samples);
  check_count("tokens", state.tokens);
  check_count("loss_scale_steps", state.loss_scale_steps);
  check_count("skipped_steps", state.skipped_steps);
  check("loss_scale", state.loss_scale,
        std::isfinite(state.loss_scale) && state.loss_scale > 0.0, "a number above 0");
  check("best_loss", state.best_loss, std::isfinite(state.best_loss), "a number");
  check("best_step", state.best_step,
        state.best_step >= -1 && state.best_step <= state.step,
        "a step up to the checkpoint's, or -1");
}

// Requires the index and the manifest to be of one save, by all that both say of it.
void check_identity(const io::H5File& file, const TrainingState& state,
                    const Manifest& manifest) {
  Identity found{state.run, "", state.step};
  if (file.has_attribute("save")) found.save = file.attribute<std::string>("save");
  TRIREME_REQUIRE_INPUT(found == manifest.identity(),
                        "'{}' is not the index of this checkpoint: it is of {}, {} of "
                        "{}. Put the right one "
                        "back, or take another checkpoint",
                        file.file(), found.text(), kManifestName,
                        manifest.identity().text());
  TRIREME_REQUIRE_INPUT(manifest.is_old() || (state.samples == manifest.samples &&
                                              state.tokens == manifest.tokens),
                        "'{}' counts {} and {}, {} {} and {}: one of them was changed. "
                        "Take another checkpoint",
                        file.file(), format_plural(state.samples, "sample"),
                        format_plural(state.tokens, "token"), kManifestName,
                        manifest.samples, manifest.tokens);
}

// Pieces in the order of their starts: the manifest and HDF5 list them in orders of their
// own.
std::vector<io::VirtualPiece> in_order(std::vector<io::VirtualPiece> pieces) {
  std::ranges::sort(pieces, {}, &io::VirtualPiece::start);
  return pieces;
}

// Requires the index to show every tensor of the manifest with its shape and blocks, no
// tensor besides, and no links.
void check_tensors(const io::H5File& file, const Manifest& manifest) {
  std::set<std::string> found;
  for (const io::H5Entry& entry : file.tree()) {
    TRIREME_REQUIRE_INPUT(entry.kind != io::H5Entry::Kind::link,
                          "'{}': /{} is a link: what it leads to is no part of the "
                          "checkpoint. Take another one",
                          file.file(), entry.path);
    const bool is_tensor =
        entry.path.starts_with(kModelGroup) || entry.path.starts_with("optimizer/");
    if (is_tensor && entry.kind == io::H5Entry::Kind::dataset) found.insert(entry.path);
  }
  const auto pieces = pieces_of(manifest);
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorEntry& tensor = manifest.tensors[i];
    TRIREME_REQUIRE_INPUT(found.erase(tensor.name) == 1,
                          "'{}' does not show the tensor '{}' that {} lists", file.file(),
                          tensor.name, kManifestName);
    const io::H5Dataset dataset = file.dataset(tensor.name);
    TRIREME_REQUIRE_INPUT(
        dataset.shape() == tensor.shape && dataset.dtype() == tensor.dtype,
        "'{}' shows '{}' as {} {}, {} lists it as {} {}", file.file(), tensor.name,
        name_of(dataset.dtype()), to_string(dataset.shape()), kManifestName,
        name_of(tensor.dtype), to_string(tensor.shape));
    TRIREME_REQUIRE_INPUT(
        dataset.is_virtual() && in_order(dataset.pieces()) == in_order(pieces[i]),
        "'{}' takes '{}' from other places than the blocks that {} lists", file.file(),
        tensor.name, kManifestName);
  }
  TRIREME_REQUIRE_INPUT(found.empty(), "'{}' shows a tensor '{}' that {} does not list",
                        file.file(), *found.begin(), kManifestName);
}

}  // namespace

TrainingState read_index(const Path& directory, const Manifest& manifest) {
  const Path path = directory / kIndexName;
  try {
    const io::H5File file = io::H5File::open(path);
    TRIREME_REQUIRE_INPUT(
        file.has_attribute("format") && file.attribute<std::string>("format") == kFormat,
        "'{}' is not the index of a checkpoint", path.string());
    TrainingState state = read_state(file);
    check_identity(file, state, manifest);
    check_state(state, path.string());
    check_tensors(file, manifest);
    return state;
  } catch (const InputError&) {
    throw;
  } catch (const io::ReadError&) {
    throw;
  } catch (const Error& error) {
    // The checksum of the file holds, so that what HDF5 stumbles over was written that
    // way.
    throw InputError(fmt::format("'{}' is damaged: {}; take another checkpoint",
                                 path.string(), error.what()));
  }
}

}  // namespace trireme::ckpt
