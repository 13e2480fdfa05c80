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

namespace trireme::data {

using TokenId = std::uint32_t;

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

  std::size_t size() const { return tokens_.size(); }
  std::string_view bytes_of(TokenId id) const { return tokens_[id]; }
  TokenId byte_token(std::uint8_t byte) const { return byte_token_[byte]; }
  Ranked merge_of(TokenId left, TokenId right) const {
    const std::uint64_t key = std::uint64_t{left} << 32 | right;
    for (std::size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
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
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ull) >> shift_);
  }
  void encode_short(std::string_view piece, std::vector<TokenId>& ids) const;
  void encode_long(std::string_view piece, std::vector<TokenId>& ids) const;

  std::vector<std::string> tokens_;
  std::array<TokenId, 256> byte_token_{};
  std::vector<PairSlot> pairs_;  // open addressing, at most half full
  std::size_t mask_ = 0;
  int shift_ = 0;
  std::unordered_map<std::string_view, TokenId> whole_;  // only with whole_pieces_first
};

// Encodes pieces through a bounded cache: text repeats itself, and a look-up is some
// twenty times cheaper than the merges. One per thread.
class BpeEncoder {
 public:
  explicit BpeEncoder(const BpeModel& model);

  void encode(std::string_view piece, std::vector<TokenId>& ids);

 private:
  // Pieces of up to 16 bytes are their own key (two words and the length tell all);
  // longer ones keep their bytes in key_bytes_, with a hash and a place here.
  struct Entry {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    std::uint32_t length = 0;  // 0: free
    std::uint32_t count = 0;
    TokenId ids[2] = {0, 0};  // more than two: ids[0] is where they are in long_ids_
  };
  struct Key {
    std::uint64_t low, high, hash;
  };
  static Key key_of(std::string_view piece);
  bool holds(const Entry& entry, const Key& key, std::string_view piece) const;
  void insert(std::size_t slot, const Key& key, std::string_view piece,
              const TokenId* ids, std::size_t count);
  void grow_or_clear();

  const BpeModel& model_;
  std::vector<Entry> entries_;  // open addressing, at most half full
  std::size_t used_ = 0;
  std::string key_bytes_;
  std::vector<TokenId> long_ids_;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_BPE_HPP_
