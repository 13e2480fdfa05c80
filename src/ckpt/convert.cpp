// ckpt/convert.cpp — see convert.hpp.
//
// Converting goes by the way of a checkpoint in both directions: importing writes one
// with the ordinary writer, and exporting reads one with the ordinary reader, so that
// neither has a format of its own to keep. All that the user may have got wrong (a name
// that is taken, a model that is no GPT-2, tensors of other shapes) is found before
// anything is written. Errors name the file and the key or tensor at fault.
#include "ckpt/convert.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/words.hpp"
#include "ckpt/directory.hpp"
#include "ckpt/hugging_face.hpp"
#include "ckpt/reader.hpp"
#include "ckpt/save.hpp"
#include "comm/self_communicator.hpp"
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

// A deck that trains this model, once a corpus is named.
config::Deck deck_of(const Gpt2Config& c, const std::string& name) {
  const std::string text = fmt::format(
      "model: {{kind: gpt, layers: {}, hidden: {}, heads: {}, ffn_hidden: {}, sequence: "
      "{}, "
      "vocab: {}, dropout: {}, attention_dropout: {}, init_std: {}}}\n",
      c.layers, c.hidden, c.heads, c.ffn_hidden, c.sequence, c.vocab, c.dropout,
      c.attention_dropout, c.init_std);
  return config::parse(text, name);
}

TrainingState state_of(const HuggingFaceModel& model, const std::string& name) {
  const config::Deck deck = deck_of(model.config(), name);
  TrainingState state;
  state.seed = deck.run.seed;
  state.data_seed = deck.data.seed;
  state.deck = config::resolved_text(deck);
  state.tokenizer = model.tokenizer_files();
  if (model.config().end_of_text) {
    state.tokenizer_attributes["end_of_document"] =
        std::to_string(*model.config().end_of_text);
  }
  return state;
}

// Refuses a model that has something which GPT-2 in transformers has not.
void require_gpt2(const config::ModelConfig& model, const std::string& where) {
  std::string problems;
  const auto check = [&](bool holds, const char* key, const char* only) {
    if (!holds)
      problems += fmt::format("\n  model.{}: only {} can be exported", key, only);
  };
  check(model.kind == config::ModelKind::gpt, "kind", "gpt");
  check(model.norm == config::Norm::layernorm, "norm", "layernorm");
  check(model.activation == config::Activation::gelu_tanh, "activation", "gelu_tanh");
  check(model.position == config::Position::learned, "position", "learned");
  check(!model.has_own_head_size(), "head_size", "hidden / heads");
  check(model.kv_heads == model.heads, "kv_heads", "as many as heads");
  check(model.bias, "bias", "true");
  check(model.tie_embeddings, "tie_embeddings", "true");
  TRIREME_REQUIRE_INPUT(problems.empty(),
                        "'{}' is not a model that transformers' GPT-2 can express:{}",
                        where, problems);
}

std::optional<index_t> end_of_text(const TrainingState& state, index_t vocab) {
  std::optional<index_t> id;
  const auto it = state.tokenizer_attributes.find("end_of_document");
  if (it != state.tokenizer_attributes.end()) {
    id = number_in<index_t>(it->second);
  } else if (!state.tokenizer.empty()) {
    try {
      id = data::Tokenizer::from_files(state.tokenizer).end_of_document();
    } catch (const InputError&) {
      // The files are no tokenizer, so that no end is known.
    }
  }
  if (id && (*id < 0 || *id >= vocab)) id.reset();
  return id;
}

Gpt2Config config_of(const CheckpointReader& reader) {
  const std::string where = reader.path().string();
  const config::ModelConfig model = config::parse_resolved(reader.state().deck).model;
  require_gpt2(model, where);
  Gpt2Config config{model, {}};
  // The deck may leave the vocabulary to the corpus; the tensor has it.
  config.vocab =
      reader.tensor(std::string(kModelGroup) + "embedding/word/weight").shape.at(0);
  config.end_of_text = end_of_text(reader.state(), config.vocab);
  return config;
}

// Requires every weight to be there with its shape, and none besides.
void check_weights(const CheckpointReader& reader,
                   const std::vector<Gpt2Tensor>& tensors) {
  std::string problems;
  std::size_t found = 0;
  for (const Gpt2Tensor& tensor : tensors) {
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

}  // namespace

Converted import_hugging_face(const io::Path& directory, const io::Path& out_name,
                              Log& log) {
  const io::Path out = bare(out_name);
  io::require_absent(out);
  require_makeable(out);
  const HuggingFaceModel model(directory, log);
  const TrainingState state = state_of(model, bare(directory).filename().string());

  Converted result{directory, out};
  result.has_tokenizer = !state.tokenizer.empty();
  std::vector<std::vector<float>> values;
  std::vector<TensorPart> parts;
  for (const Gpt2Tensor& tensor : model.tensors()) {
    values.push_back(model.read(tensor));
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
                              Log& log) {
  const io::Path out = bare(out_name);
  io::require_absent(out);
  require_makeable(out);
  const CheckpointReader reader = open_newest(checkpoint, log);
  const Gpt2Config config = config_of(reader);
  const std::vector<Gpt2Tensor> tensors = gpt2_tensors(config);
  check_weights(reader, tensors);
  write_hugging_face(
      out, config,
      [&](const Gpt2Tensor& tensor, std::span<float> values) {
        const std::vector<float> stored = reader.read_whole(kModelGroup + tensor.name);
        TRIREME_REQUIRE(stored.size() == values.size(), "'{}' has {}, expected {}",
                        tensor.name, format_plural(stored.size(), "element"),
                        values.size());
        std::copy(stored.begin(), stored.end(), values.begin());
      },
      reader.state().tokenizer);

  Converted result{reader.path(), out};
  for (const Gpt2Tensor& tensor : tensors)
    result.parameters += element_count(tensor.shape);
  result.tensors = tensors.size();
  result.step = reader.manifest().step;
  result.has_tokenizer = !reader.state().tokenizer.empty();
  result.drops_optimizer = reader.manifest().has_optimizer_state();
  return result;
}

}  // namespace trireme::ckpt
