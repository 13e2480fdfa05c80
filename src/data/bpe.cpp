// data/bpe.cpp — see bpe.hpp.
#include "data/bpe.hpp"

#include <bit>
#include <cstring>
#include <queue>

#include "base/error.hpp"

namespace trireme::data {
namespace {

// Pieces of more bytes are merged with a heap: O(n log n) instead of O(n^2).
constexpr std::size_t kShort = 96;

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
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [pair, result] = merges[rank];
    const std::uint64_t key = std::uint64_t{pair.left} << 32 | pair.right;
    std::size_t slot = slot_of(key);
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

// The cache.

namespace {

constexpr std::size_t kFirstSlots = std::size_t{1} << 14;
constexpr std::size_t kMostSlots = std::size_t{1} << 20;  // 32 MiB of entries
constexpr std::size_t kCachedBytes = 96;  // longer pieces seldom come back
constexpr std::size_t kOwnKeyBytes = 16;

std::uint64_t load(const char* from, std::size_t bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  return word;
}

std::uint64_t mixed(std::uint64_t low, std::uint64_t high) {
  std::uint64_t hash = (low ^ 0x9E3779B97F4A7C15ull) * 0xD6E8FEB86659FD93ull ^
                       high * 0xCA9B0EA08D3B4D67ull;
  hash ^= hash >> 32;
  return hash * 0xD6E8FEB86659FD93ull;
}

}  // namespace

BpeEncoder::BpeEncoder(const BpeModel& model) : model_(model), entries_(kFirstSlots) {}

BpeEncoder::Key BpeEncoder::key_of(std::string_view piece) {
  const char* p = piece.data();
  const std::size_t n = piece.size();
  Key key{0, 0, 0};
  if (n <= kOwnKeyBytes) {
    // Overlapping loads of constant size: together with n they determine the bytes.
    if (n >= 8) {
      key.low = load(p, 8);
      key.high = load(p + n - 8, 8);
    } else if (n >= 4) {
      key.low = load(p, 4) | load(p + n - 4, 4) << 32;
    } else {
      key.low = load(p, 1) | load(p + n / 2, 1) << 8 | load(p + n - 1, 1) << 16;
    }
    key.hash = mixed(key.low, key.high + n);
  } else {
    for (std::size_t i = 0; i + 8 <= n; i += 8) key.low = mixed(key.low, load(p + i, 8));
    key.low = mixed(key.low, load(p + n - 8, 8)) + n;
    key.hash = key.low;
  }
  return key;
}

bool BpeEncoder::holds(const Entry& entry, const Key& key, std::string_view piece) const {
  if (entry.low != key.low || entry.length != piece.size()) return false;
  if (piece.size() <= kOwnKeyBytes) return entry.high == key.high;
  return std::memcmp(key_bytes_.data() + entry.high, piece.data(), piece.size()) == 0;
}

void BpeEncoder::encode(std::string_view piece, std::vector<TokenId>& ids) {
  if (piece.size() > kCachedBytes) {
    model_.encode(piece, ids);
    return;
  }
  const Key key = key_of(piece);
  const std::size_t mask = entries_.size() - 1;
  std::size_t slot = (key.hash >> 20) & mask;
  for (; entries_[slot].length != 0; slot = (slot + 1) & mask) {
    const Entry& entry = entries_[slot];
    if (!holds(entry, key, piece)) continue;
    if (entry.count == 1) {
      ids.push_back(entry.ids[0]);
    } else if (entry.count == 2) {
      ids.push_back(entry.ids[0]);
      ids.push_back(entry.ids[1]);
    } else {
      const TokenId* more = long_ids_.data() + entry.ids[0];
      ids.insert(ids.end(), more, more + entry.count);
    }
    return;
  }
  const std::size_t before = ids.size();
  model_.encode(piece, ids);
  insert(slot, key, piece, ids.data() + before, ids.size() - before);
}

void BpeEncoder::insert(std::size_t slot, const Key& key, std::string_view piece,
                        const TokenId* ids, std::size_t count) {
  Entry& entry = entries_[slot];
  entry.low = key.low;
  entry.high = key.high;
  if (piece.size() > kOwnKeyBytes) {
    entry.high = key_bytes_.size();
    key_bytes_.append(piece);
  }
  entry.length = static_cast<std::uint32_t>(piece.size());
  entry.count = static_cast<std::uint32_t>(count);
  if (count <= 2) {
    for (std::size_t i = 0; i < count; ++i) entry.ids[i] = ids[i];
  } else {
    entry.ids[0] = static_cast<TokenId>(long_ids_.size());
    long_ids_.insert(long_ids_.end(), ids, ids + count);
  }
  if (++used_ * 2 > entries_.size()) grow_or_clear();
}

void BpeEncoder::grow_or_clear() {
  if (entries_.size() >= kMostSlots) {
    // Full: start anew. Frequent pieces are back within a few thousand.
    entries_.assign(entries_.size(), Entry{});
    key_bytes_.clear();
    long_ids_.clear();
    used_ = 0;
    return;
  }
  std::vector<Entry> larger(entries_.size() * 2);
  const std::size_t mask = larger.size() - 1;
  for (const Entry& entry : entries_) {
    if (entry.length == 0) continue;
    const std::uint64_t hash = entry.length > kOwnKeyBytes
                                   ? entry.low
                                   : mixed(entry.low, entry.high + entry.length);
    std::size_t slot = (hash >> 20) & mask;
    while (larger[slot].length != 0) slot = (slot + 1) & mask;
    larger[slot] = entry;
  }
  entries_.swap(larger);
}

}  // namespace trireme::data
