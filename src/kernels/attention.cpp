// kernels/attention.cpp — tiled attention with an online softmax (Dao et al. 2022, alg.
// 1, 2).
//
// Scores are never written to memory: a team holds a tile of kRows queries and walks over
// tiles of keys, rescaling what it has summed when a larger score appears. The backward
// pass computes the tiles of P again from lse. On the host one team takes a key head of a
// sample whole (five products per pair of tiles, d_q summed in scratch); on a GPU, where
// more teams are needed, one launch takes the tiles of keys and another the tiles of
// queries (seven).
//
// There is faster code for tiles of float (hosts) and of 16-bit elements, behind
// impl/attention_fast.hpp; this file is its reference, and computes double, large heads
// and a few queries over cached keys.
#include "kernels/attention.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "kernels/impl/attention_bias.hpp"
#include "kernels/impl/attention_fast.hpp"
#include "kernels/impl/attention_mask.hpp"
#include "kernels/impl/attention_pool.hpp"
#include "kernels/impl/philox_lanes.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/impl/tile.hpp"
#include "kernels/impl/vector_math.hpp"

namespace trireme::kernels {

namespace {

using tile::kRows;

KOKKOS_INLINE_FUNCTION index_t tiles_of(index_t length) {
  return (length + kRows - 1) / kRows;
}

KOKKOS_INLINE_FUNCTION int tile_rows(index_t begin, index_t length) {
  return static_cast<int>(length - begin < kRows ? length - begin : kRows);
}

// Hands out parts of a team's scratch memory.
template <class Acc>
struct Carver {
  Acc* next;
  KOKKOS_INLINE_FUNCTION Acc* take(index_t count) {
    Acc* part = next;
    next += count;
    return part;
  }
};

template <class Acc>
KOKKOS_INLINE_FUNCTION Carver<Acc> carver(const TeamMember& team, index_t elements) {
  const std::size_t bytes = impl::team_bytes<Acc>(elements);
  auto memory = team.team_scratch(scratch_level(bytes));
  return {static_cast<Acc*>(memory.get_shmem_aligned(bytes - 64, 64))};
}

// tile (rows, d) = factor * view rows [begin, begin + rows) of a head.
template <class T, class Acc>
KOKKOS_INLINE_FUNCTION void load(const TeamMember& team, const HeadsView<const T>& view,
                                 index_t begin, int rows, index_t sample, index_t head,
                                 int d, Acc factor, Acc* tile) {
  tile::for_each(team, rows, [=](int i) {
    const T* from = view.row(begin + i, sample, head, d);
    for (int c = 0; c < d; ++c) tile[i * d + c] = factor * static_cast<Acc>(from[c]);
  });
}

// tile^T: (d, kRows) from (rows, d).
template <class Acc>
KOKKOS_INLINE_FUNCTION void transpose(const TeamMember& team, const Acc* tile, int rows,
                                      int d, Acc* transposed) {
  tile::for_each(team, d, [=](int c) {
    for (int i = 0; i < rows; ++i) transposed[c * kRows + i] = tile[i * d + c];
  });
}

template <class T, class Acc>
KOKKOS_INLINE_FUNCTION void store(const TeamMember& team, const Acc* tile,
                                  const HeadsView<T>& view, index_t begin, int rows,
                                  index_t sample, index_t head, int d) {
  tile::for_each(team, rows, [=](int i) {
    T* to = view.row(begin + i, sample, head, d);
    for (int c = 0; c < d; ++c) to[c] = static_cast<T>(tile[i * d + c]);
  });
}

template <class Acc>
KOKKOS_INLINE_FUNCTION void set_zero(const TeamMember& team, Acc* values, index_t count) {
  tile::for_each(team, static_cast<int>(count), [=](int i) { values[i] = Acc{0}; });
}

// Keys [begin, end) of the tile [k_begin, +k_rows) that a query sees; begin == end if
// none.
struct VisibleKeys {
  int begin, end;
};
KOKKOS_INLINE_FUNCTION VisibleKeys visible_in_tile(const AttentionDesc& desc,
                                                   index_t sample, index_t q,
                                                   index_t k_begin, int k_rows) {
  const impl::KeyRange seen = impl::visible_keys(desc, sample, q);
  const auto in_tile = [=](index_t key) {
    const index_t j = key - k_begin;
    return static_cast<int>(j < 0 ? 0 : (j < k_rows ? j : k_rows));
  };
  return {in_tile(seen.begin), in_tile(seen.end)};
}

// row[j] = 0 for the keys of a tile that are not visible.
template <class Acc>
KOKKOS_INLINE_FUNCTION void hide(const VisibleKeys& visible, int k_rows, Acc* row) {
  for (int j = 0; j < visible.begin; ++j) row[j] = Acc{0};
  for (int j = visible.end; j < k_rows; ++j) row[j] = Acc{0};
}

// Whether no query sees a key behind it.
KOKKOS_INLINE_FUNCTION bool is_causal(const AttentionDesc& desc) {
  return desc.mask == MaskKind::causal || desc.mask == MaskKind::document;
}

// The first key of the tile that holds `key`.
KOKKOS_INLINE_FUNCTION index_t tile_begin(index_t key) {
  return key / kRows * kRows;
}

// row[j] *= keep_scale where key k_begin + j is kept, = 0 where it is dropped; j < count.
// Groups of 32 keys, which share four calls, do not straddle tiles.
template <class Acc>
KOKKOS_INLINE_FUNCTION void apply_dropout(const impl::AttentionDropout& mask,
                                          index_t k_begin, int count, Acc keep_scale,
                                          Acc* row) {
  using random::DropoutWords;
  static_assert(kRows % DropoutWords::kKeysPerGroup == 0);
  const std::uint64_t first = mask.first_call + static_cast<std::uint64_t>(k_begin / 8);
  if constexpr (kHostExecution) {
    // Drawn by word, the calls of a group are in the order of its keys.
    constexpr int kPerGroup = 2 * kPhiloxWords;
    static_assert(!kHostExecution || kRows % kPerGroup == 0);
    std::uint16_t words[kRows];
    philox_lanes<DropoutWords::kRounds, WordOrder::by_word>(
        mask.generator, first, (count + kPerGroup - 1) / kPerGroup, words);
    for (int j = 0; j < count; ++j) {
      row[j] = words[j] >= mask.threshold ? row[j] * keep_scale : Acc{0};
    }
  } else {
    for (int call = 0; 8 * (call / 4 * 4) < count; ++call) {
      const random::Words words =
          DropoutWords::call(mask.generator, first + static_cast<std::uint64_t>(call));
      for (int w = 0; w < 8; ++w) {
        const int j = call / 4 * 32 + w / 2 * 8 + call % 4 * 2 + w % 2;
        if (j >= count) break;
        row[j] = DropoutWords::half(words.word[w / 2], w % 2) >= mask.threshold
                     ? row[j] * keep_scale
                     : Acc{0};
      }
    }
  }
}

// Adds to the scores of a query with the keys of a tile that it sees what is a head's for
// their distances.
template <class Acc>
KOKKOS_INLINE_FUNCTION void add_bias(const AttentionDesc& desc, const Acc* bias,
                                     index_t head, index_t q, index_t k_begin,
                                     const VisibleKeys& visible, Acc* row) {
  // Of the key at k_begin; of the keys behind it those before.
  const Acc* const first =
      bias + head * impl::distances(desc) + q - k_begin + desc.kv_length - 1;
  for (int j = visible.begin; j < visible.end; ++j) row[j] += *(first - j);
}

// The queries of a team: rows of one head of one sample, from q_begin on.
struct QueryTile {
  index_t q_begin, head, sample, kv_head;
  int rows;
};
KOKKOS_INLINE_FUNCTION QueryTile query_tile(const TeamMember& team,
                                            const AttentionDesc& desc) {
  const index_t q_tiles = tiles_of(desc.q_length);
  const index_t league = team.league_rank();
  // The last tiles of queries see the most keys and take longest, so that they go first.
  const index_t q_begin = (q_tiles - 1 - league % q_tiles) * kRows;
  const index_t head = league / q_tiles % desc.heads;
  return {q_begin, head, league / (q_tiles * desc.heads),
          head / (desc.heads / desc.kv_heads), tile_rows(q_begin, desc.q_length)};
}

template <class T>
struct Forward {
  using Acc = Accumulator<T>;

