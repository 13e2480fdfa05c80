// kernels/impl/attention_tiles.hpp — the walk over tiles of attention on a host, the same
// for everything that can compute a tile.
//
// A tile is kTile queries by kTile keys of one head. It is held transposed: keys are its
// rows and queries lie side by side in a vector, so that the softmax runs down the rows
// and needs no sums across a vector. Keys are packed a chunk of tiles at a time for all
// queries of a work item; tiles that no query sees are passed over. Tiles of a row or a
// column of tiles are added in the order of the keys or the queries whatever the work
// items are: the same bits for every number of threads, heads and samples.
//
// An Engine computes tiles, in memory whose layout is its own:
//   Element; depth(d): the head size, padded; Session: held while tiles are computed
//   bias_factor(scale) of a bias that is added to scores as the Engine has them
//   kWordOrder         of the queries in dropout words of the forward pass
//   forward:  load_forward_keys, begin_forward, forward_tile, end_forward
//   backward: load_backward_keys, begin_backward, backward_tile, store_*
// with ..._bytes of each memory, multiples of 64.
#ifndef TRIREME_KERNELS_IMPL_ATTENTION_TILES_HPP_
#define TRIREME_KERNELS_IMPL_ATTENTION_TILES_HPP_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/random.hpp"
#include "kernels/impl/attention_bias.hpp"
#include "kernels/impl/attention_host.hpp"
#include "kernels/impl/attention_mask.hpp"
#include "kernels/impl/philox_lanes.hpp"
#include "kernels/impl/thread_count.hpp"

namespace trireme::kernels::impl {

inline constexpr int kTile = 64;        // queries, and keys, of a tile
inline constexpr int kChunk = 8;        // tiles of keys that are packed at a time
inline constexpr int kMostQueries = 8;  // tiles of queries of a work item, at most
inline constexpr int kPairs = kTile / 2;

// A head's rows in memory: row i at data + i * stride.
template <class T>
struct Rows {
  T* data;
  index_t stride;
  T* row(index_t i) const { return data + i * stride; }
};
template <class T>
Rows<T> rows_of(const HeadsView<T>& view, index_t begin, index_t sample, index_t head,
                index_t head_dim) {
  return {view.row(begin, sample, head, head_dim), view.sequence_stride};
}

// What a tile of queries has in common with all tiles of keys.
struct QueryTile {
  int rows;
  KeyRange seen;         // by one of them
  KeyRange seen_by_all;  // may be empty
  KeyRange of[kTile];    // by each; none by the rows that are not there
};

inline void set_query_tile(const AttentionDesc& desc, index_t sample, index_t begin,
                           QueryTile& tile) {
  tile.rows = static_cast<int>(std::min<index_t>(kTile, desc.q_length - begin));
  for (int i = 0; i < kTile; ++i) {
    tile.of[i] = i < tile.rows ? visible_keys(desc, sample, begin + i) : KeyRange{};
  }
  const KeyRange first = tile.of[0], last = tile.of[tile.rows - 1];
  tile.seen = {first.begin, last.end};
  tile.seen_by_all = {last.begin, first.end};
  if (tile.seen.is_empty()) tile.seen = tile.seen_by_all = {};
}

// rows = 0: what padding gets, which sees no keys.
template <class T>
void store_nothing(const Rows<T>& rows, int count, index_t head_dim) {
  for (int i = 0; i < count; ++i) {
    std::fill_n(rows.row(i), head_dim, static_cast<T>(0.0f));
  }
}

// Draws the words of pairs of tiles: of kTile queries from q_begin on, the c-th of which
// is order[c].
struct WordDrawer {
  PhiloxRows<random::DropoutWords::kRounds, kTile> rows;

