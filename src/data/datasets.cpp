// data/datasets.cpp — see datasets.hpp.
//
// A deck holds its validation out of the training corpora by shares, or names corpora of
// its own, which leaves those of training whole: one function says what part of a corpus
// a split is, so that training and evaluation cannot differ. Training is shuffled and
// validation read in order, because a loss over the same first samples can be compared
// from step to step. Tokenizers are compared before a sample is made: ids of another
// vocabulary would train, and mean nothing.
#include "data/datasets.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "data/deck_rules.hpp"
#include "io/checksum.hpp"

namespace trireme::data {

namespace {

constexpr std::array<std::string_view, 3> kSplitNames = {"train", "validation", "test"};

using Parts = std::vector<Dataset::Part>;

Parts parts_of(const config::Deck& deck, const Corpora& corpora, Split split) {
  Parts parts;
  for (std::size_t i = 0; i < corpora.size(); ++i) {
    parts.push_back(
        {corpora[i], split_range(deck, *corpora[i], split), deck.data.train[i].weight});
  }
  return parts;
}

ValidationSet in_order(const SampleRules& rules, const Parts& parts,
                       const std::string& name, Tail tail) {
  return {name, std::make_unique<Dataset>(parts, rules, Order::sequential, name, tail)};
}

std::unique_ptr<Dataset> training_set(const config::Deck& deck, const Corpora& corpora,
                                      const SampleRules& rules) {
  return std::make_unique<Dataset>(parts_of(deck, corpora, Split::train), rules,
                                   Order::shuffled, std::string(name_of(Split::train)));
}

// The samples of a part of the run's corpora, as make_sets() has them.
std::vector<ValidationSet> sets_of(const config::Deck& deck, const Corpora& corpora,
                                   const SampleRules& rules, Split split, Tail tail) {
  std::vector<ValidationSet> sets;
  if (split != Split::validation || deck.data.validation.empty()) {
    sets.push_back(in_order(rules, parts_of(deck, corpora, split),
                            std::string(name_of(split)), tail));
    return sets;
  }
  for (const config::NamedPath& entry : deck.data.validation) {
    const auto corpus = std::make_shared<const Corpus>(entry.path);
    const Corpus& first = *corpora.front();
    TRIREME_REQUIRE_INPUT(
        same_tokenizer(*corpus, first),
        "validation corpus '{}' ({}, vocabulary of {}) was not made with the tokenizer "
        "of the training corpus '{}' (vocabulary of {}): tokenize both with one "
        "(--tokenizer takes a corpus, too)",
        entry.name, entry.path, corpus->vocabulary_size(), first.path().string(),
        first.vocabulary_size());
    require_sentences(deck, *corpus);
    sets.push_back(
        in_order(rules, {{corpus, {0, corpus->token_count()}, 1.0}}, entry.name, tail));
  }
  return sets;
}

}  // namespace

std::string_view name_of(Split split) {
  return kSplitNames.at(static_cast<std::size_t>(split));
}

Split split_from(std::string_view name) {
  const auto found = std::find(kSplitNames.begin(), kSplitNames.end(), name);
  TRIREME_REQUIRE_INPUT(found != kSplitNames.end(),
                        "there is no split '{}': expected train, validation or test",
                        name);
  return static_cast<Split>(found - kSplitNames.begin());
}

TokenRange split_range(const config::Deck& deck, const Corpus& corpus, Split split) {
  const auto& shares = deck.data.split;
  if (!deck.data.validation.empty()) {
    TRIREME_REQUIRE_INPUT(split == Split::train,
                          "the run names its validation corpora (data.validation), so "
                          "that its data.split holds nothing out as '{}': give --data",
                          name_of(split));
    return {0, corpus.token_count()};
  }
  TRIREME_REQUIRE_INPUT(shares[static_cast<std::size_t>(split)] > 0.0,
                        "the run's data.split is [{}]: nothing is left for '{}'",
                        fmt::join(shares, ", "), name_of(split));
  return split_tokens(corpus.token_count(), {shares.begin(), shares.end()})
      .at(static_cast<std::size_t>(split));
}

std::string identity_of(const Corpora& corpora) {
  std::string sums;
  for (const auto& corpus : corpora) {
    if (!sums.empty()) sums += ' ';
    sums += io::to_hex(corpus->checksum());
  }
  return sums;
}

std::string Datasets::identity() const {
  return identity_of(corpora);
}

std::string Datasets::identity_of_all() const {
  Corpora all = corpora;
  for (const ValidationSet& set : validation) {
    all.push_back(set.samples->parts().front().corpus);
  }
  return identity_of(all);
}

Corpora open_corpora(const config::Deck& deck) {
  TRIREME_REQUIRE_INPUT(
      !deck.data.train.empty(),
      "the deck names no corpus to train on: give data.train: corpus.h5 "
      "(made by `trireme tokenize`)");
  Corpora corpora;
  for (const config::WeightedPath& entry : deck.data.train) {
    corpora.push_back(std::make_shared<const Corpus>(entry.path));
  }
  return corpora;
}

index_t validated_samples(const config::Deck& deck, const ValidationSet& set) {
  const index_t all = set.samples->positions_without_repeats();
  const index_t wanted = deck.run.validate_samples;
  return wanted > 0 ? std::min(all, wanted) : all;
}

std::vector<ValidationSet> make_sets(const config::Deck& deck, const Corpora& corpora,
                                     Split split, Tail tail) {
  return sets_of(deck, corpora, rules_of(deck, corpora), split, tail);
}

std::unique_ptr<Dataset> make_training_set(const config::Deck& deck,
                                           const Corpora& corpora) {
  return training_set(deck, corpora, rules_of(deck, corpora));
}

Datasets make_datasets(const config::Deck& deck, Corpora corpora) {
  Datasets sets;
  sets.corpora = std::move(corpora);
  const SampleRules rules = rules_of(deck, sets.corpora);
  sets.train = training_set(deck, sets.corpora, rules);
  if (deck.data.validation.empty() && deck.data.split[1] == 0.0) return sets;
  sets.validation = sets_of(deck, sets.corpora, rules, Split::validation, Tail::left_out);
  return sets;
}

}  // namespace trireme::data
