// inference/model_loader.cpp — see model_loader.hpp.
#include "inference/model_loader.hpp"

#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "ckpt/directory.hpp"
#include "ckpt/params.hpp"
#include "ckpt/reader.hpp"
#include "comm/process_groups.hpp"
#include "config/load.hpp"
#include "step/deck_model.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::inference {

config::Deck deck_of(const ckpt::CheckpointReader& reader) {
  config::Deck deck;
  try {
    deck = config::parse_resolved(reader.state().deck);
  } catch (const InputError& error) {
    throw InputError(fmt::format("the deck in checkpoint '{}' cannot be used:\n{}",
                                 reader.path().string(), error.what()));
  }
  if (deck.model.vocab == 0) {
    deck.model.vocab = reader.tensor("model/embedding/word/weight").shape.at(0);
  }
  return deck;
}

namespace {

// As the tokenizer says; without one, or where it names none, as the checkpoint does.
std::optional<data::TokenId> find_end_of_document(
    const std::optional<data::Tokenizer>& tokenizer, const ckpt::TrainingState& state) {
  const auto it = state.tokenizer_attributes.find("end_of_document");
  if (it != state.tokenizer_attributes.end()) {
    data::TokenId id = 0;
    const char* end = it->second.data() + it->second.size();
    if (std::from_chars(it->second.data(), end, id).ptr == end) return id;
  }
  if (!tokenizer) return {};
  try {
    return tokenizer->end_of_document();
  } catch (const InputError&) {
    return {};  // it has none: texts end at their length
  }
}

}  // namespace

template <class T>
index_t LoadedModel<T>::usable_vocabulary() const {
  const index_t rows = state.architecture().vocabulary;
  return tokenizer ? std::min<index_t>(rows, tokenizer->vocabulary_size()) : rows;
}

template <class T>
std::unique_ptr<LoadedModel<T>> load_model(const Exec& exec,
                                           const comm::ProcessGroups& groups,
                                           const io::Path& path, Log& log) {
  const ckpt::CheckpointReader reader = ckpt::open_newest(path, log);
  const config::Deck deck = deck_of(reader);
  auto model = std::make_unique<LoadedModel<T>>(groups, step::architecture_of(deck));
  model->path = reader.path();
  model->training = reader.state();
  model->deck = deck;
  if (!model->training.tokenizer.empty()) {
    model->tokenizer = data::Tokenizer::from_files(model->training.tokenizer);
  }
  model->end_of_document = find_end_of_document(model->tokenizer, model->training);
  const index_t rows = model->state.architecture().vocabulary;
  if (model->end_of_document && *model->end_of_document >= rows) {
    log.warning(
        "the end-of-document token {} is outside the model's vocabulary of {}: texts end "
        "at their length only",
        *model->end_of_document, rows);
    model->end_of_document.reset();
  }
  step::ModelState<T>& state = model->state;
  state.params.allocate(state.registry, ParamBuffer<T>::Use::inference);
  ckpt::load_params(reader, exec, state.params, ckpt::Content::weights,
                    ckpt::Conversion::floating);
  exec.fence("trireme::inference::load_model");
  return model;
}

#define TRIREME_INSTANTIATE(T)                            \
  template struct LoadedModel<T>;                         \
  template std::unique_ptr<LoadedModel<T>> load_model<T>( \
      const Exec&, const comm::ProcessGroups&, const io::Path&, Log&);
TRIREME_FOR_EACH_COMPUTE_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::inference
