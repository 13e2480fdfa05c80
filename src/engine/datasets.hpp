// engine/datasets.hpp — the corpora a deck names, opened, and the samples cut from them.
#ifndef TRIREME_ENGINE_DATASETS_HPP_
#define TRIREME_ENGINE_DATASETS_HPP_

#include <memory>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "data/dataset.hpp"

namespace trireme::engine {

struct ValidationSet {
  std::string name;
  std::unique_ptr<data::Dataset> samples;  // in the order of the corpus
};

struct Datasets {
  std::vector<std::shared_ptr<const data::Corpus>> corpora;  // of data.train
  std::unique_ptr<data::Dataset> train;
  std::vector<ValidationSet> validation;
  std::vector<std::shared_ptr<const data::Corpus>> held_out;  // of data.validation

  // The tokenizer's files and the vocabulary are those of the first corpus: mixing others
  // is an error.
  const data::Corpus& first() const { return *corpora.front(); }
  // Checksums of the training corpora: a restart on others of the same names would go on
  // with other samples and not know it.
  std::string identity() const;
  // Of all corpora: what every rank must have the same.
  std::string identity_of_all() const;
};

// Where a checkpoint keeps it (TrainingState::texts).
inline constexpr const char* kCorporaText = "training_corpora";

// Opens the corpora of data.train: InputError for a missing, damaged or foreign file, or
// where the deck names none.
std::vector<std::shared_ptr<const data::Corpus>> open_corpora(const config::Deck& deck);

// How many samples of the set validation looks at: run.validate_samples of those that
// come once, or all of them.
index_t validated_samples(const config::Deck& deck, const ValidationSet& set);

// Training and validation samples. Where no validation corpus is given, data.split cuts
// each training corpus by tokens.
Datasets make_datasets(const config::Deck& deck,
                       std::vector<std::shared_ptr<const data::Corpus>> corpora);

}  // namespace trireme::engine

#endif  // TRIREME_ENGINE_DATASETS_HPP_
