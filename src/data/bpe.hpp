// data/bpe.hpp — byte-pair encoding of one piece of text (Sennrich et al. 2016; on bytes
// as in GPT-2): start from single bytes, and while any adjacent pair is in the list of
// merges, merge the leftmost pair of lowest rank.
#ifndef TRIREME_DATA_BPE_HPP_
#define TRIREME_DATA_BPE_HPP_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/piece_cache.hpp"
#include "data/token_model.hpp"

namespace trireme::data {

// Two tokens to be merged, by id.
struct Pair {
  TokenId left;
  TokenId right;
  friend bool operator==(const Pair&, const Pair&) = default;
};

// The tables, immutable once built.
class BpeModel {
 public:
  struct Merge {
    Pair pair;
    TokenId result;
  };
  static constexpr std::uint32_t kNoRank = 0xFFFFFFFFu;
  struct Ranked {
    std::uint32_t rank = kNoRank;
    TokenId result = 0;
  };

  // tokens[id] is the token's bytes (empty: an id not in use). All 256 single bytes must
  // be tokens (InputError). Merges by rank; a pair listed twice counts where it stands
  // last, as in Hugging Face's reader. whole_pieces_first: a piece that is a token is
  // taken as it is, whatever the merges say (Hugging Face's ignore_merges).
  BpeModel(std::vector<std::string> tokens, const std::vector<Merge>& merges,
           bool whole_pieces_first = false);
  BpeModel(BpeModel&&) = default;  // a copy's whole_ would look into tokens_ of this one
  BpeModel& operator=(BpeModel&&) = default;

  std::size_t size() const { return tokens_.size(); }
  std::string_view bytes_of(TokenId id) const { return tokens_[id]; }
  TokenId byte_token(std::uint8_t byte) const { return byte_token_[byte]; }
  Ranked merge_of(TokenId left, TokenId right) const {
    const std::uint64_t key = std::uint64_t{left} << 32 | right;
    const std::uint64_t hash = key * kHash;
    if (!may_merge(hash)) return {};
    for (std::size_t slot = hash >> shift_;; slot = (slot + 1) & mask_) {
      if (pairs_[slot].key == key) return pairs_[slot].merge;
      if (pairs_[slot].key == kEmpty) return {};
    }
  }

  // Appends the ids of `piece` to `ids`.
  void encode(std::string_view piece, std::vector<TokenId>& ids) const;

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct PairSlot {
    std::uint64_t key = kEmpty;
    Ranked merge;
  };
  static constexpr std::uint64_t kHash = 0x9E3779B97F4A7C15ull;
  bool may_merge(std::uint64_t hash) const {
    const std::uint64_t bit = hash >> filter_shift_;
    return (filter_[bit / 64] >> (bit % 64) & 1) != 0;
  }
  void encode_short(std::string_view piece, std::vector<TokenId>& ids) const;
  void encode_long(std::string_view piece, std::vector<TokenId>& ids) const;

  std::vector<std::string> tokens_;
  std::array<TokenId, 256> byte_token_{};
  std::vector<PairSlot> pairs_;  // open addressing, at most half full
  std::size_t mask_ = 0;
  int shift_ = 0;
  // A bit of every pair in the list; few of the others have theirs set. Most pairs of a
  // text do not merge, and this is small enough to stay near the CPU.
  std::vector<std::uint64_t> filter_;
  int filter_shift_ = 0;
  std::unordered_map<std::string_view, TokenId> whole_;  // only with whole_pieces_first
};

// Encodes pieces, most of them from a cache. One per thread.
class BpeEncoder {
 public:
  explicit BpeEncoder(const BpeModel& model) : model_(model) {}

  void encode(std::string_view piece, std::vector<TokenId>& ids) {
    cache_.encode(piece, ids, model_);
  }

 private:
  const BpeModel& model_;
  PieceCache cache_;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_BPE_HPP_
