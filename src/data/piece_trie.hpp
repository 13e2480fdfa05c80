// data/piece_trie.hpp — finds the longest piece of a vocabulary that a text begins with:
// a trie over bytes in two arrays (Aoe 1989), one look-up in memory for each byte.
#ifndef TRIREME_DATA_PIECE_TRIE_HPP_
#define TRIREME_DATA_PIECE_TRIE_HPP_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_model.hpp"

namespace trireme::data {

// Immutable once built.
class PieceTrie {
 public:
  // pieces[id]; empty ones are left out, and of equal ones the last counts.
  explicit PieceTrie(const std::vector<std::string>& pieces);

  // Where the trie is when the bytes of a piece's beginning are read: pieces that begin
  // otherwise are out of the question then.
  using State = std::uint32_t;
  static constexpr State kRoot = 0;  // nothing read
  // Where no piece begins with `text`, a state in which nothing is found.
  State state_behind(std::string_view text) const;

  struct Match {
    TokenId id = 0;
    std::size_t length = 0;  // of the text; 0: there is none
  };
  // The longest piece that is what was read up to `state`, and a beginning of `text`
  // behind it.
  Match longest(State state, std::string_view text) const {
    Match found;
    for (std::size_t at = 0; at < text.size();) {
      const State next = nodes_[state].base + static_cast<unsigned char>(text[at]);
      const Node& node = nodes_[next];
      if (node.parent != state) break;
      state = next;
      ++at;
      if (node.id != kNoId) found = {node.id, at};
    }
    return found;
  }

 private:
  static constexpr State kNothing = 1;  // a place without children
  static constexpr State kNone = 0xFFFFFFFF;
  static constexpr TokenId kNoId = 0xFFFFFFFF;
  // The child of a node for a byte is at base + byte, if that node says so.
  struct Node {
    State base = 0;
    State parent = kNone;
    TokenId id = kNoId;
  };
  class Builder;

  std::vector<Node> nodes_;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_PIECE_TRIE_HPP_