  AttentionDesc desc;
  StepStateView step;
  HeadsView<const T> q, k, v;
  HeadsView<T> o;
  View1<Acc> lse;
  std::uint32_t threshold;
  const Acc* bias;  // or null

  KOKKOS_FUNCTION static index_t scratch_elements(index_t d) {
    return impl::forward_team_elements(d, kRows);
  }

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    const QueryTile at = query_tile(team, desc);
    const index_t q_begin = at.q_begin, head = at.head, sample = at.sample;
    const index_t kv_head = at.kv_head;
    const int rows = at.rows;
    const int d = static_cast<int>(desc.head_dim);

    Carver<Acc> memory = carver<Acc>(team, scratch_elements(d));
    Acc* query = memory.take(kRows * d);
    Acc* out = memory.take(kRows * d);
    Acc* key = memory.take(kRows * d);
    Acc* value = memory.take(kRows * d);
    Acc* key_t = memory.take(d * kRows);
    Acc* p = memory.take(kRows * kRows);
    Acc* row_max = memory.take(kRows);
    Acc* row_sum = memory.take(kRows);

    load(team, q, q_begin, rows, sample, head, d, static_cast<Acc>(desc.scale), query);
    set_zero(team, out, static_cast<index_t>(rows) * d);
    tile::for_each(team, rows, [=](int i) {
      row_max[i] = -Kokkos::Experimental::infinity_v<Acc>;
      row_sum[i] = Acc{0};
    });