  void set(const AttentionDesc& desc, const StepState& step, std::uint32_t threshold,
           index_t sample, index_t head, index_t q_begin, const int (&order)[kTile]) {
    const AttentionDropout row =
        dropout_row(desc, step, threshold, sample, head, q_begin);
    const std::uint64_t calls_per_row = random::DropoutWords::calls_per_key_row(
        static_cast<std::uint64_t>(desc.mask_keys));
    std::uint64_t first[kTile];
    for (int c = 0; c < kTile; ++c) {
      first[c] = row.first_call + static_cast<std::uint64_t>(order[c]) * calls_per_row;
    }
    rows.set(row.generator, first, calls_per_row);
  }
};

// Two tiles that meet.
struct TilePair {
  int keys = 0, queries = 0;
  // Whether some query does not see some key. Then query i sees keys [begin[i], end[i])
  // of the tile; a tile with fewer keys or queries is partial.
  bool partial = false;
  std::int32_t begin[kTile], end[kTile];
  // Of dropout; null without. Word (r, c) belongs to keys 2 r and 2 r + 1, low half and
  // high half. An Engine draws them where it can do so beside other work.
  std::uint32_t* words = nullptr;  // (kPairs, kTile)
  const WordDrawer* drawer = nullptr;
  index_t k_begin = 0;
  std::uint32_t threshold = 0;
  float keep_scale = 1.0f;
  // Of a bias, null without one: query i and key j have element kTile - 1 + i - j, to be
  // added to their score; and in the backward pass, where sums over the same diagonals of
  // the scores' gradients are added to.
  const float* bias = nullptr;
  float* d_bias = nullptr;

  // Fills the scores of the keys [0, rows) with the bias, so that a product is added.
  void put_bias(int rows, float* scores) const {
    for (int k = 0; k < rows; ++k) {
      std::memcpy(scores + k * kTile, bias + kTile - 1 - k, kTile * sizeof(float));
    }
  }
  // Of the columns [column, column + columns), a multiple of 32: all of a half tile,
  // whose queries may be in any order.
  void draw_words(int column, int columns) const;
};

// The words of some columns of a pair, drawn step by step.
class WordSteps {
 public:
  WordSteps(const TilePair& pair, int column, int columns)
      : pair_(pair),
        begin_(column),
        end_(column + columns),
        column_(column),
        calls_(pair.words == nullptr ? 0 : 4 * ((pair.keys + 31) / 32)) {}

  // Up to `most` of the steps that are left.
  void take(int most) {
    for (; most > 0 && call_ < calls_; --most) {
      const int row = call_ / 4 * 16 + call_ % 4;
      pair_.drawer->rows.draw(column_,
                              static_cast<std::uint64_t>(pair_.k_begin / 8 + call_),
                              pair_.words + row * kTile + column_, 4 * kTile);
      column_ += kPhiloxRowStep;
      if (column_ < end_) continue;
      column_ = begin_;
      ++call_;
    }
  }
  void take_all() { take(kPairs * kTile); }

 private:
  static_assert(kTile % random::DropoutWords::kKeysPerGroup == 0 &&
                kTile % kPhiloxRowStep == 0);

  const TilePair& pair_;
  int begin_, end_, column_, call_ = 0, calls_;
};

inline void TilePair::draw_words(int column, int columns) const {
  WordSteps(*this, column, columns).take_all();
}

// False where no query of the tile sees a key of the other.
inline bool set_pair(const QueryTile& queries, index_t k_begin, index_t kv_length,
                     TilePair& pair) {
  if (queries.seen.end <= k_begin || queries.seen.begin >= k_begin + kTile) return false;
  pair.k_begin = k_begin;
  pair.keys = static_cast<int>(std::min<index_t>(kTile, kv_length - k_begin));
  pair.queries = queries.rows;
  pair.partial = queries.seen_by_all.begin > k_begin ||
                 queries.seen_by_all.end < k_begin + kTile || queries.rows < kTile;
  if (!pair.partial) return true;
  for (int i = 0; i < kTile; ++i) {
    const auto in_tile = [&](index_t key) {
      return static_cast<std::int32_t>(std::clamp<index_t>(key - k_begin, 0, kTile));
    };
    pair.begin[i] = in_tile(queries.of[i].begin);
    pair.end[i] = in_tile(queries.of[i].end);
  }
  return true;
}

// What TilePair::bias needs: the bias of some tile of queries and some tile of keys.
struct BiasOfPair {
  static constexpr int kDiagonals = 2 * kTile;
  alignas(64) float values[kDiagonals];

