// kernels/cuda/attention_backward.hpp — gradients of attention on tensor cores: what a
// block of 256 threads does, and before it a kernel for delta (Dao et al. 2022,
// arXiv:2205.14135, alg. 4; Dao 2023, arXiv:2307.08691, alg. 2).
//
// A block has a tile of keys of a key head and walks over the tiles of 64 queries, of all
// query heads of that key head, that see it:
//
//   p   = e^(scale q k^T + bias - lse)    d_p = d_o v^T        z = dropout(p)
//   d_s = p (dropout'(d_p) - delta)
//   d_v += z^T d_o        d_k += scale d_s^T q        d_q += scale d_s k
//
// What a score takes beside its products is counted in instructions. So sums are scaled
// when they are rounded, no mask is asked where every query of a tile sees every key, and
// d_p begins with -delta where nothing is dropped and registers suffice.
//
// Each product is shared out among the eight warps so that little is read from shared
// memory, whose bandwidth bounds this kernel as much as the tensor cores do. Of s and d_p
// a warp has 32 queries and 32 keys; z and d_s go through shared memory. Of d_k and d_v
// it has 32 keys and half of the columns, over all queries, and keeps their sums in
// registers; of d_q 16 queries and half of the columns, which are added to sums in
// memory.
//
// The order of those sums is fixed, and with it their bits: from the last tile of keys
// that the queries see to the first. A causal block's first queries see no later keys, so
// that no block waits if all begin at once. What is added first overwrites; what is added
// last is rounded into d_q instead. Blocks take their work in this order, by a ticket:
// whom one waits for has begun.
//
// The gradient of a bias is d_s, summed over diagonals: a warp sums those of its
// 32 queries and keys before they are rounded, what the eight warps have is added in
// their order to a window of the tile of keys, and nobody else writes there.
#ifndef TRIREME_KERNELS_CUDA_ATTENTION_BACKWARD_HPP_
#define TRIREME_KERNELS_CUDA_ATTENTION_BACKWARD_HPP_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/attention_forward.hpp"
#include "kernels/cuda/attention_tiles.hpp"
#include "kernels/cuda/philox.hpp"
#include "kernels/cuda/warp.hpp"

namespace trireme::cuda {

// delta, the sum of d_o o over a row, by eight threads a row; rows that see no key have
// no gradient; counters and ticket begin at 0.
template <Element kElement, int kHeadDim>
class AttentionDelta {
 public:
  static constexpr int kThreads = 128;
  static int blocks(const AttentionShape& shape) {
    const std::int64_t rows =
        static_cast<std::int64_t>(shape.batch) * shape.heads * shape.q_length;
    return static_cast<int>((rows + kRows - 1) / kRows);
  }

  TRIREME_DEVICE static void block(const AttentionBackwardTask& task) {
    const AttentionShape& shape = task.shape;
    const std::int64_t thread =
        static_cast<std::int64_t>(block_index()) * kThreads + thread_index();
    // There are more threads than counters.
    if (thread <= tiles_of_queries(shape)) task.counters[thread] = 0;
    const std::int64_t row = thread / kLanes;
    const std::int64_t rows =
        static_cast<std::int64_t>(shape.batch) * shape.heads * shape.q_length;
    const bool is_row = row < rows;  // all threads stay, for the shuffles
    const std::int64_t place = is_row ? row : 0;
    const int query = static_cast<int>(place % shape.q_length);
    const int head = static_cast<int>(place / shape.q_length % shape.heads);
    const int sample = static_cast<int>(place / shape.q_length / shape.heads);
    const std::uint16_t* const o = row_of<kHeadDim>(task.o, sample, head, query);
    const std::uint16_t* const d_o = row_of<kHeadDim>(task.d_o, sample, head, query);
    std::uint16_t* const d_q = row_of<kHeadDim>(task.d_q, sample, head, query);
    const bool is_blind = visible_keys(shape, sample, query).is_empty();
    float sum = 0;
    for (int at = thread_index() % kLanes * kQuadElements; at < kHeadDim;
         at += kLanes * kQuadElements) {
      const Quad a = *reinterpret_cast<const Quad*>(o + at);
      const Quad b = *reinterpret_cast<const Quad*>(d_o + at);
      TRIREME_UNROLL
      for (int i = 0; i < 4; ++i) {
        sum += low_of<kElement>(a.word[i]) * low_of<kElement>(b.word[i]);
        sum += high_of<kElement>(a.word[i]) * high_of<kElement>(b.word[i]);
      }
      if (is_row && is_blind) *reinterpret_cast<Quad*>(d_q + at) = Quad{};
    }
    TRIREME_UNROLL
    for (int mask = 1; mask < kLanes; mask *= 2) sum += shuffle_xor(sum, mask);
    if (is_row && thread_index() % kLanes == 0) task.delta[row] = sum;
  }