    const impl::KeyRange keys =
        impl::visible_keys(desc, sample, q_begin, q_begin + rows - 1);
    for (index_t k_begin = tile_begin(keys.begin); k_begin < keys.end; k_begin += kRows) {
      const int k_rows = tile_rows(k_begin, desc.kv_length);
      load(team, k, k_begin, k_rows, sample, kv_head, d, Acc{1}, key);
      transpose(team, key, k_rows, d, key_t);
      load(team, v, k_begin, k_rows, sample, kv_head, d, Acc{1}, value);
      tile::multiply(team, rows, k_rows, d, {query, d, 1}, key_t, kRows, p, kRows, false);
      softmax_rows(team, sample, head, q_begin, rows, k_begin, k_rows, p, row_max,
                   row_sum, out);
      tile::multiply(team, rows, d, k_rows, {p, kRows, 1}, value, d, out, d, true);
    }

    const index_t first_row = (sample * desc.heads + head) * desc.q_length + q_begin;
    const View1<Acc> result = lse;
    tile::for_each(team, rows, [=](int i) {
      // A query that saw no key has a sum of 0.
      const Acc inverse = row_sum[i] == Acc{0} ? Acc{0} : Acc{1} / row_sum[i];
      for (int c = 0; c < d; ++c) out[i * d + c] *= inverse;
      result(first_row + i) = row_max[i] + Kokkos::log(row_sum[i]);
    });
    store(team, out, o, q_begin, rows, sample, head, d);
  }

  // Scores become unnormalised probabilities (after dropout); sums and `out` are
  // rescaled.
  KOKKOS_FUNCTION void softmax_rows(const TeamMember& team, index_t sample, index_t head,
                                    index_t q_begin, int rows, index_t k_begin,
                                    int k_rows, Acc* p, Acc* row_max, Acc* row_sum,
                                    Acc* out) const {
    const Forward self = *this;
    const int d = static_cast<int>(desc.head_dim);
    const Acc keep_scale = static_cast<Acc>(random::DropoutWords::keep_scale(threshold));
    tile::for_each(team, rows, [=](int i) {
      Acc* row = p + i * kRows;
      const VisibleKeys visible =
          visible_in_tile(self.desc, sample, q_begin + i, k_begin, k_rows);
      if (self.bias != nullptr) {
        add_bias(self.desc, self.bias, head, q_begin + i, k_begin, visible, row);
      }
      const int count = visible.end - visible.begin;
      Acc* seen = row + visible.begin;
      const Acc tile_max =
          max_columns<Acc>(HostRow{}, count, [=](index_t j) { return seen[j]; });
      const Acc max = tile_max > row_max[i] ? tile_max : row_max[i];
      for (int j = 0; j < count; ++j) seen[j] = vector_exp(seen[j] - max);
      const Acc sum =
          sum_columns<Acc>(HostRow{}, count, [=](index_t j) { return seen[j]; });
      hide(visible, k_rows, row);
      const Acc rescale = row_sum[i] > Acc{0} ? vector_exp(row_max[i] - max) : Acc{0};
      row_sum[i] = row_sum[i] * rescale + sum;
      row_max[i] = max;
      if (rescale != Acc{1}) {
        for (int c = 0; c < d; ++c) out[i * d + c] *= rescale;
      }
      if (self.threshold != 0) {
        const auto mask = impl::dropout_row(self.desc, self.step(), self.threshold,
                                            sample, head, q_begin + i);
        apply_dropout(mask, k_begin, visible.end, keep_scale, row);
      }
    });
  }
};

// What the backward launches share: their operands, and the two tiles that everything is
// made of.
template <class T>
struct BackwardTiles {
  using Acc = Accumulator<T>;

  AttentionDesc desc;
  // As pointers: Views would make the closures of launches too large (base/exec.hpp).
  const StepState* step;
  HeadsView<const T> q, k, v, d_o;
  const Acc* lse;  // per row (b, a, s_q), as delta: the sum over d of d_o * o
  Acc* delta;
  const Acc* bias;  // or null

  KOKKOS_FUNCTION std::uint32_t threshold() const {
    return random::DropoutWords::threshold(desc.dropout);
  }
  // The windows for the bias's gradient end where delta begins.
  KOKKOS_FUNCTION Acc* windows() const {
    const impl::BiasWindows sums(desc, kRows);
    return delta - sums.elements(desc);
  }

