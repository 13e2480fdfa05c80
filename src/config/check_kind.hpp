// config/check_kind.hpp — what keys that not all kinds of models have must be to each
// other and to the length of a sample.
#ifndef TRIREME_CONFIG_CHECK_KIND_HPP_
#define TRIREME_CONFIG_CHECK_KIND_HPP_

#include <set>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "config/deck_error.hpp"

namespace trireme::config {

// A part of check_across (check.hpp), with the same arguments.
void check_kind(const Deck& deck, const std::set<std::string>& bad,
                std::vector<DeckError>& errors);

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_CHECK_KIND_HPP_
