// ckpt/convert.cpp — see convert.hpp.
//
// Converting goes by the way of a checkpoint in both directions: importing writes one
// with the ordinary writer, and exporting reads one with the ordinary reader, so that
// neither has a format of its own to keep. All that the user may have got wrong (a name
// that is taken, a model that no dialect has, tensors of other shapes) is found before
// anything is written. Errors name the file and the key or tensor at fault.
#include "ckpt/convert.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "ckpt/directory.hpp"
#include "ckpt/initial_values.hpp"
#include "ckpt/reader.hpp"
#include "ckpt/save.hpp"
#include "ckpt/special_token.hpp"
#include "comm/self_communicator.hpp"
#include "config/enums.hpp"
#include "config/key_table.hpp"
#include "config/load.hpp"
#include "data/tokenizer.hpp"
#include "io/atomic_file.hpp"

namespace trireme::ckpt {

namespace {

// "out/" names out.
io::Path bare(const io::Path& path) {
  return path.has_filename() ? path : path.parent_path();
}

// Asked before the work and not after it: can a directory be made there? A wrong name is
// the user's.
void require_makeable(const io::Path& out) {
  try {
    const io::StagedDirectory probe(out);
  } catch (const Error& error) {
    throw InputError(fmt::format("output '{}': {}", out.string(), error.what()));
  }
}

// Lengths that config.json has not: a new deck's are taken.
bool is_not_said(const config::ModelConfig& model, std::string_view key) {
  return (key == "model.max_predictions" && model.max_predictions == 0) ||
         (key == "model.decoder_sequence" && model.decoder_sequence == 0);
}

// A deck that trains this model, once a corpus is named, on pairs of the kind that its
// head judges.
config::Deck deck_of(const HuggingFaceModel& foreign, const std::string& name) {
  const config::ModelConfig& model = foreign.config();
  config::Deck said;
  said.model = model;
  std::string text = "model:\n";
  for (const config::Key& key : config::key_table()) {
    const std::string section = "model.";
    const std::string value = key.write(said);
    if (!key.info.path.starts_with(section) || value.empty()) continue;
    if (is_not_said(model, key.info.path)) continue;
    text += fmt::format("  {}: {}\n", key.info.path.substr(section.size()), value);
  }
  if (model.binary_head) {
    text += fmt::format("data:\n  pairs: {}\n", config::name_of(foreign.dialect().pairs));
  }
  return config::parse(text, name);
}

TrainingState state_of(const HuggingFaceModel& model, const std::string& name) {
  const config::Deck deck = deck_of(model, name);
  TrainingState state;
  state.seed = deck.run.seed;
  state.data_seed = deck.data.seed;
  state.deck = config::resolved_text(deck);
  state.tokenizer = model.tokenizer_files();
  const auto keep = [&](data::Special special, const std::optional<index_t>& id) {
    if (id) state.tokenizer_attributes[attribute_of(special)] = std::to_string(*id);
  };
  keep(data::Special::end_of_document, model.config().end_of_text);
  keep(data::Special::padding, model.config().padding);
  return state;
}

// The checkpoint's tokenizer; none where it has none, or its files are none.
std::optional<data::Tokenizer> tokenizer_of(const TrainingState& state) {
  if (state.tokenizer.empty()) return std::nullopt;
  try {
    return data::Tokenizer::from_files(state.tokenizer);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

ForeignConfig config_of(const CheckpointReader& reader, const config::Deck& deck) {
  ForeignConfig config{deck.model, {}, {}};
  // The deck may leave the vocabulary to the corpus; the tensor has it.
  config.vocab =
      reader.tensor(std::string(kModelGroup) + "embedding/word/weight").shape.at(0);
  const TrainingState& state = reader.state();
  const auto tokenizer = tokenizer_of(state);
  const auto known = [&](data::Special special) -> std::optional<index_t> {
    const auto id = special_token(state, tokenizer, special);
    if (!id || *id >= config.vocab) return std::nullopt;
    return *id;
  };
  config.end_of_text = known(data::Special::end_of_document);
  config.padding = known(data::Special::padding);
  return config;
}

// Requires every weight to be there with its shape, and none besides.
void check_weights(const CheckpointReader& reader,
                   const std::vector<ForeignTensor>& tensors) {
  std::string problems;
  std::size_t found = 0;
  for (const ForeignTensor& tensor : tensors) {
    const std::string name = kModelGroup + tensor.name;
    if (!reader.has(name)) {
      problems += fmt::format("\n  {} {}: missing", name, to_string(tensor.shape));
      continue;
    }
    ++found;
    const Shape& shape = reader.tensor(name).shape;
    if (shape != tensor.shape) {
      problems += fmt::format("\n  {}: expected {}, found {}", name,
                              to_string(tensor.shape), to_string(shape));
    }
  }
  const auto& all = reader.manifest().tensors;
  const auto weights = std::count_if(
      all.begin(), all.end(),
      [](const TensorEntry& tensor) { return tensor.name.starts_with(kModelGroup); });
  if (static_cast<std::size_t>(weights) != found) {
    problems +=
        fmt::format("\n  {} that are not part of the model",
                    format_plural(static_cast<std::size_t>(weights) - found, "tensor"));
  }
  TRIREME_REQUIRE_INPUT(problems.empty(),
                        "'{}': the weights are not those its deck asks for:{}",
                        reader.path().string(), problems);
}

// An import of what is written takes the head of pairs for one that judges the dialect's.
void warn_of_pairs(const config::Deck& deck, const Dialect& dialect,
                   const std::string& where, Log& log) {
  if (!deck.model.binary_head || deck.data.pairs == dialect.pairs) return;
  log.warning(
      "'{}': data.pairs: {} is not kept: config.json has no word for what the head of "
      "pairs judges, and that of transformers' {} is taken to judge {}",
      where, config::name_of(deck.data.pairs), dialect.name,
      config::name_of(dialect.pairs));
}

}  // namespace

Converted import_hugging_face(const io::Path& directory, const io::Path& out_name,
                              Log& log, std::span<const Dialect> dialects) {
  const io::Path out = bare(out_name);
  io::require_absent(out);
  require_makeable(out);
  const HuggingFaceModel model(directory, log, dialects);
  const TrainingState state = state_of(model, bare(directory).filename().string());

  Converted result{directory, out};
  result.has_tokenizer = !state.tokenizer.empty();
  std::vector<std::vector<float>> values;
  std::vector<TensorPart> parts;
  for (const ForeignTensor& tensor : model.tensors()) {
    values.push_back(model.has(tensor) ? model.read(tensor)
                                       : initial_values(tensor.name, tensor.shape,
                                                        *tensor.if_missing, state.seed));
    const Rectangle all = whole(tensor.shape);
    parts.push_back({kModelGroup + tensor.name,
                     DType::float32,
                     tensor.shape,
                     {{all, 0, all.columns}},
                     reinterpret_cast<const std::byte*>(values.back().data()),
                     true});
    result.parameters += element_count(tensor.shape);
    ++result.tensors;
  }
  const auto self = comm::make_self_communicator("convert");
  // What is in host memory is written without a launch: no GPU is needed.
  io::StagedDirectory staged(out);
  save_checkpoint(Exec::shape_only(), *self, staged.temporary(), state, parts);
  staged.commit();
  return result;
}

Converted export_hugging_face(const io::Path& checkpoint, const io::Path& out_name,
                              Log& log, std::uint64_t max_shard_bytes,
                              std::span<const Dialect> dialects) {
  const io::Path out = bare(out_name);
  io::require_absent(out);
  require_makeable(out);
  const CheckpointReader reader = open_newest(checkpoint, log);
  const config::Deck deck = config::parse_resolved(reader.state().deck);
  const ForeignConfig config = config_of(reader, deck);
  const Dialect& dialect = dialect_of_model(config, reader.path().string(), dialects);
  const std::vector<ForeignTensor> tensors = dialect.tensors(config);
  check_weights(reader, tensors);
  if (dialect.left_out != nullptr) {
    for (const std::string& line : dialect.left_out(config)) {
      log.warning("'{}': {}", reader.path().string(), line);
    }
  }
  warn_of_pairs(deck, dialect, reader.path().string(), log);
  const std::size_t files = write_hugging_face(
      out, dialect, config,
      [&](const ForeignTensor& tensor, std::span<float> values) {
        const std::vector<float> stored = reader.read_whole(kModelGroup + tensor.name);
        TRIREME_REQUIRE(stored.size() == values.size(), "'{}' has {}, expected {}",
                        tensor.name, format_plural(stored.size(), "element"),
                        values.size());
        std::copy(stored.begin(), stored.end(), values.begin());
      },
      reader.state().tokenizer, max_shard_bytes);

  Converted result{reader.path(), out};
  result.files = files;
  for (const ForeignTensor& tensor : tensors)
    result.parameters += element_count(tensor.shape);
  result.tensors = tensors.size();
  result.step = reader.manifest().step;
  result.has_tokenizer = !reader.state().tokenizer.empty();
  result.drops_optimizer = reader.manifest().has_optimizer_state();
  return result;
}

}  // namespace trireme::ckpt