 private:
  static constexpr int kLanes = 8;  // of a row
  static constexpr int kRows = kThreads / kLanes;
};

// Whether a block takes all tiles of keys of its head, or one: the first where there are
// blocks enough for the GPU. The bits are the same.
enum class KeyTiles { all, one };

template <Element kElement, int kHeadDim, bool kDrops, bool kHasBias = false>
class AttentionBackward {
 public:
  static constexpr int kThreads = 256;
  static constexpr int kQueries = kBackwardQueries;
  static constexpr int kKeys = kBackwardKeys;
  static constexpr int kPitch = pitch_of(kHeadDim);
  static constexpr int kKeyPitch = pitch_of(kKeys);
  // Keys and values; two stages of queries, one of d_o; z and d_s.
  static constexpr int kStageElements = kQueries * kPitch;
  static constexpr int kSharedElements =
      2 * kKeys * kPitch + 3 * kStageElements + 2 * kQueries * kKeyPitch;
  // Two stages of lse and delta.
  static constexpr int kRowElements = 2 * kQueries;
  // Two stages of a bias's distances, and diagonals of each warp.
  static constexpr int kDistances = kQueries + kKeys;  // and one more
  static constexpr int kWarpDiagonals = 64;            // and one more
  static constexpr int kBiasElements =
      kHasBias ? 2 * kDistances + kThreads / kWarpLanes * kWarpDiagonals : 0;
  static constexpr int kSharedBytes =
      kSharedElements * static_cast<int>(sizeof(std::uint16_t)) +
      (2 * kRowElements + kBiasElements) * static_cast<int>(sizeof(float));
  static int blocks(const AttentionShape& shape, KeyTiles of_block) {
    return (of_block == KeyTiles::all ? 1 : divide_up(shape.kv_length, kKeys)) *
           shape.kv_heads * shape.batch;
  }

  TRIREME_DEVICE static void block(const AttentionBackwardTask& task, KeyTiles of_block) {
    const AttentionShape& shape = task.shape;
    const int tiles = divide_up(shape.kv_length, kKeys);
    const bool walks = of_block == KeyTiles::all;
    int index = block_index();
    if (!walks) {
      auto* const shared = reinterpret_cast<std::int32_t*>(shared_memory());
      if (thread_index() == 0) *shared = take_ticket(task.counters);
      sync_block();
      index = *shared;
      sync_block();
    }
    const int heads = walks ? index : index / tiles;
    const int last = walks ? tiles - 1 : tiles - 1 - index % tiles;
    const int first = walks ? 0 : last;
    AttentionBackward self(task, walks, heads % shape.kv_heads, heads / shape.kv_heads);
    for (int tile = last; tile >= first; --tile) self.run(tile);
  }

 private:
  // What a warp has, in tiles: of s and d_p, 16 x 8; of d_k and d_v; of d_q.
  static constexpr int kRowTiles = 2, kColumns = 4;
  static constexpr int kKeyTiles = 2, kOutColumns = kHeadDim / 16;
  static constexpr int kQueryColumns = kHeadDim / 16;
  // Heads whose sums of d_k and d_v leave few registers.
  static constexpr bool kIsWide = kHeadDim > 96;
  static constexpr bool kKeepsKeys = kHeadDim <= 64;
  static constexpr bool kBeginsWithDelta = !kDrops && kHeadDim <= 64;
  static constexpr int kSteps = kHeadDim / 16;                  // of q k^T
  static constexpr int kQueryQuads = kQueryColumns * kThreads;  // of d_q's sums
  static_assert(kQueryQuads == sum_quads_of_tile(kHeadDim));

  // A tile of queries, and the tiles of keys that it sees.
  struct QueryTile {
    int head, tile;
    KeyRange seen = {0, 0};
    // Whether all of them see all keys of this tile of keys.
    bool is_whole = false;
    // How many tiles of keys are added to its d_q before this one, and at all.
    TRIREME_DEVICE int turn(int key_tile) const { return seen.end - 1 - key_tile; }
    TRIREME_DEVICE int turns() const { return seen.end - seen.begin; }
  };