  // From query (rows, d), d_out (rows, d), key_t and value_t (d, kRows):
  //   z = dropout(P), for d_v;   d_s = P (dropout'(d_out V^T) - delta), for d_q and d_k.
  KOKKOS_FUNCTION void compute(const TeamMember& team, index_t sample, index_t head,
                               index_t q_begin, int rows, index_t k_begin, int k_rows,
                               const Acc* query, const Acc* d_out, const Acc* key_t,
                               const Acc* value_t, Acc* z, Acc* d_s,
                               bool wants_bias) const {
    const int d = static_cast<int>(desc.head_dim);
    tile::multiply(team, rows, k_rows, d, {query, d, 1}, key_t, kRows, z, kRows, false);
    tile::multiply(team, rows, k_rows, d, {d_out, d, 1}, value_t, kRows, d_s, kRows,
                   false);
    const BackwardTiles self = *this;
    const Acc scale = static_cast<Acc>(desc.scale);
    // A bias has gradients before they are scaled.
    const Acc factor_of_d_s = bias == nullptr ? scale : Acc{1};
    const std::uint32_t of_words = threshold();
    const Acc keep_scale = static_cast<Acc>(random::DropoutWords::keep_scale(of_words));
    const index_t first_row = (sample * desc.heads + head) * desc.q_length + q_begin;
    tile::for_each(team, rows, [=](int i) {
      Acc* p = z + i * kRows;
      Acc* g = d_s + i * kRows;
      const VisibleKeys visible =
          visible_in_tile(self.desc, sample, q_begin + i, k_begin, k_rows);
      const int first = visible.begin, last = visible.end;
      const Acc row_lse = self.lse[first_row + i];
      const Acc row_delta = self.delta[first_row + i];
      if (self.bias == nullptr) {
        for (int j = first; j < last; ++j) p[j] = vector_exp(scale * p[j] - row_lse);
      } else {
        for (int j = first; j < last; ++j) p[j] *= scale;
        add_bias(self.desc, self.bias, head, q_begin + i, k_begin, visible, p);
        for (int j = first; j < last; ++j) p[j] = vector_exp(p[j] - row_lse);
      }
      if (of_words == 0) {
        for (int j = first; j < last; ++j)
          g[j] = factor_of_d_s * p[j] * (g[j] - row_delta);
      } else {
        // The factors the mask multiplies with, 0 or keep_scale, serve both z and d_s.
        Acc factor[kRows];
        for (int j = 0; j < last; ++j) factor[j] = Acc{1};
        const auto mask =
            impl::dropout_row(self.desc, *self.step, of_words, sample, head, q_begin + i);
        apply_dropout(mask, k_begin, last, keep_scale, factor);
        for (int j = first; j < last; ++j) {
          g[j] = factor_of_d_s * p[j] * (factor[j] * g[j] - row_delta);
          p[j] *= factor[j];
        }
      }
      hide(visible, k_rows, p);
      hide(visible, k_rows, g);
    });
    if (bias == nullptr) return;
    if (wants_bias)
      add_diagonals(team, sample, head, q_begin, rows, k_begin, k_rows, d_s);
    tile::for_each(team, rows, [=](int i) {
      for (int j = 0; j < k_rows; ++j) d_s[i * kRows + j] *= scale;
    });
  }

  // Adds the diagonals of d_s to the window of a tile of queries.
  KOKKOS_FUNCTION void add_diagonals(const TeamMember& team, index_t sample, index_t head,
                                     index_t q_begin, int rows, index_t k_begin,
                                     int k_rows, const Acc* d_s) const {
    const impl::BiasWindows sums(desc, kRows);
    Acc* const window = windows() + sums.begin(desc, sample, head, q_begin / kRows) +
                        sums.diagonals(k_begin);
    tile::for_each(team, 2 * kRows - 1, [=](int at) {
      const int ahead = at - (kRows - 1);  // of a query before a key
      Acc sum{0};
      for (int i = ahead > 0 ? ahead : 0; i < rows && i - ahead < k_rows; ++i) {
        sum += d_s[i * kRows + i - ahead];
      }
      window[at] += sum;
    });
  }

  // The start of the first tile of queries that sees a key of the tile that begins at
  // k_begin.
  KOKKOS_FUNCTION index_t first_query_tile(index_t k_begin) const {
    if (!is_causal(desc)) return 0;
    const index_t q_first = k_begin - (desc.kv_length - desc.q_length);
    return q_first <= 0 ? 0 : q_first / kRows * kRows;
  }
};

// Computes d_k and d_v of one tile of keys of a key head, and with `d_q_sum` that tile's
// part of d_q.
template <class T>
struct BackwardKeys {
  using Acc = Accumulator<T>;