  // `bias` is that of all heads. There are no distances, and nobody looks, where the
  // tiles have no queries or no keys.
  void load(const AttentionDesc& desc, const float* bias, index_t head, index_t q_begin,
            index_t k_begin, float factor) {
    const index_t count = distances(desc);
    const index_t first = q_begin - k_begin + desc.kv_length - kTile;
    const auto begin = static_cast<int>(std::clamp<index_t>(-first, 0, kDiagonals));
    const auto end = static_cast<int>(std::clamp<index_t>(count - first, 0, kDiagonals));
    std::fill(values, values + begin, 0.0f);
    std::fill(values + end, values + kDiagonals, 0.0f);
    const index_t at = head * count + first;
    for (int i = begin; i < end; ++i) values[i] = factor * bias[at + i];
  }
};

// Hands out parts of a thread's memory.
class Room {
 public:
  explicit Room(void* memory) : next_(static_cast<std::byte*>(memory)) {}
  template <class T = std::byte>
  T* take(std::size_t bytes) {
    auto* const part = reinterpret_cast<T*>(next_);
    next_ += (bytes + 63) / 64 * 64;
    return part;
  }

 private:
  std::byte* next_;
};

inline index_t tiles_in(index_t length) {
  return (length + kTile - 1) / kTile;
}

inline std::byte* scratch_of(const TeamMember& team, std::size_t bytes) {
  return static_cast<std::byte*>(
      team.team_scratch(scratch_level(bytes)).get_shmem_aligned(bytes, 64));
}

// The tiles of queries of a work item: of one head of a sample, the last ones first, as
// they see the most keys of a causal mask and take longest.
struct QueryBlock {
  index_t sample, head, first, last;

  QueryBlock(const AttentionDesc& desc, int most, index_t item) {
    const index_t tiles = tiles_in(desc.q_length);
    const index_t heads = desc.batch * desc.heads;
    const index_t blocks = (tiles + most - 1) / most;
    first = (blocks - 1 - item / heads) * most;
    last = std::min<index_t>(tiles, first + most);
    head = item % heads % desc.heads;
    sample = item % heads / desc.heads;
  }
  static index_t count(const AttentionDesc& desc, int most) {
    return desc.batch * desc.heads * ((tiles_in(desc.q_length) + most - 1) / most);
  }
  // As many tiles as leave two work items to each thread.
  static int fitting(const AttentionDesc& desc, index_t threads) {
    int most = kMostQueries;
    while (most > 1 && count(desc, most) < 2 * threads) most /= 2;
    return most;
  }
};

template <class Engine>
struct ForwardWork {
  using T = typename Engine::Element;

  ForwardArguments<T> in;
  std::uint32_t threshold;
  int tiles;  // of queries, of a work item

  static std::size_t bytes(int depth, int tiles) {
    return kChunk * Engine::forward_key_bytes(depth) +
           static_cast<std::size_t>(tiles) *
               (Engine::forward_query_bytes(depth) + sizeof(QueryTile) + 64) +
           Engine::forward_work_bytes(depth) + kPairs * kTile * sizeof(std::uint32_t);
  }