  TRIREME_DEVICE AttentionBackward(const AttentionBackwardTask& task, bool walks,
                                   int kv_head, int sample)
      : task_(task),
        dropout_(task.dropout, sample),
        walks_(walks),
        kv_head_(kv_head),
        sample_(sample),
        query_tiles_(divide_up(task.shape.q_length, kQueries)),
        group_(task.shape.heads / task.shape.kv_heads),
        keys_(reinterpret_cast<std::uint16_t*>(shared_memory())),
        values_(keys_ + kKeys * kPitch),
        queries_(values_ + kKeys * kPitch),
        d_o_(queries_ + 2 * kStageElements),
        z_(d_o_ + kStageElements),
        d_s_(z_ + kQueries * kKeyPitch),
        rows_(reinterpret_cast<float*>(d_s_ + kQueries * kKeyPitch)),
        bias_(rows_ + 2 * kRowElements),
        diagonals_(bias_ + 2 * kDistances) {}

  TRIREME_DEVICE const AttentionShape& shape() const { return task_.shape; }
  TRIREME_DEVICE std::uint16_t* queries_of(int stage) const {
    return queries_ + stage * kStageElements;
  }
  TRIREME_DEVICE float* rows_of(int stage) const { return rows_ + stage * kRowElements; }
  // That of the tile's last key and first query is the first one.
  TRIREME_DEVICE float* bias_of(int stage) const { return bias_ + stage * kDistances; }
  TRIREME_DEVICE int head_of(QueryTile at) const { return kv_head_ * group_ + at.head; }
  // Of wide heads as a new number: what depends on it is computed again, not kept.
  TRIREME_DEVICE static int thread() {
    return kIsWide ? as_unknown(thread_index()) : thread_index();
  }
  // This warp's keys and, of s and d_p, queries, within their tiles; its columns, of d_k,
  // d_v and d_q.
  TRIREME_DEVICE int warp_key() const { return thread() / kWarpLanes % 4 * 32; }
  TRIREME_DEVICE int warp_query() const { return warp_index() / 4 * 32; }
  TRIREME_DEVICE int warp_column() const {
    return thread() / kWarpLanes / 4 * (kHeadDim / 2);
  }
  // This lane's row `half` (0: g, 1: g + 8) of 16 queries.
  TRIREME_DEVICE int lane_query(int m, int half) const {
    return warp_query() + m * 16 + half * 8 + lane_index() / 4;
  }

  // Neither end of a range of keys comes before that of the query before it, so that the
  // first and the last query tell of all between them.
  TRIREME_DEVICE void find_keys(QueryTile& at) const {
    const int begin = at.tile * kQueries;
    const int last = smaller(begin + kQueries, shape().q_length) - 1;
    const KeyRange of_first = visible_keys(shape(), sample_, begin);
    const KeyRange of_last = visible_keys(shape(), sample_, last);
    const KeyRange keys{of_first.begin, of_last.end};
    at.seen = keys.is_empty() ? KeyRange{0, 0}
                              : KeyRange{keys.begin / kKeys, divide_up(keys.end, kKeys)};
    at.is_whole = last == begin + kQueries - 1 && of_last.begin <= tile_ * kKeys &&
                  (tile_ + 1) * kKeys <= of_first.end;
  }
  // The next tile of queries that sees the keys; head == group_ behind the last one.
  TRIREME_DEVICE QueryTile next(QueryTile at) const {
    while (at.head < group_) {
      if (++at.tile == query_tiles_) at = {at.head + 1, 0};
      if (at.head == group_) break;
      find_keys(at);
      if (at.seen.begin <= tile_ && tile_ < at.seen.end) break;
    }
    return at;
  }

  // The tile of keys and its first tile of queries are on their way; keys and values are
  // kept where registers suffice.
  TRIREME_DEVICE QueryTile begin(int tile) {
    tile_ = tile;
    const int k_begin = tile * kKeys;
    const int length = shape().kv_length;
    load_tile<kKeys, kHeadDim, kThreads>(task_.k, sample_, kv_head_, k_begin, length,
                                         keys_);
    load_tile<kKeys, kHeadDim, kThreads>(task_.v, sample_, kv_head_, k_begin, length,
                                         values_);
    clear_sums();
    if constexpr (kHasBias) clear_bias_sums();
    const QueryTile at = next({0, -1});
    if (at.head < group_) {
      load_stage(at, 0);
      load_queries(task_.d_o, at, d_o_);
    }
    commit_copies();
    if constexpr (kKeepsKeys) {
      wait_for_copies<0>();
      sync_block();
      keep(keys_, kept_keys_);
      keep(values_, kept_values_);
    }
    return at;
  }

