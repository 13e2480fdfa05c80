// config/compare.hpp — what may change in the deck between two starts of one run.
//
// parallel, batch.micro, memory, checkpoint and run (but run.seed) may. The learning rate
// and its schedule may with --set, so that nobody changes them by editing a file that a
// running job is resumed with. Corpora may be at other paths where the caller knows them
// by their content. Everything else must be what the checkpoint has.
#ifndef TRIREME_CONFIG_COMPARE_HPP_
#define TRIREME_CONFIG_COMPARE_HPP_

#include <set>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "config/deck_error.hpp"

namespace trireme::config {

struct Comparison {
  // Keys that may not change: "model.hidden ... the checkpoint has 256".
  std::vector<DeckError> errors;
  // Changes that are taken: "run.steps: 1000 -> 2000", to be said in the log.
  std::vector<std::string> changes;
};

// A job may have its corpora staged in a directory of its own: then only the weights of
// data.train and the names of data.validation must agree.
enum class Corpora { at_their_paths, may_have_moved };

// Call set_vocabulary on the deck first: a vocabulary that is left to the corpus is not
// compared. Nor are keys in `bad`, whose values are not known, and what differs only as
// it follows another key by default.
Comparison compare_for_resume(const Deck& checkpoint, const Deck& deck,
                              const std::set<std::string>& bad = {},
                              Corpora corpora = Corpora::at_their_paths);

// Where the deck's stages are still to be measured, takes those that were measured for
// the checkpoint's, if all that they depend on is the same.
void take_measured_stages(const Deck& checkpoint, Deck& deck);

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_COMPARE_HPP_