  BackwardTiles<T> tiles;
  HeadsView<T> d_k, d_v, d_q;
  Acc* d_q_sum;  // (b, a, s_q, d) on the host; null where d_q has a launch of its own

  KOKKOS_FUNCTION static index_t scratch_elements(index_t d) {
    return impl::keys_team_elements(d, kRows);
  }

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    const AttentionDesc& desc = tiles.desc;
    const index_t league = team.league_rank();
    Acc* memory = carver<Acc>(team, scratch_elements(desc.head_dim)).next;
    if (d_q_sum != nullptr) {
      const index_t kv_head = league % desc.kv_heads;
      const index_t sample = league / desc.kv_heads;
      const index_t group = desc.heads / desc.kv_heads;
      const index_t count = desc.q_length * desc.head_dim;
      set_zero(team, d_q_sum + (sample * desc.heads + kv_head * group) * count,
               group * count);
      if (tiles.bias != nullptr) {
        const impl::BiasWindows sums(desc, kRows);
        set_zero(team, tiles.windows() + sums.begin(desc, sample, kv_head * group),
                 group * sums.query_tiles * sums.length());
      }
      for (index_t k_begin = 0; k_begin < desc.kv_length; k_begin += kRows) {
        one_tile(team, sample, kv_head, k_begin, memory);
      }
      store_d_q(team, sample, kv_head);
    } else {
      const index_t k_tiles = tiles_of(desc.kv_length);
      one_tile(team, league / (k_tiles * desc.kv_heads), league / k_tiles % desc.kv_heads,
               league % k_tiles * kRows, memory);
    }
  }

  KOKKOS_FUNCTION void one_tile(const TeamMember& team, index_t sample, index_t kv_head,
                                index_t k_begin, Acc* scratch) const {
    const AttentionDesc& desc = tiles.desc;
    const int d = static_cast<int>(desc.head_dim);
    const int k_rows = tile_rows(k_begin, desc.kv_length);
    Carver<Acc> memory{scratch};
    Acc* key = memory.take(kRows * d);
    Acc* key_t = memory.take(kRows * d);
    Acc* value = memory.take(kRows * d);
    Acc* value_t = memory.take(kRows * d);
    Acc* query = memory.take(kRows * d);
    Acc* d_out = memory.take(kRows * d);
    Acc* sum_k = memory.take(kRows * d);
    Acc* sum_v = memory.take(kRows * d);
    Acc* z = memory.take(kRows * kRows);
    Acc* d_s = memory.take(kRows * kRows);

    load(team, tiles.k, k_begin, k_rows, sample, kv_head, d, Acc{1}, key);
    transpose(team, key, k_rows, d, key_t);
    load(team, tiles.v, k_begin, k_rows, sample, kv_head, d, Acc{1}, value);
    transpose(team, value, k_rows, d, value_t);
    set_zero(team, sum_k, static_cast<index_t>(k_rows) * d);
    set_zero(team, sum_v, static_cast<index_t>(k_rows) * d);

    const index_t group = desc.heads / desc.kv_heads;
    for (index_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (index_t q_begin = tiles.first_query_tile(k_begin); q_begin < desc.q_length;
           q_begin += kRows) {
        const int rows = tile_rows(q_begin, desc.q_length);
        const impl::KeyRange seen =
            impl::visible_keys(desc, sample, q_begin, q_begin + rows - 1);
        if (seen.end <= k_begin || seen.begin >= k_begin + kRows) continue;
        load(team, tiles.q, q_begin, rows, sample, head, d, Acc{1}, query);
        load(team, tiles.d_o, q_begin, rows, sample, head, d, Acc{1}, d_out);
        tiles.compute(team, sample, head, q_begin, rows, k_begin, k_rows, query, d_out,
                      key_t, value_t, z, d_s, d_q_sum != nullptr);
        tile::multiply(team, k_rows, d, rows, {z, 1, kRows}, d_out, d, sum_v, d, true);
        tile::multiply(team, k_rows, d, rows, {d_s, 1, kRows}, query, d, sum_k, d, true);
        if (d_q_sum != nullptr) {
          Acc* sum_q =
              d_q_sum + ((sample * desc.heads + head) * desc.q_length + q_begin) * d;
          tile::multiply(team, rows, d, k_rows, {d_s, kRows, 1}, key, d, sum_q, d, true);
        }
      }
    }
    store(team, sum_k, d_k, k_begin, k_rows, sample, kv_head, d);
    store(team, sum_v, d_v, k_begin, k_rows, sample, kv_head, d);
  }