  void operator()(const TeamMember& team) const {
    const AttentionDesc& desc = in.desc;
    const QueryBlock block(desc, tiles, team.league_rank());
    const int d = static_cast<int>(desc.head_dim), depth = Engine::depth(d);
    [[maybe_unused]] const typename Engine::Session session;
    Room room(scratch_of(team, bytes(depth, tiles)));
    auto* const keys = room.take(kChunk * Engine::forward_key_bytes(depth));
    auto* const work = room.take(Engine::forward_work_bytes(depth));
    auto* const words = room.take<std::uint32_t>(kPairs * kTile * sizeof(std::uint32_t));
    QueryTile* query[kMostQueries];
    std::byte* state[kMostQueries];
    KeyRange seen{desc.kv_length, 0};
    const int count = static_cast<int>(block.last - block.first);
    for (int i = 0; i < count; ++i) {
      query[i] = room.take<QueryTile>(sizeof(QueryTile));
      state[i] = room.take(Engine::forward_query_bytes(depth));
      const index_t begin = (block.first + i) * kTile;
      set_query_tile(desc, block.sample, begin, *query[i]);
      if (query[i]->seen.is_empty()) continue;
      seen = {std::min(seen.begin, query[i]->seen.begin),
              std::max(seen.end, query[i]->seen.end)};
      Engine::begin_forward(rows_of(in.q, begin, block.sample, block.head, d),
                            query[i]->rows, d, desc.scale, state[i]);
    }
    const index_t kv_head = block.head / (desc.heads / desc.kv_heads);
    constexpr index_t kKeys = kChunk * kTile;
    for (index_t chunk = seen.begin / kKeys * kKeys; chunk < seen.end; chunk += kKeys) {
      const index_t from = std::max(chunk, seen.begin / kTile * kTile);
      const index_t to = std::min(chunk + kKeys, seen.end);
      load_keys(block.sample, kv_head, from, to, keys);
      for (int i = 0; i < count; ++i) {
        walk(block, block.first + i, *query[i], from, to, keys, words, state[i], work);
      }
    }
    for (int i = 0; i < count; ++i) {
      const index_t begin = (block.first + i) * kTile;
      const Rows<T> o = rows_of(in.o, begin, block.sample, block.head, d);
      float* const lse =
          in.lse + (block.sample * desc.heads + block.head) * desc.q_length + begin;
      if (query[i]->seen.is_empty()) {
        store_nothing(o, query[i]->rows, d);
        std::fill_n(lse, query[i]->rows, -Kokkos::Experimental::infinity_v<float>);
        continue;
      }
      Engine::end_forward(state[i], query[i]->rows, d, desc.scale,
                          static_cast<float>(random::DropoutWords::keep_scale(threshold)),
                          o, lse);
    }
  }

  void load_keys(index_t sample, index_t kv_head, index_t from, index_t to,
                 std::byte* keys) const {
    const int d = static_cast<int>(in.desc.head_dim);
    for (index_t k = from; k < to; k += kTile) {
      const int rows = static_cast<int>(std::min<index_t>(kTile, in.desc.kv_length - k));
      Engine::load_forward_keys(rows_of(in.k, k, sample, kv_head, d),
                                rows_of(in.v, k, sample, kv_head, d), rows, d, keys);
      keys += Engine::forward_key_bytes(Engine::depth(d));
    }
  }

  // A tile of queries over the tiles of keys that begin in [from, to).
  void walk(const QueryBlock& block, index_t tile, const QueryTile& query, index_t from,
            index_t to, const std::byte* keys, std::uint32_t* words, std::byte* state,
            std::byte* work) const {
    const int d = static_cast<int>(in.desc.head_dim);
    WordDrawer drawer;
    BiasOfPair bias;
    TilePair pair;
    if (threshold != 0) {
      drawer.set(in.desc, in.step(), threshold, block.sample, block.head, tile * kTile,
                 Engine::kWordOrder);
      pair.drawer = &drawer;
      pair.words = words;
      pair.threshold = threshold;
    }
    for (index_t k = from; k < to; k += kTile) {
      if (set_pair(query, k, in.desc.kv_length, pair)) {
        if (in.bias != nullptr) {
          bias.load(in.desc, in.bias, block.head, tile * kTile, k,
                    Engine::bias_factor(in.desc.scale));
          pair.bias = bias.values;
        }
        Engine::forward_tile(pair, d, in.desc.scale, keys, state, work);
      }
      keys += Engine::forward_key_bytes(Engine::depth(d));
    }
  }
};

inline constexpr int kInOrder[kTile] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
    32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
    48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};

// Which gradients a launch computes.
enum class Gradients { all, of_keys, of_queries };

template <class Engine, Gradients kind>
struct BackwardWork {
  using T = typename Engine::Element;
  static constexpr bool kKeys = kind != Gradients::of_queries;
  static constexpr bool kQueries = kind != Gradients::of_keys;

  BackwardArguments<T> in;
  std::uint32_t threshold;
  int tiles;  // of queries, of a work item of Gradients::of_queries

