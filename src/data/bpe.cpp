// data/bpe.cpp — see bpe.hpp.
//
// Merging is done in two ways with equal results. Short pieces, nearly all of them, are
// scanned for their best pair again and again, which is fast while a piece fits a few
// cache lines. Long ones use a heap of candidates, whose stale entries are recognised
// when they come up. Example, with the merges "l o" (rank 0) and "lo w" (rank 1): l o w
// becomes lo w, and then low.
#include "data/bpe.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <queue>
#include <utility>

#include "base/error.hpp"

namespace trireme::data {
namespace {

// Pieces of more bytes are merged with a heap: O(n log n) instead of O(n^2).
constexpr std::size_t kShort = 96;
constexpr std::size_t kFilterBitsPerSlot = 4;  // 64 KiB for GPT-2's 50,000 merges

}  // namespace

BpeModel::BpeModel(std::vector<std::string> tokens, const std::vector<Merge>& merges,
                   bool whole_pieces_first)
    : tokens_(std::move(tokens)) {
  std::array<bool, 256> found{};
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].size() != 1) continue;
    const auto byte = static_cast<std::uint8_t>(tokens_[id][0]);
    found[byte] = true;
    byte_token_[byte] = static_cast<TokenId>(id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    TRIREME_REQUIRE_INPUT(
        found[byte],
        "the vocabulary has no token for the byte 0x{:02X}: a byte-level "
        "vocabulary has all 256, or text with that byte would be lost "
        "(train it with the full byte alphabet)",
        byte);
  }
  const std::size_t slots = std::bit_ceil(merges.size() * 2 + 2);
  pairs_.resize(slots);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  const std::size_t bits = std::max<std::size_t>(slots * kFilterBitsPerSlot, 64);
  filter_.resize(bits / 64);
  filter_shift_ = 64 - std::countr_zero(bits);
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [pair, result] = merges[rank];
    const std::uint64_t key = std::uint64_t{pair.left} << 32 | pair.right;
    const std::uint64_t hash = key * kHash;
    const std::uint64_t bit = hash >> filter_shift_;
    filter_[bit / 64] |= std::uint64_t{1} << (bit % 64);
    std::size_t slot = hash >> shift_;
    while (pairs_[slot].key != kEmpty && pairs_[slot].key != key)
      slot = (slot + 1) & mask_;
    pairs_[slot] = {key, {static_cast<std::uint32_t>(rank), result}};
  }
  if (whole_pieces_first) {
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      if (!tokens_[id].empty()) whole_.emplace(tokens_[id], static_cast<TokenId>(id));
    }
  }
}

void BpeModel::encode(std::string_view piece, std::vector<TokenId>& ids) const {
  if (!whole_.empty()) {
    const auto found = whole_.find(piece);
    if (found != whole_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  if (piece.size() <= kShort) {
    encode_short(piece, ids);
  } else {
    encode_long(piece, ids);
  }
}

void BpeModel::encode_short(std::string_view piece, std::vector<TokenId>& ids) const {
  TokenId symbol[kShort];
  Ranked merge[kShort];  // merge[i]: of symbols i and i + 1
  std::size_t count = piece.size();
  for (std::size_t i = 0; i < count; ++i) {
    symbol[i] = byte_token_[static_cast<std::uint8_t>(piece[i])];
  }
  for (std::size_t i = 0; i + 1 < count; ++i)
    merge[i] = merge_of(symbol[i], symbol[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (merge[i].rank < merge[best].rank) best = i;
    }
    if (merge[best].rank == kNoRank) break;
    symbol[best] = merge[best].result;
    std::memmove(symbol + best + 1, symbol + best + 2,
                 (count - best - 2) * sizeof(symbol[0]));
    if (best + 2 < count) {
      std::memmove(merge + best + 1, merge + best + 2,
                   (count - best - 3) * sizeof(Ranked));
    }
    --count;
    if (best + 1 < count) merge[best] = merge_of(symbol[best], symbol[best + 1]);
    if (best > 0) merge[best - 1] = merge_of(symbol[best - 1], symbol[best]);
  }
  ids.insert(ids.end(), symbol, symbol + count);
}

void BpeModel::encode_long(std::string_view piece, std::vector<TokenId>& ids) const {
  // A doubly linked list of symbols; a heap of candidate merges, where an entry is stale
  // when the symbols at its place have changed since.
  struct Symbol {
    TokenId id;
    std::int64_t previous, next;  // -1: none
    bool alive;
  };
  struct Candidate {
    std::uint32_t rank;
    std::int64_t place;
    Pair pair;
    bool operator<(const Candidate& other) const {  // top of the heap: lowest, leftmost
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  const auto length = static_cast<std::int64_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  for (std::int64_t i = 0; i < length; ++i) {
    symbols[i] = {byte_token_[static_cast<std::uint8_t>(piece[i])], i - 1,
                  i + 1 < length ? i + 1 : -1, true};
  }
  std::priority_queue<Candidate> heap;
  const auto consider = [&](std::int64_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const Pair pair = {symbols[left].id, symbols[symbols[left].next].id};
    const Ranked merge = merge_of(pair.left, pair.right);
    if (merge.rank != kNoRank) heap.push({merge.rank, left, pair});
  };
  for (std::int64_t i = 0; i + 1 < length; ++i) consider(i);
  while (!heap.empty()) {
    const Candidate top = heap.top();
    heap.pop();
    Symbol& left = symbols[top.place];
    if (!left.alive || left.next < 0 || left.id != top.pair.left ||
        symbols[left.next].id != top.pair.right) {
      continue;
    }
    Symbol& right = symbols[left.next];
    left.id = merge_of(top.pair.left, top.pair.right).result;
    left.next = right.next;
    right.alive = false;
    if (left.next >= 0) symbols[left.next].previous = top.place;
    consider(left.previous);
    consider(top.place);
  }
  for (std::int64_t i = 0; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace trireme::data