  KOKKOS_FUNCTION void store_d_q(const TeamMember& team, index_t sample,
                                 index_t kv_head) const {
    const AttentionDesc& desc = tiles.desc;
    const int d = static_cast<int>(desc.head_dim);
    const index_t group = desc.heads / desc.kv_heads;
    for (index_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const Acc* sum_q = d_q_sum + (sample * desc.heads + head) * desc.q_length * d;
      store(team, sum_q, d_q, 0, static_cast<int>(desc.q_length), sample, head, d);
    }
  }
};

// Computes d_q of one tile of queries.
template <class T>
struct BackwardQueries {
  using Acc = Accumulator<T>;

  BackwardTiles<T> tiles;
  HeadsView<T> d_q;

  KOKKOS_FUNCTION static index_t scratch_elements(index_t d) {
    return impl::queries_team_elements(d, kRows);
  }

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    const AttentionDesc& desc = tiles.desc;
    const QueryTile at = query_tile(team, desc);
    const index_t q_begin = at.q_begin, head = at.head, sample = at.sample;
    const index_t kv_head = at.kv_head;
    const int rows = at.rows;
    const int d = static_cast<int>(desc.head_dim);
    Carver<Acc> memory = carver<Acc>(team, scratch_elements(d));
    Acc* key = memory.take(kRows * d);
    Acc* key_t = memory.take(kRows * d);
    Acc* value_t = memory.take(kRows * d);
    Acc* query = memory.take(kRows * d);
    Acc* d_out = memory.take(kRows * d);
    Acc* sum_q = memory.take(kRows * d);
    Acc* z = memory.take(kRows * kRows);
    Acc* d_s = memory.take(kRows * kRows);

    load(team, tiles.q, q_begin, rows, sample, head, d, Acc{1}, query);
    load(team, tiles.d_o, q_begin, rows, sample, head, d, Acc{1}, d_out);
    set_zero(team, sum_q, static_cast<index_t>(rows) * d);
    if (tiles.bias != nullptr) {
      const impl::BiasWindows sums(desc, kRows);
      set_zero(team, tiles.windows() + sums.begin(desc, sample, head, q_begin / kRows),
               sums.length());
    }
    const impl::KeyRange keys =
        impl::visible_keys(desc, sample, q_begin, q_begin + rows - 1);
    for (index_t k_begin = tile_begin(keys.begin); k_begin < keys.end; k_begin += kRows) {
      const int k_rows = tile_rows(k_begin, desc.kv_length);
      load(team, tiles.v, k_begin, k_rows, sample, kv_head, d, Acc{1}, key);
      transpose(team, key, k_rows, d, value_t);
      load(team, tiles.k, k_begin, k_rows, sample, kv_head, d, Acc{1}, key);
      transpose(team, key, k_rows, d, key_t);
      tiles.compute(team, sample, head, q_begin, rows, k_begin, k_rows, query, d_out,
                    key_t, value_t, z, d_s, true);
      tile::multiply(team, rows, d, k_rows, {d_s, kRows, 1}, key, d, sum_q, d, true);
    }
    store(team, sum_q, d_q, q_begin, rows, sample, head, d);
  }
};

// `products` matrix products of q_length rows, kv_length columns and head_dim terms in
// every head, and memory: `queries` tensors like q, `keys` like k, `rows` like lse.
// Scores that the backward pass computes once more are not counted: it is twice the
// forward pass, as in the blueprint of a model. Of a causal mask all below the diagonal
// and half of it counts; what documents and padding hide besides is known to nobody who
// only sees shapes.
template <class T>
Cost cost_of(const AttentionDesc& desc, int products, int queries, int keys, int rows) {
  const index_t row_count = desc.batch * desc.heads * desc.q_length;
  const double per_key = 2.0 * products * static_cast<double>(row_count * desc.head_dim);
  const double hidden = is_causal(desc) ? 0.5 * static_cast<double>(desc.q_length) : 0.0;
  const index_t key_rows = desc.batch * desc.kv_heads * desc.kv_length;
  const auto element = static_cast<index_t>(sizeof(T));
  const auto sum = static_cast<index_t>(sizeof(Accumulator<T>));
  return {.flops = per_key * static_cast<double>(desc.kv_length),
          .masked_flops = per_key * hidden,
          .bytes = (queries * row_count + keys * key_rows) * desc.head_dim * element +
                   rows * row_count * sum};
}

index_t row_count(const AttentionDesc& desc) {
  return desc.batch * desc.heads * desc.q_length;
}

