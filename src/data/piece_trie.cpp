// data/piece_trie.cpp — see piece_trie.hpp.
//
// Nodes are placed one after the other, each as a block of children: the smallest base is
// found at which all of their places are free. Most nodes have one child, which fits any
// hole, so that the array stays nearly full. The places below kFirst are nobody's: a node
// without children has base 0, and what it looks up there is not its own.
#include "data/piece_trie.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace trireme::data {
namespace {

constexpr std::size_t kBytes = 256;
// Places that are tried before a block goes behind all others: building stays linear.
constexpr int kMostTries = 1000;

}  // namespace

class PieceTrie::Builder {
 public:
  Builder(const std::vector<std::string>& pieces, std::vector<Node>& nodes)
      : pieces_(pieces), nodes_(nodes) {
    for (std::size_t id = 0; id < pieces.size(); ++id) {
      if (!pieces[id].empty()) order_.push_back(static_cast<TokenId>(id));
    }
    std::ranges::stable_sort(
        order_, {}, [&](TokenId id) -> const std::string& { return pieces_[id]; });
    nodes_.resize(kFirst + kBytes);
  }

  void build() {
    std::vector<Range> waiting = {{kRoot, 0, 0, order_.size()}};
    while (!waiting.empty()) {
      const Range range = waiting.back();
      waiting.pop_back();
      place_children(range, waiting);
    }
    nodes_.resize(last_ + 1 + kBytes);  // whatever the base and the byte: inside
  }

 private:
  static constexpr State kFirst = kBytes;

  // The pieces order_[first, last) have their first `depth` bytes in common: `node`.
  struct Range {
    State node;
    std::size_t depth;
    std::size_t first, last;
  };

  void place_children(const Range& range, std::vector<Range>& waiting) {
    std::size_t at = range.first;
    // A piece that ends here; of equal ones the last.
    for (; at < range.last && piece(at).size() == range.depth; ++at) {
      nodes_[range.node].id = order_[at];
    }
    children_.clear();
    while (at < range.last) {
      const char byte = piece(at)[range.depth];
      std::size_t end = at + 1;
      while (end < range.last && piece(end)[range.depth] == byte) ++end;
      children_.push_back(
          {static_cast<unsigned char>(byte), {0, range.depth + 1, at, end}});
      at = end;
    }
    if (children_.empty()) return;
    const State base = find_base();
    nodes_[range.node].base = base;
    for (auto& [byte, child] : children_) {
      child.node = base + byte;
      nodes_[child.node].parent = range.node;
      last_ = std::max(last_, child.node);
      waiting.push_back(child);
    }
  }

  State find_base() {
    while (is_taken(free_)) ++free_;
    const State first = children_.front().first;  // the smallest: pieces are in order
    State place = free_;
    for (int tries = 0; tries < kMostTries; ++tries, ++place) {
      if (fits(place - first)) return place - first;
    }
    place = last_ + 1;
    if (nodes_.size() <= place + kBytes) nodes_.resize(2 * nodes_.size());
    return place - first;
  }
  bool fits(State base) {
    if (nodes_.size() <= base + kBytes) nodes_.resize(2 * nodes_.size());
    return std::ranges::none_of(
        children_, [&](const auto& child) { return is_taken(base + child.first); });
  }
  bool is_taken(State place) {
    if (nodes_.size() <= place) nodes_.resize(2 * nodes_.size());
    return nodes_[place].parent != kNone;
  }
  const std::string& piece(std::size_t at) const { return pieces_[order_[at]]; }

  const std::vector<std::string>& pieces_;
  std::vector<Node>& nodes_;
  std::vector<TokenId> order_;
  std::vector<std::pair<unsigned char, Range>> children_;  // of one node
  State free_ = kFirst;                                    // all places below are taken
  State last_ = kFirst;
};

PieceTrie::PieceTrie(const std::vector<std::string>& pieces) {
  Builder(pieces, nodes_).build();
}

PieceTrie::State PieceTrie::state_behind(std::string_view text) const {
  State state = kRoot;
  for (const char byte : text) {
    const State next = nodes_[state].base + static_cast<unsigned char>(byte);
    if (nodes_[next].parent != state) return kNothing;
    state = next;
  }
  return state;
}

}  // namespace trireme::data