  // Memory of a work item.
  struct Memory {
    std::byte *keys, *key_sums, *queries, *work;
    std::uint32_t* words;
    float* d_q;
    static std::size_t bytes(int depth) {
      return kChunk * (Engine::backward_key_bytes(depth) + Engine::key_sum_bytes(depth)) +
             Engine::backward_query_bytes(depth) + Engine::backward_work_bytes(depth) +
             kPairs * kTile * sizeof(std::uint32_t) +
             sizeof(float) * static_cast<std::size_t>(kTile * depth) + 64;
    }
    Memory(const TeamMember& team, int depth) {
      Room room(scratch_of(team, bytes(depth)));
      keys = room.take(kChunk * Engine::backward_key_bytes(depth));
      key_sums = room.take(kChunk * Engine::key_sum_bytes(depth));
      queries = room.take(Engine::backward_query_bytes(depth));
      work = room.take(Engine::backward_work_bytes(depth));
      words = room.take<std::uint32_t>(kPairs * kTile * sizeof(std::uint32_t));
      d_q = room.take<float>(sizeof(float) * static_cast<std::size_t>(kTile * depth));
    }
  };
  // Keys [from, to) of one key head of a sample; a chunk, or the end of one, and whether
  // it is the first one of the work item.
  struct Keys {
    index_t sample, kv_head, from, to;
    bool is_first;
  };

  static constexpr index_t kChunkKeys = kChunk * kTile;
  static index_t chunks(const AttentionDesc& desc) {
    return (desc.kv_length + kChunkKeys - 1) / kChunkKeys;
  }

  void operator()(const TeamMember& team) const {
    const AttentionDesc& desc = in.desc;
    const index_t item = team.league_rank();
    const index_t group = desc.heads / desc.kv_heads;
    const index_t q_tiles = tiles_in(desc.q_length);
    [[maybe_unused]] const typename Engine::Session session;
    const Memory memory(team, Engine::depth(static_cast<int>(desc.head_dim)));
    if constexpr (kind == Gradients::of_queries) {
      const QueryBlock block(desc, tiles, item);
      const index_t kv_head = block.head / group;
      const KeyRange seen = visible_keys(desc, block.sample, block.first * kTile,
                                         std::min(block.last * kTile, desc.q_length) - 1);
      const index_t end = std::max(seen.end, seen.begin + 1);
      const index_t first = seen.begin / kChunkKeys;
      for (index_t c = first; c * kChunkKeys < end; ++c) {
        one_chunk(keys_of(block.sample, kv_head, c, c == first), block.head,
                  block.head + 1, block.first, block.last, memory);
      }
    } else if constexpr (kind == Gradients::of_keys) {
      // The first chunks, which the most queries see, are taken first.
      const index_t heads = desc.batch * desc.kv_heads;
      const index_t kv_head = item % heads % desc.kv_heads;
      one_chunk(keys_of(item % heads / desc.kv_heads, kv_head, item / heads, true),
                kv_head * group, (kv_head + 1) * group, 0, q_tiles, memory);
    } else {
      const index_t kv_head = item % desc.kv_heads;
      for (index_t c = 0; c < chunks(desc); ++c) {
        one_chunk(keys_of(item / desc.kv_heads, kv_head, c, c == 0), kv_head * group,
                  (kv_head + 1) * group, 0, q_tiles, memory);
      }
    }
  }

  Keys keys_of(index_t sample, index_t kv_head, index_t chunk, bool is_first) const {
    return {sample, kv_head, chunk * kChunkKeys,
            std::min(in.desc.kv_length, (chunk + 1) * kChunkKeys), is_first};
  }

  // Adds what a chunk of keys gives to d_q of the heads and tiles of queries, and
  // computes its d_k and d_v.
  void one_chunk(const Keys& keys, index_t head_begin, index_t head_end,
                 index_t tile_begin, index_t tile_end, const Memory& memory) const {
    const int d = static_cast<int>(in.desc.head_dim), depth = Engine::depth(d);
    load_keys(keys, memory.keys);
    if constexpr (kKeys) {
      const auto count = static_cast<std::size_t>(tiles_in(keys.to - keys.from));
      std::fill_n(memory.key_sums, count * Engine::key_sum_bytes(depth), std::byte{0});
    }
    for (index_t head = head_begin; head < head_end; ++head) {
      for (index_t tile = tile_begin; tile < tile_end; ++tile) {
        one_query_tile(keys, head, tile, memory);
      }
    }
    if constexpr (kKeys) store_key_sums(keys, memory);
  }

