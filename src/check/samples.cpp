// check/samples.cpp — see samples.hpp.
//
// Corpora that the deck names are not looked at: the one that is inspected takes the
// place of data.train, and need not be where the deck's run will find it.
#include "check/samples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "config/check.hpp"
#include "config/load.hpp"
#include "data/datasets.hpp"
#include "data/sample_maker.hpp"
#include "data/sample_text.hpp"
#include "data/tokenizer.hpp"
#include "model/blueprint.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::check {

namespace {

using Json = nlohmann::ordered_json;

// Says only what samples depend on.
constexpr const char* kDeckOfWindows =
    "model: {{kind: gpt, layers: 1, hidden: 64, heads: 1, sequence: {}}}\n";

// The deck as one that trains on this corpus alone. What only a job knows of its paths is
// of no interest. A deck may leave the corpus to this command: any name is taken for it
// until the path, which need not be as YAML has it, is put there.
config::Deck deck_for(const std::string& path, std::vector<std::string> overrides,
                      const data::Corpus& corpus) {
  for (const std::string& change : overrides) {
    TRIREME_REQUIRE_INPUT(!change.starts_with("data.train="),
                          "--set {}: samples are made of the corpus that is inspected",
                          change);
  }
  overrides.emplace_back("data.train=corpus.h5");
  const config::LoadOptions options{.overrides = std::move(overrides),
                                    .before_job = true};
  config::Deck deck =
      path.empty()
          ? config::parse(fmt::format(kDeckOfWindows, kShownSequence), "windows", options)
          : config::load(path, options);
  deck.data.train = {{corpus.path().string(), 1.0}};
  auto errors =
      config::set_vocabulary(deck, corpus.vocabulary_size(), corpus.path().string());
  if (!errors.empty()) throw config::DeckErrors(std::move(errors));
  return deck;
}

}  // namespace

Json first_samples(const io::Path& corpus, index_t count, const std::string& deck_path,
                   const std::vector<std::string>& overrides) {
  const data::Corpora corpora = {std::make_shared<const data::Corpus>(corpus)};
  const config::Deck deck = deck_for(deck_path, overrides, *corpora.front());
  const auto training = data::make_training_set(deck, corpora);
  const BatchSpec spec = model::make_blueprint(deck.model).batch;
  const auto tokenizer = data::Tokenizer::from_files(corpora.front()->tokenizer_files());
  const auto maker = data::make_sample_maker(*training);
  Json samples = {{"kind", std::string(config::name_of(deck.model.kind))}};
  if (!deck_path.empty()) samples["deck"] = deck_path;
  samples["epoch"] = training->windows();
  samples["shown"] = Json::array();
  for (index_t i = 0; i < std::min(count, training->windows()); ++i) {
    samples["shown"].push_back({{"position", i},
                                {"window", training->place(i).sample.window},
                                {"text", sample_text(spec, *maker, i, tokenizer)}});
  }
  return samples;
}

std::string samples_text(const Json& samples) {
  const auto& shown = samples["shown"];
  const std::string count = format_plural(std::ssize(shown), "sample");
  std::string text =
      fmt::format("{} of {} in an epoch, in the order of training,\nas seen by ", count,
                  format_grouped(samples["epoch"].get<index_t>()));
  if (samples.contains("deck")) {
    text += fmt::format("the {} model of '{}'\n", samples["kind"].get<std::string>(),
                        samples["deck"].get<std::string>());
  } else {
    text += fmt::format(
        "a GPT of {}\n"
        "(--model-deck DECK: by the model of a deck)\n",
        format_plural(kShownSequence, "position"));
  }
  for (const Json& sample : shown) {
    text += fmt::format("\nsample {}, window {}\n{}",
                        format_grouped(sample["position"].get<index_t>()),
                        format_grouped(sample["window"].get<index_t>()),
                        sample["text"].get<std::string>());
  }
  return text;
}

}  // namespace trireme::check