void check(const AttentionDesc& desc) {
  TRIREME_REQUIRE(
      desc.kv_heads > 0 && desc.heads % desc.kv_heads == 0 && desc.head_dim > 0,
      "attention: {} query heads share {} key heads, of size {}", desc.heads,
      desc.kv_heads, desc.head_dim);
  TRIREME_REQUIRE(!is_causal(desc) || desc.kv_length >= desc.q_length,
                  "causal attention of {} over {}: some would see none",
                  format_plural(desc.q_length, "query", "queries"),
                  format_plural(desc.kv_length, "key"));
  TRIREME_REQUIRE(random::DropoutWords::can_express(desc.dropout),
                  "attention dropout {} is not in [0, 1), or is 0 or 1 in 16 bits",
                  desc.dropout);
  TRIREME_REQUIRE(
      desc.dropout == 0.0 || (desc.kv_length <= desc.mask_keys && desc.query_begin >= 0 &&
                              desc.query_begin + desc.q_length <= desc.mask_queries),
      "attention dropout: queries {} to {} of {}, {} of {}", desc.query_begin,
      desc.query_begin + desc.q_length, desc.mask_queries,
      format_plural(desc.kv_length, "key"), desc.mask_keys);
}

// A plan has no memory to show.
template <class View>
void check_bias(const Exec& exec, const AttentionDesc& desc, const char* name,
                const View& bias) {
  const index_t heads = desc.has_bias ? desc.heads : 0;
  require_extents("attention", name, bias, heads,
                  desc.has_bias ? impl::distances(desc) : 0);
  TRIREME_REQUIRE(exec.is_shape_only() || !desc.has_bias || bias.data() != nullptr,
                  "attention: {} has no memory", name);
}
void check_masks(const Exec& exec, const AttentionDesc& desc) {
  const bool is_segment = desc.mask == MaskKind::segment;
  const bool has_documents = desc.mask == MaskKind::document || is_segment;
  const bool has_masks =
      (desc.mask != MaskKind::padding || desc.key_lengths != nullptr) &&
      (!has_documents || desc.document_begins != nullptr) &&
      (!is_segment || desc.document_ends != nullptr);
  TRIREME_REQUIRE(exec.is_shape_only() || has_masks,
                  "attention: the lengths of a padding mask, the begins of a document "
                  "mask, or the begins and ends of a segment mask are missing");
}

constexpr int kDeviceThreads = impl::kAttentionThreads;
static_assert(kHostExecution || kRows == impl::kDeviceTileRows);

struct ChosenWay final : LibraryState {
  std::optional<impl::AttentionWay> way;
};

std::optional<impl::AttentionWay>& way_of(const Exec& exec) {
  return exec.library<ChosenWay>([] { return std::make_unique<ChosenWay>(); }).way;
}

}  // namespace

void impl::set_attention_way(const Exec& exec, AttentionWay way) {
  way_of(exec) = way;
}

std::optional<impl::AttentionWay> impl::chosen_attention_way(const Exec& exec) {
  return way_of(exec);
}

template <class T>
void impl::attention_delta(const Exec& exec, const Kernel& kernel,
                           const AttentionDesc& desc, HeadsView<const T> o,
                           HeadsView<const T> d_o, View1<Accumulator<T>> delta) {
  launch(
      exec, kernel, row_count(desc), KOKKOS_LAMBDA(const index_t index) {
        const index_t q = index % desc.q_length;
        const index_t head = index / desc.q_length % desc.heads;
        const index_t sample = index / (desc.q_length * desc.heads);
        if (is_padding(desc, sample, q)) {
          delta(index) = Accumulator<T>{0};
          return;
        }
        const T* out = o.row(q, sample, head, desc.head_dim);
        const T* d_out = d_o.row(q, sample, head, desc.head_dim);
        using Acc = Accumulator<T>;
        delta(index) = sum_columns<Acc>(HostRow{}, desc.head_dim, [=](index_t c) {
          return static_cast<Acc>(out[c]) * static_cast<Acc>(d_out[c]);
        });
      });
}

template <class T>
void attention_forward(const Exec& exec, const AttentionDesc& desc, StepStateView step,
                       HeadsView<const T> q, HeadsView<const T> k, HeadsView<const T> v,
                       HeadsView<T> o, View1<Accumulator<T>> lse,
                       View2<const Accumulator<T>> bias) {
  check(desc);
  check_masks(exec, desc);
  check_bias(exec, desc, "bias", bias);
  using Acc = Accumulator<T>;
  const Kernel kernel{"trireme::kernels::attention_forward",
                      cost_of<T>(desc, 2, 2, 2, 1)};
  if constexpr (!std::is_same_v<T, double>) {
    const impl::ForwardArguments<T> arguments{desc, step, q,          k,
                                              v,    o,    lse.data(), bias.data()};
    if (impl::forward_fast(exec, kernel, arguments)) return;
  }
  const Forward<T> functor{
      desc,       step, q, k, v, o, lse, random::DropoutWords::threshold(desc.dropout),
      bias.data()};
  const std::size_t bytes =
      impl::team_bytes<Acc>(Forward<T>::scratch_elements(desc.head_dim));
  launch_teams(exec, kernel, desc.batch * desc.heads * tiles_of(desc.q_length),
               kDeviceThreads, functor, bytes);
}

