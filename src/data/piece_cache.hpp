// data/piece_cache.hpp — a cache of the ids of pieces of text that came last: text
// repeats itself, and a look-up is some twenty times cheaper than finding the ids again.
// It has a fixed size. One per thread.
#ifndef TRIREME_DATA_PIECE_CACHE_HPP_
#define TRIREME_DATA_PIECE_CACHE_HPP_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "data/token_model.hpp"

namespace trireme::data {

class PieceCache {
 public:
  PieceCache() : sets_(std::size_t{1} << kSetBits) {}

  // Appends the ids of `piece`, by model.encode(piece, ids) where they are not known.
  template <class Model>
  void encode(std::string_view piece, std::vector<TokenId>& ids, const Model& model);

 private:
  static constexpr std::size_t kCachedBytes = 24;  // longer pieces seldom come back
  static constexpr std::size_t kCachedIds = 8;
  // 4 MiB: about a core's share of the caches. With more, pieces that come back seldom
  // cost a look-up in memory, which takes longer than encoding them again.
  static constexpr int kSetBits = 15;
  using Key = std::array<std::uint64_t, 3>;  // with the length, the bytes themselves
  struct alignas(64) Entry {                 // a line of the CPU's cache
    Key key{};
    std::uint32_t length = 0;  // 0: free
    std::uint32_t count = 0;
    std::array<TokenId, kCachedIds> ids{};
  };
  // A piece has one set where it can be; of three such pieces, the one that was asked for
  // longest ago goes.
  struct Set {
    Entry latest, other;
  };

  static std::uint64_t load(const char* from, std::size_t bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, from, bytes);
    return word;
  }
  static Key key_of(std::string_view piece);
  static std::size_t set_of(const Key& key, std::size_t length);

  std::vector<Set> sets_;
};

inline PieceCache::Key PieceCache::key_of(std::string_view piece) {
  // Overlapping loads of constant size: together with the length they are the bytes.
  const char* p = piece.data();
  const std::size_t n = piece.size();
  if (n >= 16) return {load(p, 8), load(p + 8, 8), load(p + n - 8, 8)};
  if (n >= 8) return {load(p, 8), load(p + n - 8, 8), 0};
  if (n >= 4) return {load(p, 4) | load(p + n - 4, 4) << 32, 0, 0};
  return {load(p, 1) | load(p + n / 2, 1) << 8 | load(p + n - 1, 1) << 16, 0, 0};
}

inline std::size_t PieceCache::set_of(const Key& key, std::size_t length) {
  std::uint64_t hash = (key[0] ^ 0x9E3779B97F4A7C15ull) * 0xD6E8FEB86659FD93ull ^
                       (key[1] + length) * 0xCA9B0EA08D3B4D67ull ^
                       key[2] * 0x9FB21C651E98DF25ull;
  hash ^= hash >> 32;
  return static_cast<std::size_t>(hash * 0xD6E8FEB86659FD93ull >> (64 - kSetBits));
}

template <class Model>
void PieceCache::encode(std::string_view piece, std::vector<TokenId>& ids,
                        const Model& model) {
  if (piece.empty()) return;
  if (piece.size() > kCachedBytes) {
    model.encode(piece, ids);
    return;
  }
  const Key key = key_of(piece);
  Set& set = sets_[set_of(key, piece.size())];
  const auto is_piece = [&](const Entry& entry) {
    return entry.length == piece.size() && entry.key == key;
  };
  if (!is_piece(set.latest)) {
    if (is_piece(set.other)) {
      std::swap(set.latest, set.other);
    } else {
      const std::size_t before = ids.size();
      model.encode(piece, ids);
      const std::size_t count = ids.size() - before;
      if (count > kCachedIds) return;
      set.other = set.latest;
      set.latest.key = key;
      set.latest.length = static_cast<std::uint32_t>(piece.size());
      set.latest.count = static_cast<std::uint32_t>(count);
      std::copy_n(ids.data() + before, count, set.latest.ids.data());
      return;
    }
  }
  const Entry& entry = set.latest;
  if (entry.count == 1) {
    ids.push_back(entry.ids[0]);
  } else {
    ids.insert(ids.end(), entry.ids.data(), entry.ids.data() + entry.count);
  }
}

}  // namespace trireme::data

#endif  // TRIREME_DATA_PIECE_CACHE_HPP_
