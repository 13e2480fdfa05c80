// check/checkpoint_check.hpp — all that a deck and the checkpoint that it is to go on
// from disagree in, as errors of the deck's keys and of the options that name it.
#ifndef TRIREME_CHECK_CHECKPOINT_CHECK_HPP_
#define TRIREME_CHECK_CHECKPOINT_CHECK_HPP_

#include <set>
#include <string>
#include <vector>

#include "check/corpus_checks.hpp"
#include "ckpt/reader.hpp"
#include "config/compare.hpp"
#include "config/deck.hpp"
#include "config/deck_error.hpp"
#include "data/datasets.hpp"

namespace trireme::check {

// What is not looked at ("data.train: c4.h5"), and why.
struct NotChecked {
  std::string what, reason;
  std::string text() const;  // one line for people
};

// A deck, and what of it can be compared.
struct DeckInQuestion {
  const config::Deck& deck;
  std::set<std::string> bad = {};  // keys whose values are not known
  bool has_tensors = true;         // those of its model can be told,
  bool has_vocabulary = true;      // and how many rows those of the vocabulary have
  data::Corpora corpora = {};      // of data.train; none where not all are known
};

// Whether the deck may go on with the run of the checkpoint, and what it changes.
// InputError where the checkpoint's own deck or progress cannot be.
config::Comparison compare_with_run(const ckpt::CheckpointReader& checkpoint,
                                    const DeckInQuestion& question);

// What keeps the deck from beginning with the weights of the checkpoint that --init-from
// names by `option`.
std::vector<config::DeckError> errors_of_weights(const ckpt::CheckpointReader& checkpoint,
                                                 const DeckInQuestion& question,
                                                 const std::string& option);

// What --resume and --init-from ask for.
struct WantedStart {
  std::string resume = "never";  // never, auto, or a checkpoint
  std::string init_from;         // empty: none
  bool begins = true;            // or nothing is begun: an existing run is no mistake
};
struct StartErrors {
  std::vector<config::DeckError> errors = {};
  // The corpora are not those that the checkpoint goes on with: what its samples would
  // need of them is no question then.
  bool has_other_corpora = false;
};
// All that is wrong with such a start, by files that are only looked at. What of them
// cannot be looked at goes to the end of the list.
StartErrors errors_of_start(const WantedStart& wanted, const DeckInQuestion& question,
                            std::vector<NotChecked>& not_checked);

}  // namespace trireme::check

#endif  // TRIREME_CHECK_CHECKPOINT_CHECK_HPP_
