// check/deck_check.hpp — a deck with all that can be known to be wrong before anything
// is begun: in itself, for this version, with the corpora that it names, and with the
// checkpoint that it is to go on from. One list of errors, of which training, dry runs
// and job scripts show the same; what only follows from another error is not in it.
#ifndef TRIREME_CHECK_DECK_CHECK_HPP_
#define TRIREME_CHECK_DECK_CHECK_HPP_

#include <string>
#include <vector>

#include "check/checkpoint_check.hpp"
#include "config/capability.hpp"
#include "config/deck.hpp"
#include "data/datasets.hpp"

namespace trireme::check {

// What is to be done with the deck.
enum class Purpose {
  plan,  // nothing: what this version cannot train is said, and corpora may be missing
  job,   // it trains later: corpora may still be missing
  train
};

struct DeckCheckOptions {
  std::string deck;                         // path
  std::vector<std::string> overrides = {};  // --set key=value
  std::string run_dir = {};                 // empty: the deck's
  int ranks = 0;                            // 0: as many as the deck's grid asks for
  std::string resume = "never";             // never, auto, or a checkpoint
  std::string init_from = {};               // empty: no checkpoint
  Purpose purpose = Purpose::plan;
  // Training that has no other error looks at its checkpoint, too.
  bool looks_at_start = false;
};

struct CheckedDeck {
  config::Deck deck;  // with the number of its vocabulary
  // What this version cannot train of it; none for who trains.
  std::vector<config::NotTrained> not_trained;
  data::Corpora corpora;  // of data.train; none where one of them is missing
  // Corpora that are missing, paths that only a job knows, and what a checkpoint does not
  // say.
  std::vector<NotChecked> not_checked;
  // What is probably a mistake: a corpus that is trained on twice, or validated on, too.
  std::vector<std::string> warnings;
};

// Throws config::DeckErrors with everything that is wrong, InputError where there is no
// such deck. Opens corpora, and writes nothing: for one rank. For training that has no
// other error the checkpoint is left to the start itself, which opens it in a directory
// that is locked, unless the options ask for it.
CheckedDeck check_deck(const DeckCheckOptions& options);

}  // namespace trireme::check

#endif  // TRIREME_CHECK_DECK_CHECK_HPP_
