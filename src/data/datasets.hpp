// data/datasets.hpp — the corpora a deck names, opened, and the samples cut from them.
#ifndef TRIREME_DATA_DATASETS_HPP_
#define TRIREME_DATA_DATASETS_HPP_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "config/deck.hpp"
#include "data/corpus.hpp"
#include "data/dataset.hpp"

namespace trireme::data {

using Corpora = std::vector<std::shared_ptr<const Corpus>>;
// The checksums of the corpora, one after the other.
std::string identity_of(const Corpora& corpora);

struct ValidationSet {
  std::string name;
  std::unique_ptr<Dataset> samples;  // in the order of the corpus
};

struct Datasets {
  Corpora corpora;  // of data.train
  std::unique_ptr<Dataset> train;
  std::vector<ValidationSet> validation;

  // The tokenizer's files and the vocabulary are those of the first corpus: mixing others
  // is an error.
  const Corpus& first() const { return *corpora.front(); }
  // Checksums of the training corpora: a restart on others of the same names would go on
  // with other samples and not know it.
  std::string identity() const;
  // The checksums of all corpora, which every rank must have the same.
  std::string identity_of_all() const;
};

// Opens the corpora of data.train: InputError for a missing, damaged or foreign file, or
// where the deck names none.
Corpora open_corpora(const config::Deck& deck);

// The parts that data.split makes of a corpus.
enum class Split { train, validation, test };
std::string_view name_of(Split split);
Split split_from(std::string_view name);  // InputError where there is none of that name
// InputError where the deck gives the part nothing, or does not split.
TokenRange split_range(const config::Deck& deck, const Corpus& corpus, Split split);
// The samples of a part of the run's own corpora in their order, blended where they are
// several; of `validation` those of data.validation, where that is given.
std::vector<ValidationSet> make_sets(const config::Deck& deck, const Corpora& corpora,
                                     Split split, Tail tail);

// How many samples of the set validation looks at: run.validate_samples of those that
// come once, or all of them.
index_t validated_samples(const config::Deck& deck, const ValidationSet& set);

// The samples of training on these corpora, those of data.train, in its order.
std::unique_ptr<Dataset> make_training_set(const config::Deck& deck,
                                           const Corpora& corpora);
// Training and validation samples. Where no validation corpus is given, data.split cuts
// each training corpus by tokens.
Datasets make_datasets(const config::Deck& deck, Corpora corpora);

}  // namespace trireme::data

#endif  // TRIREME_DATA_DATASETS_HPP_
