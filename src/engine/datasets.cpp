// engine/datasets.cpp — see datasets.hpp.
#include "engine/datasets.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "io/checksum.hpp"

namespace trireme::engine {

namespace {

std::string checksums(const std::vector<std::shared_ptr<const data::Corpus>>& corpora) {
  std::string sums;
  for (const auto& corpus : corpora) {
    if (!sums.empty()) sums += ' ';
    sums += io::to_hex(corpus->checksum());
  }
  return sums;
}

}  // namespace

std::string Datasets::identity() const {
  return checksums(corpora);
}

std::string Datasets::identity_of_all() const {
  const std::string sums = checksums(corpora);
  return held_out.empty() ? sums : sums + " " + checksums(held_out);
}

std::vector<std::shared_ptr<const data::Corpus>> open_corpora(const config::Deck& deck) {
  TRIREME_REQUIRE_INPUT(
      !deck.data.train.empty(),
      "the deck names no corpus to train on: give data.train: corpus.h5 "
      "(made by `trireme tokenize`)");
  std::vector<std::shared_ptr<const data::Corpus>> corpora;
  for (const config::WeightedPath& entry : deck.data.train) {
    corpora.push_back(std::make_shared<const data::Corpus>(entry.path));
  }
  return corpora;
}

index_t validated_samples(const config::Deck& deck, const ValidationSet& set) {
  const index_t all = set.samples->positions_without_repeats();
  const index_t wanted = deck.run.validate_samples;
  return wanted > 0 ? std::min(all, wanted) : all;
}

Datasets make_datasets(const config::Deck& deck,
                       std::vector<std::shared_ptr<const data::Corpus>> corpora) {
  Datasets sets;
  sets.corpora = std::move(corpora);
  const index_t sequence = deck.model.sequence;
  const std::vector<double> shares(deck.data.split.begin(), deck.data.split.end());
  const bool cuts = deck.data.validation.empty();

  std::vector<data::Dataset::Part> train, held_out;
  for (std::size_t i = 0; i < sets.corpora.size(); ++i) {
    const auto& corpus = sets.corpora[i];
    const double weight = deck.data.train[i].weight;
    if (cuts) {
      const auto ranges = data::split_tokens(corpus->token_count(), shares);
      train.push_back({corpus, ranges[0], weight});
      held_out.push_back({corpus, ranges[1], weight});
    } else {
      train.push_back({corpus, {0, corpus->token_count()}, weight});
    }
  }
  sets.train = std::make_unique<data::Dataset>(train, sequence, deck.data.seed,
                                               data::Order::shuffled, "train");
  if (cuts && deck.data.split[1] > 0.0) {
    sets.validation.push_back({"validation", std::make_unique<data::Dataset>(
                                                 held_out, sequence, deck.data.seed,
                                                 data::Order::sequential, "validation")});
  }
  for (const config::NamedPath& entry : deck.data.validation) {
    const auto corpus = std::make_shared<const data::Corpus>(entry.path);
    const data::Corpus& first = sets.first();
    TRIREME_REQUIRE_INPUT(
        data::same_tokenizer(*corpus, first),
        "validation corpus '{}' ({}, vocabulary of {}) was not made with the tokenizer "
        "of the training corpus '{}' (vocabulary of {}): tokenize both with one "
        "(--tokenizer takes a corpus, too)",
        entry.name, entry.path, corpus->vocabulary_size(), first.path().string(),
        first.vocabulary_size());
    sets.held_out.push_back(corpus);
    sets.validation.push_back(
        {entry.name,
         std::make_unique<data::Dataset>(
             std::vector<data::Dataset::Part>{{corpus, {0, corpus->token_count()}, 1.0}},
             sequence, deck.data.seed, data::Order::sequential, entry.name)});
  }
  return sets;
}

}  // namespace trireme::engine