  void load_keys(const Keys& keys, std::byte* to) const {
    const int d = static_cast<int>(in.desc.head_dim);
    const KeyRange seen = visible_keys(in.desc, keys.sample, 0, in.desc.q_length - 1);
    for (index_t k = keys.from; k < keys.to; k += kTile) {
      if (k < seen.end && k + kTile > seen.begin) {
        const auto rows = static_cast<int>(std::min<index_t>(kTile, keys.to - k));
        Engine::load_backward_keys(rows_of(in.k, k, keys.sample, keys.kv_head, d),
                                   rows_of(in.v, k, keys.sample, keys.kv_head, d), rows,
                                   d, to);
      }
      to += Engine::backward_key_bytes(Engine::depth(d));
    }
  }

  void store_key_sums(const Keys& keys, const Memory& memory) const {
    const int d = static_cast<int>(in.desc.head_dim);
    const std::byte* sums = memory.key_sums;
    for (index_t k = keys.from; k < keys.to; k += kTile) {
      Engine::store_key_sums(
          sums, static_cast<int>(std::min<index_t>(kTile, keys.to - k)), d, in.desc.scale,
          static_cast<float>(random::DropoutWords::keep_scale(threshold)),
          rows_of(in.d_k, k, keys.sample, keys.kv_head, d),
          rows_of(in.d_v, k, keys.sample, keys.kv_head, d));
      sums += Engine::key_sum_bytes(Engine::depth(d));
    }
  }

  void one_query_tile(const Keys& keys, index_t head, index_t tile,
                      const Memory& memory) const {
    const AttentionDesc& desc = in.desc;
    const index_t begin = tile * kTile;
    QueryTile query;
    set_query_tile(desc, keys.sample, begin, query);
    const Rows<T> d_q_rows = rows_of(in.d_q, begin, keys.sample, head, desc.head_dim);
    if (query.seen.is_empty()) {
      if (kQueries && keys.is_first) {
        store_nothing(d_q_rows, query.rows, desc.head_dim);
        clear_window(keys.sample, head, tile);
      }
      return;
    }
    // The chunks whose tiles are added to this d_q.
    const index_t first = query.seen.begin / kChunkKeys * kChunkKeys;
    if (keys.from < first || keys.from >= query.seen.end) return;
    const bool is_first = keys.from == first;
    const bool is_last = query.seen.end <= keys.from + kChunkKeys;
    const int d = static_cast<int>(desc.head_dim), depth = Engine::depth(d);
    const index_t row = (keys.sample * desc.heads + head) * desc.q_length + begin;
    Engine::begin_backward(rows_of(in.q, begin, keys.sample, head, d),
                           rows_of(in.d_o, begin, keys.sample, head, d), query.rows, d,
                           desc.scale, in.lse + row, in.delta + row, memory.queries);
    float* d_q = memory.d_q;
    if constexpr (kQueries) {
      if (!is_first || !is_last) {
        d_q = in.d_q_sum +
              ((keys.sample * desc.heads + head) * tiles_in(desc.q_length) + tile) *
                  kTile * depth;
      }
      if (is_first) std::fill_n(d_q, kTile * depth, 0.0f);
      if (is_first) clear_window(keys.sample, head, tile);
    }
    walk(keys, head, tile, query, memory, d_q);
    if constexpr (kQueries) {
      if (is_last) {
        Engine::store_d_q(d_q, query.rows, d, desc.scale, d_q_rows);
      }
    }
  }

