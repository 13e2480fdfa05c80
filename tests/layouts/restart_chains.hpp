// tests/layouts/restart_chains.hpp — rows of the table of layouts, one behind the other:
// each goes on from a checkpoint of the one before, and between them every value of every
// axis is saved where every value of every axis is resumed.
//
// A pair is a value of the layout that saves and one of the layout that goes on, of the
// same axis or of another. There is no rule about two layouts of one run, so that each
// value may stand before each. Which values of one layout meet is another array's matter:
// covering() in layout_matrix.hpp.
#ifndef TRIREME_TESTS_LAYOUTS_RESTART_CHAINS_HPP_
#define TRIREME_TESTS_LAYOUTS_RESTART_CHAINS_HPP_

#include <compare>
#include <cstddef>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "config/enums.hpp"

namespace trireme::test {

// What the decks of all starts have: the table's numbers.
inline constexpr index_t kChainLayers = 6, kChainEncoderLayers = 2, kChainHeads = 8,
                         kChainSamples = 12;

// A value of an axis where it has an effect, as the degree of ZeRO has on two data ranks.
struct AxisValue {
  std::string axis;
  int value;
  auto operator<=>(const AxisValue&) const = default;
};

// A start in a layout.
struct ChainStart {
  int ranks;
  config::Precision compute;
  std::vector<std::string> keys;  // of the deck: KEY=VALUE
  std::vector<AxisValue> values;  // with that of the axis "precision"
};

// Starts of one run, each of which goes on from the one before.
using RestartChain = std::vector<ChainStart>;

// Chains of at most so many restarts in which every pair of values stands at least once;
// what adds most comes next, so that the chains that come first have the most pairs.
// `wide` have all pairs of two layouts: they compute in fp32, in which answers are
// compared most sharply. `mixed` have the pairs of which one is a type of 16 bits.
struct RestartChains {
  std::vector<RestartChain> wide, mixed;
};
RestartChains restart_chains(config::ModelKind kind, int most_ranks,
                             std::size_t most_restarts);

}  // namespace trireme::test

#endif  // TRIREME_TESTS_LAYOUTS_RESTART_CHAINS_HPP_
