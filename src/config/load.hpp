// config/load.hpp — reads a deck, checks it whole, and writes the resolved one.
//
//   Deck deck = load("gpt2.yaml", {.overrides = {"model.layers=2"}, .ranks = 8});
//
// Everything wrong is thrown together as DeckErrors (deck_error.hpp). Rank 0 loads; the
// others get resolved_text(deck) by broadcast and take it with parse_resolved.
#ifndef TRIREME_CONFIG_LOAD_HPP_
#define TRIREME_CONFIG_LOAD_HPP_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "config/deck_error.hpp"

namespace trireme::config {

struct LoadOptions {
  // "key=value", as given with --set; the last one for a key holds.
  std::vector<std::string> overrides = {};
  // Run directory given on the command line; empty: the deck's.
  std::string run_dir = {};
  // Ranks that will run it; 0: not known, as many as the deck's grid asks for.
  int ranks = 0;
  // A job will read it again: variables that only jobs have may be missing in paths, and
  // stay there as they are written.
  bool before_job = false;
};

// A deck with all that is wrong with it, for who has more to say of it.
struct Examined {
  Deck deck;
  std::vector<DeckError> errors;
  // Keys whose values are not known: those that could not be read, and those that follow
  // one of them by default.
  std::set<std::string> bad;
  // Paths of the deck that are not known before a job: for each the variable that it
  // waits for.
  std::map<std::string, std::string> job_paths;
};
// InputError where there is no such file.
Examined examine(const std::string& path, const LoadOptions& options = {});

Deck load(const std::string& path, const LoadOptions& options = {});
// name: of the file, for messages and for run.dir.
Deck parse(const std::string& text, const std::string& name,
           const LoadOptions& options = {});

// The deck with every default written out, numbers in their shortest exact form; reading
// it gives the same deck and the same text again.
std::string resolved_text(const Deck& deck);
// Paths are those that are written there, whatever the environment.
Deck parse_resolved(const std::string& text, int ranks = 0);

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_LOAD_HPP_
