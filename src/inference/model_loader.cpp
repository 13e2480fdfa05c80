// inference/model_loader.cpp — see model_loader.hpp.
//
// A model is used as the run that wrote it computed, because another type or other
// products round otherwise, and what was measured would not be what was trained; who
// wants that says so by an override. What only trains (optimizer, schedule, corpora) is
// not looked at: a converted model has none of it. That a tokenizer is the model's own
// can be checked by its size alone, so texts are held against the table of words, too.
#include "inference/model_loader.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "ckpt/directory.hpp"
#include "ckpt/reader.hpp"
#include "ckpt/special_token.hpp"
#include "comm/process_groups.hpp"
#include "config/load.hpp"
#include "step/deck_model.hpp"
#include "step/product_ways.hpp"
#include "step/settled_products.hpp"

namespace trireme::inference {

namespace {

constexpr std::string_view kProducts = "precision.gemm";

// Of KEY=VALUE.
std::string_view key_of(std::string_view text) {
  return text.substr(0, text.find('='));
}

}  // namespace

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
  return deck;
}

config::Deck deck_of_use(const config::Deck& trained, const std::string& use) {
  config::Deck plain;
  plain.model = trained.model;
  plain.model.dropout = plain.model.attention_dropout = 0.0;
  // A model's keys are judged by what its samples are. Where their corpora are is no
  // business of the check.
  plain.data = trained.data;
  plain.data.train.clear();
  plain.data.validation.clear();
  plain.precision.compute = trained.precision.compute;
  // A deck is not whole without these keys, which nothing reads then.
  plain.optimizer.decay = plain.run.steps;
  plain.run.dir = plain.checkpoint.dir = use;
  return plain;
}

bool is_precision_of_use(std::string_view key) {
  return key == "precision.compute" || key == kProducts;
}

bool names_products(const std::vector<std::string>& overrides) {
  return std::ranges::any_of(
      overrides, [](const std::string& text) { return key_of(text) == kProducts; });
}

namespace {

// What training put before a text's first word: the token for padding of the tokenizer
// that the corpus was made with, T5's 0 where nothing says otherwise.
std::optional<data::TokenId> find_first_word(const LoadedModel& model,
                                             const model::DecodedFields& decoded) {
  if (!decoded.has_source()) return std::nullopt;
  if (!decoded.begins_with_padding) return model.end_of_document;
  const data::TokenId padding =
      ckpt::special_token(model.training, model.tokenizer, data::Special::padding)
          .value_or(0);
  TRIREME_REQUIRE_INPUT(padding < model.deck.model.vocab,
                        "the token for padding, {}, which texts begin with, is none of "
                        "the {} of the model in '{}': convert it with its own tokenizer",
                        padding, format_plural(model.deck.model.vocab, "word"),
                        model.path.string());
  return padding;
}

// The command that uses a model so, as its user calls it.
std::string name_of_use(model::Use use) {
  switch (use) {
    case model::Use::text:
      return "generate";
    case model::Use::vectors:
      return "embed";
    case model::Use::words:
      return "fill";
    case model::Use::training:
      break;
  }
  throw Error("name_of_use: a model to be trained is not loaded here");
}

// The deck's `precision` as overrides say.
config::PrecisionConfig precision_of(const config::Deck& trained,
                                     const std::vector<std::string>& overrides,
                                     model::Use use) {
  for (const std::string& text : overrides) {
    TRIREME_REQUIRE_INPUT(is_precision_of_use(key_of(text)),
                          "--set {}: `trireme {}` takes precision.compute and "
                          "precision.gemm; the model is the checkpoint's, and nothing "
                          "else of a deck matters here",
                          text, name_of_use(use));
  }
  config::Deck deck = trained;
  if (!overrides.empty()) {
    const std::string name = name_of_use(use);
    deck = config::parse(config::resolved_text(deck_of_use(trained, name)), name,
                         {.overrides = overrides, .ranks = 1});
  }
  if (!names_products(overrides)) {
    deck.precision.gemm = step::products_as_in(trained, deck);
  }
  // Its kernels are Trireme's, whatever the run asked for.
  deck.precision.attention = config::AttentionKernels::own;
  return deck.precision;
}

}  // namespace

index_t LoadedModel::usable_vocabulary() const {
  const index_t rows = deck.model.vocab;
  return tokenizer ? std::min<index_t>(rows, tokenizer->vocabulary_size()) : rows;
}

const data::Tokenizer& LoadedModel::tokenizer_of_texts() const {
  TRIREME_REQUIRE_INPUT(tokenizer.has_value(),
                        "checkpoint '{}' has no tokenizer, so text cannot be read: put "
                        "the model's own (vocab.txt, spiece.model or tokenizer.json) "
                        "beside the weights that it was made of, where config.json is, "
                        "and convert that directory again",
                        path.string());
  return *tokenizer;
}

void LoadedModel::require_known(data::TokenId id) const {
  TRIREME_REQUIRE_INPUT(id < deck.model.vocab,
                        "a text has the token {}, but this model's vocabulary has {}: "
                        "is this the model's own tokenizer?",
                        id, format_plural(deck.model.vocab, "word"));
}

LoadedModel load_model(const comm::ProcessGroups& groups, const io::Path& path, Log& log,
                       const std::vector<std::string>& overrides, model::Use use) {
  const ckpt::CheckpointReader reader = ckpt::open_newest(path, log);
  LoadedModel model{.path = reader.path(),
                    .training = reader.state(),
                    .deck = deck_of(reader),
                    .replica = {},
                    .tokenizer = {},
                    .end_of_document = {}};
  model.deck.precision = precision_of(model.deck, overrides, use);
  if (!model.training.tokenizer.empty()) {
    model.tokenizer = data::Tokenizer::from_files(model.training.tokenizer);
  }
  model.end_of_document = ckpt::special_token(model.training, model.tokenizer,
                                              data::Special::end_of_document);
  const index_t rows = model.deck.model.vocab;
  if (model.end_of_document && *model.end_of_document >= rows) {
    log.warning(
        "the end-of-document token {} is outside the model's vocabulary of {}: texts end "
        "at their length only",
        *model.end_of_document, rows);
    model.end_of_document.reset();
  }
  model.replica = step::make_replica(model.deck, groups, {}, use);
  model.first_word = find_first_word(model, model.replica->part().blueprint.decoded);
  const Exec exec = step::make_exec(model.deck);
  step::multiply_as_in(exec, model.training);
  model.replica->begin_generation(exec);
  model.replica->load(reader, ckpt::Content::weights, ckpt::Conversion::floating);
  return model;
}

}  // namespace trireme::inference
