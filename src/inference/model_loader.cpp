// inference/model_loader.cpp — see model_loader.hpp.
#include "inference/model_loader.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/words.hpp"
#include "ckpt/directory.hpp"
#include "ckpt/reader.hpp"
#include "comm/process_groups.hpp"
#include "config/load.hpp"
#include "step/deck_model.hpp"

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
    deck.model.vocab = reader.tensor(step::vocabulary_tensor(deck)).shape.at(0);
  }
  // What the machine that trained could do says nothing of this one.
  deck.precision.gemm = config::Products::automatic;
  return deck;
}

namespace {

// The end of a document as the tokenizer says; without one, or where it names none, as
// the checkpoint does.
std::optional<data::TokenId> find_end_of_document(
    const std::optional<data::Tokenizer>& tokenizer, const ckpt::TrainingState& state) {
  const auto it = state.tokenizer_attributes.find("end_of_document");
  if (it != state.tokenizer_attributes.end()) {
    if (const auto id = number_in<data::TokenId>(it->second)) return id;
  }
  if (!tokenizer) return {};
  try {
    return tokenizer->end_of_document();
  } catch (const InputError&) {
    return {};  // it has none: texts end at their length
  }
}

// The deck's `precision` as overrides say.
config::PrecisionConfig precision_of(const config::Deck& trained,
                                     const std::vector<std::string>& overrides) {
  if (overrides.empty()) return trained.precision;
  for (const std::string& text : overrides) {
    TRIREME_REQUIRE_INPUT(text.starts_with("precision."),
                          "--set {}: generation takes the keys of `precision`; the model "
                          "is the checkpoint's",
                          text);
  }
  config::Deck plain;
  plain.model = trained.model;
  plain.model.dropout = plain.model.attention_dropout = 0.0;
  plain.precision.compute = trained.precision.compute;
  // A deck is not whole without these keys; generation does not use them.
  plain.optimizer.decay = plain.run.steps;
  plain.run.dir = plain.checkpoint.dir = "generation";
  return config::parse(config::resolved_text(plain), "generation",
                       {.overrides = overrides, .ranks = 1})
      .precision;
}

}  // namespace

index_t LoadedModel::usable_vocabulary() const {
  const index_t rows = deck.model.vocab;
  return tokenizer ? std::min<index_t>(rows, tokenizer->vocabulary_size()) : rows;
}

LoadedModel load_model(const comm::ProcessGroups& groups, const io::Path& path, Log& log,
                       const std::vector<std::string>& overrides) {
  const ckpt::CheckpointReader reader = ckpt::open_newest(path, log);
  LoadedModel model{.path = reader.path(),
                    .training = reader.state(),
                    .deck = deck_of(reader),
                    .replica = {},
                    .tokenizer = {},
                    .end_of_document = {}};
  model.deck.precision = precision_of(model.deck, overrides);
  if (!model.training.tokenizer.empty()) {
    model.tokenizer = data::Tokenizer::from_files(model.training.tokenizer);
  }
  model.end_of_document = find_end_of_document(model.tokenizer, model.training);
  const index_t rows = model.deck.model.vocab;
  if (model.end_of_document && *model.end_of_document >= rows) {
    log.warning(
        "the end-of-document token {} is outside the model's vocabulary of {}: texts end "
        "at their length only",
        *model.end_of_document, rows);
    model.end_of_document.reset();
  }
  model.replica = step::make_replica(model.deck, groups);
  model.replica->begin_generation(step::make_exec(model.deck));
  model.replica->load(reader, ckpt::Content::weights, ckpt::Conversion::floating);
  return model;
}

}  // namespace trireme::inference
