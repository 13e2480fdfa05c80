// config/check.hpp — what keys must be to each other, to the number of ranks, and to the
// corpus.
#ifndef TRIREME_CONFIG_CHECK_HPP_
#define TRIREME_CONFIG_CHECK_HPP_

#include <set>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "config/deck.hpp"
#include "config/deck_error.hpp"

namespace trireme::config {

// Appends every contradiction between keys; those in `bad` have an error already and are
// left out. Sets parallel.data where it is auto, and parallel.stages where parallel.split
// says what they are. ranks 0: as many as the grid asks for.
void check_across(Deck& deck, int ranks, const std::set<std::string>& bad,
                  std::vector<DeckError>& errors);

// Layers of each chunk where the first `split` have an encoder's and the others a
// decoder's, both dealt evenly; what is left over goes to chunks with neither the
// embedding nor the head. Worked example: 7 and 5 layers over 5 chunks, 3 of them the
// encoder's, are 2 2 3 and 3 2.
std::vector<index_t> stages_of_split(index_t layers, index_t decoder_layers,
                                     index_t chunks, index_t split);

// Takes model.vocab from the corpus, or checks that the deck's holds all its tokens.
std::vector<DeckError> set_vocabulary(Deck& deck, index_t corpus_vocabulary,
                                      const std::string& corpus_path);

// Of the keys of `precision` that the deck gives: those of which its type makes no use, a
// sentence for each reason. A value that is the default one is nothing to speak of.
std::vector<std::string> idle_keys(const Deck& deck);

// An error about one key of a deck, with its value and place.
DeckError error_at(const Deck& deck, const std::string& key, std::string what,
                   std::string allowed, std::string fix);

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_CHECK_HPP_