  // The window of a tile of queries for the bias's gradient.
  float* window(index_t sample, index_t head, index_t tile) const {
    return in.bias_windows +
           BiasWindows(in.desc, kTile).begin(in.desc, sample, head, tile);
  }
  void clear_window(index_t sample, index_t head, index_t tile) const {
    if (in.bias == nullptr) return;
    std::fill_n(window(sample, head, tile), BiasWindows(in.desc, kTile).length(), 0.0f);
  }
  void set_bias(const Keys& keys, index_t head, index_t tile, index_t k_begin,
                BiasOfPair& bias, TilePair& pair) const {
    bias.load(in.desc, in.bias, head, tile * kTile, k_begin,
              Engine::bias_factor(in.desc.scale));
    pair.bias = bias.values;
    if constexpr (kQueries) {
      pair.d_bias = window(keys.sample, head, tile) +
                    BiasWindows(in.desc, kTile).diagonals(k_begin);
    }
  }

  void walk(const Keys& keys, index_t head, index_t tile, const QueryTile& query,
            const Memory& memory, float* d_q) const {
    const int d = static_cast<int>(in.desc.head_dim), depth = Engine::depth(d);
    WordDrawer drawer;
    BiasOfPair bias;
    TilePair pair;
    if (threshold != 0) {
      drawer.set(in.desc, in.step(), threshold, keys.sample, head, tile * kTile,
                 kInOrder);
      pair.drawer = &drawer;
      pair.words = memory.words;
      pair.threshold = threshold;
      pair.keep_scale = static_cast<float>(random::DropoutWords::keep_scale(threshold));
    }
    for (index_t k = keys.from; k < keys.to; k += kTile) {
      if (!set_pair(query, k, in.desc.kv_length, pair)) continue;
      if (in.bias != nullptr) set_bias(keys, head, tile, k, bias, pair);
      const auto at = static_cast<std::size_t>((k - keys.from) / kTile);
      Engine::template backward_tile<kKeys, kQueries>(
          pair, d, in.desc.scale, memory.keys + at * Engine::backward_key_bytes(depth),
          memory.queries, memory.key_sums + at * Engine::key_sum_bytes(depth), d_q,
          memory.work);
    }
  }
};

// The work is lent: with its arguments it is larger than a closure may be, and a host's
// launch is over when it returns.
template <class Work>
void launch_work(const Exec& exec, const Kernel& kernel, index_t items, const Work& work,
                 std::size_t scratch_bytes) {
  launch_teams(
      exec, kernel, items, 1, [&work](const TeamMember& team) { work(team); },
      scratch_bytes);
}

template <class Engine>
void launch_forward(const Exec& exec, const Kernel& kernel,
                    const ForwardArguments<typename Engine::Element>& arguments) {
  const AttentionDesc& desc = arguments.desc;
  const int tiles = QueryBlock::fitting(desc, thread_count());
  const int depth = Engine::depth(static_cast<int>(desc.head_dim));
  launch_work(exec, kernel, QueryBlock::count(desc, tiles),
              ForwardWork<Engine>{arguments,
                                  random::DropoutWords::threshold(desc.dropout), tiles},
              ForwardWork<Engine>::bytes(depth, tiles) + 64);
}

template <class Engine>
void launch_backward(const Exec& exec, const BackwardKernels& kernels,
                     const BackwardArguments<typename Engine::Element>& arguments) {
  const AttentionDesc& desc = arguments.desc;
  const index_t threads = thread_count();
  const index_t heads = desc.batch * desc.kv_heads;
  const int depth = Engine::depth(static_cast<int>(desc.head_dim));
  const std::uint32_t threshold = random::DropoutWords::threshold(desc.dropout);
  using Whole = BackwardWork<Engine, Gradients::all>;
  using Keys = BackwardWork<Engine, Gradients::of_keys>;
  using Queries = BackwardWork<Engine, Gradients::of_queries>;
  const std::size_t bytes = Whole::Memory::bytes(depth) + 64;
  if (backward_in_one(exec, heads)) {
    launch_work(exec, kernels.whole, heads, Whole{arguments, threshold, 0}, bytes);
    return;
  }
  const int tiles = QueryBlock::fitting(desc, threads);
  launch_work(exec, kernels.keys, heads * Keys::chunks(desc),
              Keys{arguments, threshold, 0}, bytes);
  launch_work(exec, kernels.queries, QueryBlock::count(desc, tiles),
              Queries{arguments, threshold, tiles}, bytes);
}

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_ATTENTION_TILES_HPP_