// Both begin with d_q while it is summed, so that it is aligned as the scratch is. Behind
// it are the windows for a bias, and delta.
template <class T>
index_t attention_backward_scratch_elements(const AttentionDesc& desc) {
  const index_t rows = row_count(desc);
  const index_t sums = kHostExecution ? rows * desc.head_dim : 0;
  return std::max(sums, impl::fast_scratch_elements(dtype_of<T>, desc)) +
         impl::BiasWindows(desc, kRows).elements(desc) + rows;
}

template <class T>
void attention_backward(const Exec& exec, const AttentionDesc& desc, StepStateView step,
                        HeadsView<const T> q, HeadsView<const T> k, HeadsView<const T> v,
                        HeadsView<const T> o, View1<const Accumulator<T>> lse,
                        HeadsView<const T> d_o, View1<Accumulator<T>> scratch,
                        HeadsView<T> d_q, HeadsView<T> d_k, HeadsView<T> d_v,
                        View2<const Accumulator<T>> bias, View2<Accumulator<T>> d_bias) {
  check(desc);
  check_masks(exec, desc);
  check_bias(exec, desc, "bias", bias);
  check_bias(exec, desc, "d_bias", d_bias);
  using Acc = Accumulator<T>;
  const index_t rows = row_count(desc);
  const index_t sums = attention_backward_scratch_elements<T>(desc) - rows;
  const View1<Acc> delta(scratch.data() + sums, extent(rows));
  const index_t window_elements = impl::BiasWindows(desc, kRows).elements(desc);
  Acc* const windows = desc.has_bias ? delta.data() - window_elements : nullptr;

  const impl::BackwardKernels kernels{
      {"trireme::kernels::attention_backward[delta]", cost_of<T>(desc, 0, 2, 0, 1)},
      {"trireme::kernels::attention_backward", cost_of<T>(desc, 4, 3, 4, 2)},
      {"trireme::kernels::attention_backward[kv]", cost_of<T>(desc, 3, 2, 4, 2)},
      {"trireme::kernels::attention_backward[q]", cost_of<T>(desc, 1, 3, 2, 2)}};
  if constexpr (!std::is_same_v<T, double>) {
    const impl::BackwardArguments<T> arguments{
        desc,         step,           q,   k,   v,   o,           d_o,     lse.data(),
        delta.data(), scratch.data(), d_q, d_k, d_v, bias.data(), windows, d_bias.data()};
    if (impl::backward_fast(exec, kernels, arguments)) return;
  }
  impl::attention_delta<T>(exec, kernels.delta, desc, o, d_o, delta);
  const BackwardTiles<T> tiles{desc,       step.data(),  q,          k, v, d_o,
                               lse.data(), delta.data(), bias.data()};
  const std::size_t key_bytes =
      impl::team_bytes<Acc>(BackwardKeys<T>::scratch_elements(desc.head_dim));
  if constexpr (kHostExecution) {
    launch_teams(exec, kernels.whole, desc.batch * desc.kv_heads, kDeviceThreads,
                 BackwardKeys<T>{tiles, d_k, d_v, d_q, scratch.data()}, key_bytes);
  } else {
    launch_teams(exec, kernels.keys,
                 desc.batch * desc.kv_heads * tiles_of(desc.kv_length), kDeviceThreads,
                 BackwardKeys<T>{tiles, d_k, d_v, d_q, nullptr}, key_bytes);
    const std::size_t query_bytes =
        impl::team_bytes<Acc>(BackwardQueries<T>::scratch_elements(desc.head_dim));
    launch_teams(exec, kernels.queries, desc.batch * desc.heads * tiles_of(desc.q_length),
                 kDeviceThreads, BackwardQueries<T>{tiles, d_q}, query_bytes);
  }
  const impl::BiasWindows of_tiles(desc, kRows);
  impl::sum_bias_windows<Acc>(exec, desc, of_tiles.sums(desc), windows, d_bias.data());
}

#define TRIREME_INSTANTIATE(T)                                                   \
  template decltype(attention_forward<T>) attention_forward<T>;                  \
  template decltype(attention_backward<T>) attention_backward<T>;                \
  template index_t attention_backward_scratch_elements<T>(const AttentionDesc&); \
  template decltype(impl::attention_delta<T>) impl::attention_delta<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