  TRIREME_DEVICE void run(int tile) {
    QueryTile at = begin(tile);
    int stage = 0;
    Added added;
    while (at.head < group_) {
      const QueryTile following = next(at);
      const bool is_last = following.head == group_;
      // Behind this the tile is there, everyone has done with what stage ^ 1, z and d_s
      // hold, and what was stored for d_q can be published.
      wait_for_copies<0>();
      sync_block();
      if (!is_last) load_stage(following, stage ^ 1);
      commit_copies();
      publish_added(added);
      const bool has_turn = asks_for_turn(at);
      if (at.is_whole) {
        make_scores<false>(at, stage);
      } else {
        make_scores<true>(at, stage);
      }
      sync_block();  // z and d_s are there, and diagonals
      float bias_sum = 0;
      if constexpr (kHasBias) bias_sum = begin_bias_sum(at);
      add_to_keys(z_, d_o_, d_v_);
      if constexpr (kHasBias) finish_bias_sum(at, bias_sum);
      if (!has_turn) wait_for_turn(at);
      sync_block();  // the turn has come, and everyone has done with d_o
      if (!is_last) load_queries(task_.d_o, following, d_o_);
      commit_copies();
      QuerySums d_q;
      begin_d_q(at, d_q);  // on its way while d_k is computed
      add_to_keys(d_s_, queries_of(stage), d_k_);
      add_to_queries(d_q);
      added = finish_d_q(at, d_q);
      at = following;
      stage ^= 1;
    }
    wait_for_copies<0>();
    sync_block();
    publish_added(added);
    finish(tile * kKeys);
    sync_block();  // before the next tile's keys come
  }

  TRIREME_DEVICE void load_stage(QueryTile at, int stage) const {
    load_queries(task_.q, at, queries_of(stage));
    load_rows(at, stage);
    if constexpr (kHasBias) load_distances(at, stage);
  }

  // lse and delta of a tile's queries, by the upper warps.
  TRIREME_DEVICE void load_rows(QueryTile at, int stage) const {
    const int place = thread_index() - kThreads / 2;
    static_assert(kRowElements <= kThreads / 2);
    if (place < 0 || place >= kRowElements) return;
    const int query = at.tile * kQueries + place % kQueries;
    const bool is_there = query < shape().q_length;
    const float* const from = place < kQueries ? task_.lse : task_.delta;
    const std::int64_t first =
        (static_cast<std::int64_t>(sample_) * shape().heads + head_of(at)) *
        shape().q_length;
    copy_word_async(rows_of(stage) + place, from + first + (is_there ? query : 0),
                    is_there);
  }

  TRIREME_DEVICE void clear_sums() {
    TRIREME_UNROLL
    for (int m = 0; m < kKeyTiles; ++m) {
      TRIREME_UNROLL
      for (int n = 0; n < kOutColumns; ++n) {
        TRIREME_UNROLL
        for (int i = 0; i < 4; ++i) d_k_[m][n][i] = d_v_[m][n][i] = 0;
      }
    }
  }

  TRIREME_DEVICE void load_queries(const ConstHeads& from, QueryTile at,
                                   std::uint16_t* to) const {
    load_tile<kQueries, kHeadDim, kThreads>(
        from, sample_, head_of(at), at.tile * kQueries, shape().q_length, to, thread());
  }

  // Sums of a bias's gradient: diagonals of tiles, as add_bias() counts them from the
  // lowest on, for each of a lane's two columns.
  using Diagonals = float[2 * kRowTiles + kColumns - 1][2];

  // This warp's part of s and d_p, and z and d_s of it.
  template <bool kMasks>
  TRIREME_DEVICE void make_scores(QueryTile at, int stage) const {
    float s[kRowTiles][kColumns][4] = {}, d_p[kRowTiles][kColumns][4] = {};
    multiply_heads(queries_of(stage), keys_, kept_keys_, s);
    if constexpr (kHasBias) {
      const int lane = lane_index();
      const int first = kKeys - 1 + warp_query() - warp_key() + lane / 4 - lane % 4 * 2;
      add_bias(shape().scale * kLog2OfE, bias_of(stage) + first, s);
    }
    const float* const lse = rows_of(stage) + lane_query(0, 0);
    const float* const delta = lse + kQueries;
    if constexpr (kBeginsWithDelta) {
      TRIREME_UNROLL
      for (int m = 0; m < kRowTiles; ++m) {
        TRIREME_UNROLL
        for (int n = 0; n < kColumns; ++n) {
          TRIREME_UNROLL
          for (int i = 0; i < 4; ++i) d_p[m][n][i] = -delta[m * 16 + i / 2 * 8];
        }
      }
    }
    multiply_heads(d_o_, values_, kept_values_, d_p);
    Diagonals diagonals = {};
    TRIREME_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      TRIREME_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = m * 16 + half * 8;
        make_row<kMasks>(at, m, half, lse[row] * kLog2OfE,
                         kBeginsWithDelta ? 0 : delta[row], s[m], d_p[m], diagonals);
      }
    }
    if constexpr (kHasBias) store_diagonals(diagonals);
  }

  // What a warp's 32 keys or values are as right operands, where they are kept over all
  // tiles of queries: for the two of them a sixth less is read from shared memory.
  using Kept = std::uint32_t[kKeepsKeys ? kSteps : 1][kColumns / 2][4];

  TRIREME_DEVICE void load_right(const std::uint16_t* rows, int step,
                                 std::uint32_t (&b)[kColumns / 2][4]) const {
    TRIREME_UNROLL
    for (int pair = 0; pair < kColumns / 2; ++pair) {
      load_matrices(matrices_right(rows, kPitch, warp_key() + pair * 16, step * 16),
                    b[pair]);
    }
  }
  TRIREME_DEVICE void keep(const std::uint16_t* rows, Kept& kept) const {
    TRIREME_UNROLL
    for (int step = 0; step < kSteps; ++step) load_right(rows, step, kept[step]);
  }

  // sums += rows of queries or d_o times rows of keys or values, over the head's size.
  TRIREME_DEVICE void multiply_heads(const std::uint16_t* left,
                                     const std::uint16_t* right, const Kept& kept,
                                     float (&sums)[kRowTiles][kColumns][4]) const {
    TRIREME_UNROLL_BY(4)
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t a[kRowTiles][4];
      TRIREME_UNROLL
      for (int m = 0; m < kRowTiles; ++m) {
        load_matrices(matrices_down(left, kPitch, warp_query() + m * 16, step * 16),
                      a[m]);
      }
      std::uint32_t b[kColumns / 2][4];
      if constexpr (!kKeepsKeys) load_right(right, step, b);
      TRIREME_UNROLL
      for (int pair = 0; pair < kColumns / 2; ++pair) {
        if constexpr (kKeepsKeys) {
          multiply_step<kElement>(a, kept[step][pair], sums, pair);
        } else {
          multiply_step<kElement>(a, b[pair], sums, pair);
        }
      }
    }
  }

  // z and d_s of row `half` of a tile, to shared memory. `lse` in powers of 2; `delta` is
  // what d_p has not begun with.
  template <bool kMasks>
  TRIREME_DEVICE void make_row(QueryTile at, int m, int half, float lse, float delta,
                               const float (&s)[kColumns][4],
                               const float (&d_p)[kColumns][4],
                               Diagonals& diagonals) const {
    const int lane = lane_index();
    const int row = lane_query(m, half);
    const int query = at.tile * kQueries + row;
    KeyRange keys = {0, 0};
    if (kMasks && query < shape().q_length) keys = visible_keys(shape(), sample_, query);
    // Scores with a bias are exponents of 2 already.
    const float factor = kHasBias ? 1 : shape().scale * kLog2OfE;
    const int first = warp_key() + lane % 4 * 2;  // of this lane, within the tile
    std::uint16_t* const z = z_ + row * kKeyPitch + first;
    std::uint16_t* const d_s = d_s_ + row * kKeyPitch + first;
    random::Words words{};
    if constexpr (kDrops) {
      words =
          dropout_.words(head_of(at), query, (tile_ * kKeys + warp_key()) / 32, lane % 4);
    }
    TRIREME_UNROLL
    for (int n = 0; n < kColumns; ++n) {
      float of_z[2], of_d_s[2];
      TRIREME_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int key = tile_ * kKeys + first + n * 8 + e;
        const bool is_seen = !kMasks || (keys.begin <= key && key < keys.end);
        const float p = is_seen ? power_of_2(s[n][2 * half + e] * factor - lse) : 0;
        float to_p = d_p[n][2 * half + e];
        of_z[e] = p;
        if constexpr (kDrops) {
          const float keeps =
              dropout_.keeps(words.word[n], e) ? task_.dropout.keep_scale : 0;
          of_z[e] = p * keeps;
          to_p *= keeps;
        }
        if constexpr (!kBeginsWithDelta) to_p -= delta;
        of_d_s[e] = is_seen ? p * to_p : 0;
        if constexpr (kHasBias) {
          diagonals[2 * m + half - n + kColumns - 1][e] += of_d_s[e];
        }
      }
      *reinterpret_cast<std::uint32_t*>(z + n * 8) = pack<kElement>(of_z[0], of_z[1]);
      *reinterpret_cast<std::uint32_t*>(d_s + n * 8) =
          pack<kElement>(of_d_s[0], of_d_s[1]);
    }
  }

  // sums (this warp's keys, its columns) += the transpose of z or d_s, times d_o or the
  // queries.
  TRIREME_DEVICE void add_to_keys(const std::uint16_t* scores, const std::uint16_t* rows,
                                  float (&sums)[kKeyTiles][kOutColumns][4]) const {
    TRIREME_UNROLL_BY(kIsWide ? 2 : 4)
    for (int step = 0; step < kQueries / 16; ++step) {
      std::uint32_t a[kKeyTiles][4];
      TRIREME_UNROLL
      for (int m = 0; m < kKeyTiles; ++m) {
        load_transposed(matrices_right(scores, kKeyPitch, step * 16, warp_key() + m * 16),
                        a[m]);
      }
      TRIREME_UNROLL
      for (int pair = 0; pair < divide_up(kOutColumns, 2); ++pair) {
        // Where the number of columns is odd, the last ones read are not used.
        std::uint32_t b[4];
        load_transposed(matrices_down(rows, kPitch, step * 16, warp_column() + pair * 16),
                        b);
        multiply_step<kElement>(a, b, sums, pair);
      }
    }
  }

  // ---- the bias

  TRIREME_DEVICE void load_distances(QueryTile at, int stage) const {
    const int first = at.tile * kQueries - tile_ * kKeys + shape().kv_length - kKeys;
    load_bias<kDistances, kThreads>(shape(), task_.bias, head_of(at), first,
                                    bias_of(stage));
  }
  TRIREME_DEVICE float* window_of(int head) const {
    const std::int64_t first =
        (static_cast<std::int64_t>(sample_) * shape().heads + head) *
        key_tiles_of(shape());
    return task_.bias_sums + (first + tile_) * window_of_bias(shape());
  }
  TRIREME_DEVICE void clear_bias_sums() const {
    const int length = static_cast<int>(window_of_bias(shape()));
    for (int head = kv_head_ * group_; head < (kv_head_ + 1) * group_; ++head) {
      float* const window = window_of(head);
      for (int i = thread_index(); i < length; i += kThreads) window[i] = 0;
    }
  }

  // The sums over the diagonals of this warp's queries and keys: of the query that is j
  // rows below the key's the one at j + 32. Lane (g, t) has of diagonal D of tiles those
  // of 8 D + g - 2 t - e, which belong to row g' = g - 2 t - e of D, or to g' + 8 of the
  // diagonal before: lanes hand them to the lane (g', t), and the four of a row are
  // added.
  TRIREME_DEVICE void store_diagonals(const Diagonals& sums) const {
    constexpr int kCount = 2 * kRowTiles + kColumns - 1;
    static_assert(8 * (kCount + 1) == kWarpDiagonals);
    const int lane = lane_index(), row = lane / 4, t = lane % 4;
    float rows[kCount + 1];
    TRIREME_UNROLL
    for (int i = 0; i <= kCount; ++i) {
      rows[i] = 0;
      TRIREME_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int up = 2 * t + e;
        const float own = i > 0 ? sums[i - 1][e] : 0, next = i < kCount ? sums[i][e] : 0;
        rows[i] += shuffle(row >= up ? own : next, (row + up) % 8 * 4 + t);
      }
    }
    // Of eight rows' sums each of the four lanes has two in the end.
    float of_two[4];
    TRIREME_UNROLL
    for (int i = 0; i < 4; ++i) {
      const bool is_odd = t % 2 != 0;
      const float low = rows[2 * i], high = rows[2 * i + 1];
      of_two[i] = (is_odd ? high : low) + shuffle_xor(is_odd ? low : high, 1);
    }
    float* const to = diagonals_ + warp_index() * kWarpDiagonals;
    TRIREME_UNROLL
    for (int i = 0; i < 2; ++i) {
      const bool is_upper = t / 2 != 0;
      const float low = of_two[2 * i], high = of_two[2 * i + 1];
      to[(4 * i + t) * 8 + row] =
          (is_upper ? high : low) + shuffle_xor(is_upper ? low : high, 2);
    }
  }
  // Where this thread's sum of a tile of queries lies; the first one is of the first
  // query and the key behind the last.
  TRIREME_DEVICE float* bias_sum_of(QueryTile at) const {
    return window_of(head_of(at)) + at.tile * kQueries + thread_index();
  }
  // What was there, and what all warps have: on its way while d_v is computed.
  TRIREME_DEVICE float begin_bias_sum(QueryTile at) const {
    if (thread_index() >= kDistances) return 0;
    float sum = *bias_sum_of(at);
    TRIREME_UNROLL
    for (int warp = 0; warp < kThreads / kWarpLanes; ++warp) {
      const int begin = 96 + warp / 4 * 32 - warp % 4 * 32;
      const int of_warp = thread_index() - begin;
      if (of_warp >= 0 && of_warp < kWarpDiagonals) {
        sum += diagonals_[warp * kWarpDiagonals + of_warp];
      }
    }
    return sum;
  }
  TRIREME_DEVICE void finish_bias_sum(QueryTile at, float sum) const {
    if (thread_index() < kDistances) *bias_sum_of(at) = sum;
  }

  // ---- d_q

  // Of fewer than 2^31 tiles.
  TRIREME_DEVICE int place_of(QueryTile at) const {
    return (sample_ * shape().heads + head_of(at)) * query_tiles_ + at.tile;
  }
  // Counter 0 is the ticket.
  TRIREME_DEVICE std::int32_t* counter_of(int place) const {
    return task_.counters + 1 + place;
  }
  // What was added by all threads, and is published when all have done so.
  struct Added {
    int place = -1;
    int turns = 0;
  };
  TRIREME_DEVICE void publish_added(const Added& added) const {
    if (added.place < 0 || walks_ || thread_index() != 0) return;
    publish(counter_of(added.place), added.turns);
  }
  // One thread waits for this block's turn, of another warp than the one that publishes.
  // It asks before scores are made, and again behind them only where the turn had not
  // come. An answer is waited for where it is asked for, as what others stored before is
  // to be seen: at first by this warp alone, while others make their scores; behind them
  // by all. What other threads say of their turn is not used.
  TRIREME_DEVICE bool waits_for_turn(QueryTile at) const {
    return at.turn(tile_) != 0 && !walks_ && thread_index() == kWarpLanes;
  }
  TRIREME_DEVICE bool asks_for_turn(QueryTile at) const {
    return !waits_for_turn(at) || is_published(counter_of(place_of(at)), at.turn(tile_));
  }
  TRIREME_DEVICE void wait_for_turn(QueryTile at) const {
    wait_for(counter_of(place_of(at)), at.turn(tile_));
  }

  using QuerySums = float[1][kQueryColumns][4];
  TRIREME_DEVICE FloatQuad* sums_of(QueryTile at) const {
    return task_.d_q_sums + static_cast<std::int64_t>(place_of(at)) * kQueryQuads +
           thread_index();
  }
  // What other tiles of keys have added.
  TRIREME_DEVICE void begin_d_q(QueryTile at, QuerySums& sums) const {
    const bool is_first = at.turn(tile_) == 0;
    const FloatQuad* const stored = sums_of(at);
    TRIREME_UNROLL
    for (int n = 0; n < kQueryColumns; ++n) {
      const FloatQuad quad =
          is_first ? FloatQuad{} : load_from_others(stored + n * kThreads);
      TRIREME_UNROLL
      for (int i = 0; i < 4; ++i) sums[0][n][i] = quad.value[i];
    }
  }
  TRIREME_DEVICE void add_to_queries(QuerySums& sums) const {
    const int row = warp_index() % 4 * 16;
    TRIREME_UNROLL_BY(4)
    for (int step = 0; step < kKeys / 16; ++step) {
      std::uint32_t a[1][4];
      load_matrices(matrices_down(d_s_, kKeyPitch, row, step * 16), a[0]);
      TRIREME_UNROLL
      for (int pair = 0; pair < divide_up(kQueryColumns, 2); ++pair) {
        std::uint32_t b[4];
        load_transposed(
            matrices_down(keys_, kPitch, step * 16, warp_column() + pair * 16), b);
        multiply_step<kElement>(a, b, sums, pair);
      }
    }
  }
  TRIREME_DEVICE Added finish_d_q(QueryTile at, const QuerySums& sums) const {
    const int added = at.turn(tile_) + 1;
    if (added < at.turns()) {
      FloatQuad* const to = sums_of(at);
      TRIREME_UNROLL
      for (int n = 0; n < kQueryColumns; ++n) {
        const float(&sum)[4] = sums[0][n];
        store_for_others({{sum[0], sum[1], sum[2], sum[3]}}, to + n * kThreads);
      }
    } else {
      store_d_q(at, sums);
    }
    return {place_of(at), added};
  }
  TRIREME_DEVICE void store_d_q(QueryTile at, const QuerySums& sums) const {
    const float scale = shape().scale;
    TRIREME_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int query =
          at.tile * kQueries + warp_index() % 4 * 16 + half * 8 + lane_index() / 4;
      if (query >= shape().q_length) continue;
      std::uint16_t* const row =
          row_of<kHeadDim>(task_.d_q, sample_, head_of(at), query) + warp_column() +
          lane_index() % 4 * 2;
      TRIREME_UNROLL
      for (int n = 0; n < kQueryColumns; ++n) {
        *reinterpret_cast<std::uint32_t*>(row + n * 8) = pack<kElement>(
            sums[0][n][2 * half] * scale, sums[0][n][2 * half + 1] * scale);
      }
    }
  }

  // ---- d_k and d_v

  // Rounded where the keys and values were, and from there to memory: upper warps have
  // the rows of d_k, lower ones those of d_v.
  TRIREME_DEVICE void finish(int k_begin) const {
    round_rows(d_k_, shape().scale, keys_);
    round_rows(d_v_, 1, values_);
    sync_block();
    const bool is_upper = warp_index() < 4;
    // As a new number: the places that the tile was read from are not kept until here.
    const int thread = as_unknown(thread_index()) % (kThreads / 2);
    store_tile<kKeys, kHeadDim, kThreads / 2>(is_upper ? keys_ : values_, thread,
                                              is_upper ? task_.d_k : task_.d_v, sample_,
                                              kv_head_, k_begin, shape().kv_length);
  }
  using KeySums = float[kKeyTiles][kOutColumns][4];
  TRIREME_DEVICE void round_rows(const KeySums& sums, float scale,
                                 std::uint16_t* tile) const {
    TRIREME_UNROLL
    for (int m = 0; m < kKeyTiles; ++m) {
      TRIREME_UNROLL
      for (int n = 0; n < kOutColumns; ++n) {
        TRIREME_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int row = warp_key() + m * 16 + half * 8 + lane_index() / 4;
          *reinterpret_cast<std::uint32_t*>(tile + row * kPitch + warp_column() + n * 8 +
                                            lane_index() % 4 * 2) =
              pack<kElement>(sums[m][n][2 * half] * scale,
                             sums[m][n][2 * half + 1] * scale);
        }
      }
    }
  }

  const AttentionBackwardTask& task_;
  const DropoutOfSample dropout_;
  const bool walks_;
  const int kv_head_, sample_, query_tiles_;
  const int group_;  // query heads of a key head
  int tile_ = 0;
  std::uint16_t *keys_, *values_;  // (kKeys, kPitch)
  std::uint16_t *queries_, *d_o_;  // two stages and one, (kQueries, kPitch) each
  std::uint16_t *z_, *d_s_;        // (kQueries, kKeyPitch)
  float* rows_;                    // two stages of lse and delta, kQueries each
  float *bias_, *diagonals_;  // two stages of kDistances; kWarpDiagonals of each warp
  KeySums d_k_, d_v_;
  Kept kept_keys_;
  Kept kept_values_;
};

}  // namespace trireme::cuda

#endif  // TRIREME_KERNELS_CUDA_ATTENTION_BACKWARD_HPP_
