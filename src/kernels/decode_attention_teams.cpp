// kernels/decode_attention_teams.cpp — decode_attention() by teams: the way of a GPU.
//
// The keys of a text are split at multiples of kDecodeTile, wherever the text ends. A
// team takes one tile of keys with up to kHeads of the query heads that share it, and
// leaves for each of these the largest score M, the sum S of exp(score - M), and the
// values' sum weighted with the same. The tiles of a head are combined in order
// (impl/decode_tiles.hpp), by a second launch or by the product that follows. Nothing
// that a launch is given depends on how long the texts are where texts.longest is the
// capacity: lengths are read from memory, and a team whose tile lies behind its text's
// end has nothing to do.
//
// Eight threads read a row of keys together, 16 bytes each, and sixteen such groups of
// them take four rows each: 64 x 64 elements of 16 bits are read in one turn, every
// thread with four loads under way. Each sum has a fixed order, which no number of
// threads changes: a host, whose teams have one thread, gets the same bits.
#include <algorithm>

#include "base/early_start.hpp"
#include "base/types.hpp"
#include "kernels/impl/decode_attention.hpp"
#include "kernels/impl/decode_tiles.hpp"
#include "kernels/impl/pieces.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/impl/vector_math.hpp"

namespace trireme::kernels::impl {

namespace {

constexpr int kKeys = static_cast<int>(kDecodeTile);
constexpr int kLanesOfRow = 8;  // threads that read a row together
constexpr int kThreads = 128;
constexpr int kSlots = kThreads / kLanesOfRow;  // rows at a time
constexpr int kTurns = kKeys / kSlots;

// kAligned: every row of keys, values and queries begins at a multiple of 16 bytes.
template <class T, int kHeads, bool kAligned>
struct DecodeTile {
  using A = Accumulator<T>;
  static constexpr int kElements = Piece<T>::kElements;
  // Columns of values in one turn of the team.
  static constexpr int kWidth = kLanesOfRow * kElements;
  // One more than there are, so that threads read different banks of shared memory.
  static constexpr int kParts = kLanesOfRow + 1;
  static constexpr int kSums = std::max(kHeads * kKeys * kParts, kSlots* kHeads* kWidth);
  static constexpr int kScratch =
      kSums + kHeads * kKeys + kHeads * kLanesOfRow + kSlots * kHeads;

  CachedTexts texts;
  TeamTiles<A> results;
  int kv_heads;
  int group;  // query heads that share a key head
  A scale;
  const T* queries;
  index_t query_width;
  const T* k;
  const T* v;
  DistanceBias<A> bias;
  Divisor by_head_groups, by_kv_heads, by_tiles;

  // A team's work, and its scratch memory.
  struct Place {
    int text, head, heads, tile, keys;  // the first of so many query heads
    int farthest;                       // distance of the first key from the newest
    const T *query, *key, *value;
    index_t columns;  // of a row of keys
    A* sums;          // parts of scores, then parts of outputs
    A* p;             // (kHeads, kKeys): scores, then their exponentials
    A* largest;       // (kHeads, kLanesOfRow)
    A* totals;        // (kSlots, kHeads)
  };

  KOKKOS_FUNCTION int head_groups() const { return (group + kHeads - 1) / kHeads; }
  KOKKOS_FUNCTION int teams() const {
    return static_cast<int>(texts.count) * results.tiles * kv_heads * head_groups();
  }

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    Place place;
    const auto item = static_cast<int>(team.league_rank());
    let_next_start();
    const bool has_keys = find(item, place);
    if (has_keys) ask_for_keys(team, place);
    wait_for_previous();
    if (!has_keys) return;
    constexpr auto kBytes = static_cast<int>(kScratch * sizeof(A));
    constexpr int kLevel = scratch_level(kBytes);
    place.sums = static_cast<A*>(team.team_scratch(kLevel).get_shmem_aligned(kBytes, 16));
    place.p = place.sums + kSums;
    place.largest = place.p + kHeads * kKeys;
    place.totals = place.largest + kHeads * kLanesOfRow;
    add_scores(team, place);
    soften(team, place);
    for (int begin = 0; begin < results.d; begin += kWidth) {
      weigh_values(team, place, begin);
    }
  }

  // False where the tile has no keys.
  KOKKOS_FUNCTION bool find(int item, Place& place) const {
    const int of_group = by_head_groups.quotient(item);
    const int first = (item - of_group * head_groups()) * kHeads;
    const int at = by_kv_heads.quotient(of_group);
    const int kv_head = of_group - at * kv_heads;
    place.text = by_tiles.quotient(at);
    place.tile = at - place.text * results.tiles;
    place.keys = static_cast<int>(texts.length(place.text)) - place.tile * kKeys;
    if (place.keys <= 0) return false;
    place.farthest = place.keys - 1;
    place.keys = place.keys < kKeys ? place.keys : kKeys;
    place.head = kv_head * group + first;
    place.heads = group - first < kHeads ? group - first : kHeads;
    place.columns = static_cast<index_t>(kv_heads) * results.d;
    const index_t row = texts.first_row(place.text) + place.tile * kKeys;
    place.key = k + row * place.columns + kv_head * results.d;
    place.value = v + row * place.columns + kv_head * results.d;
    place.query = queries + place.text * query_width + place.head * results.d;
    return true;
  }

  // The tile's keys and values, whose newest row is yet to be written.
  KOKKOS_FUNCTION void ask_for_keys(const TeamMember& team, const Place& place) const {
    if constexpr (!kHostExecution) {
      constexpr int kOfLine = kDeviceLine / static_cast<int>(sizeof(T));
      const auto rank = static_cast<unsigned>(team.team_rank());
      const auto row = static_cast<int>(rank / kLanesOfRow);
      const auto lane = static_cast<int>(rank % kLanesOfRow);
      for (int j = row; j < place.keys; j += kSlots) {
        for (int c = lane / 2 * kOfLine; c < results.d; c += kLanesOfRow / 2 * kOfLine) {
          ask_for_line((lane % 2 == 0 ? place.key : place.value) + j * place.columns + c);
        }
      }
    }
  }

  // A piece of each of the queries, scaled; of heads behind the last, the last again.
  KOKKOS_FORCEINLINE_FUNCTION void load_queries(const Place& place, int column,
                                                A (&query)[kHeads][kElements]) const {
    for (int m = 0; m < kHeads; ++m) {
      const int head = m < place.heads ? m : place.heads - 1;
      const Piece<T> piece = load_piece<kAligned>(place.query + head * results.d + column,
                                                  results.d - column);
      for (int e = 0; e < kElements; ++e) {
        query[m][e] = scale * static_cast<A>(piece.element[e]);
      }
    }
  }

  // p = the scores; those behind the last key are minus infinity.
  KOKKOS_FUNCTION void add_scores(const TeamMember& team, const Place& place) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, kThreads), [&](int thread) {
      const int lane = thread % kLanesOfRow, slot = thread / kLanesOfRow;
      A sum[kTurns][kHeads] = {};
      for (int c = lane * kElements; c < results.d; c += kWidth) {
        A query[kHeads][kElements];
        load_queries(place, c, query);
        for (int turn = 0; turn < kTurns; ++turn) {
          const int j = slot + turn * kSlots;
          if (j >= place.keys) continue;
          const Piece<T> key =
              load_piece<kAligned>(place.key + j * place.columns + c, results.d - c);
          for (int e = 0; e < kElements; ++e) {
            const A x = static_cast<A>(key.element[e]);
            for (int m = 0; m < kHeads; ++m) {
              sum[turn][m] = multiply_add(query[m][e], x, sum[turn][m]);
            }
          }
        }
      }
      for (int turn = 0; turn < kTurns; ++turn) {
        for (int m = 0; m < kHeads; ++m) {
          const int j = slot + turn * kSlots;
          place.sums[(m * kKeys + j) * kParts + lane] = sum[turn][m];
        }
      }
    });
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, kHeads * kKeys), [&](int i) {
      const A* const part = place.sums + i * kParts;
      A sum = ((part[0] + part[4]) + (part[2] + part[6])) +
              ((part[1] + part[5]) + (part[3] + part[7]));
      const int m = i / kKeys, j = i % kKeys;
      if (bias.is_there() && m < place.heads && j < place.keys) {
        sum += bias.of(place.head + m, place.farthest - j);
      }
      place.p[i] = j < place.keys ? sum : -Kokkos::Experimental::infinity_v<A>;
    });
    team.team_barrier();
  }

  // p = exp(score - M); M goes to the results.
  KOKKOS_FUNCTION void soften(const TeamMember& team, const Place& place) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, kHeads * kLanesOfRow), [&](int i) {
      const A* const p = place.p + i / kLanesOfRow * kKeys + i % kLanesOfRow;
      A most = p[0];
      for (int j = kLanesOfRow; j < kKeys; j += kLanesOfRow) {
        most = p[j] > most ? p[j] : most;
      }
      place.largest[i] = most;
    });
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, kHeads * kKeys), [&](int i) {
      const int m = i / kKeys;
      const A* const of_head = place.largest + m * kLanesOfRow;
      A most = of_head[0];
      for (int l = 1; l < kLanesOfRow; ++l) most = of_head[l] > most ? of_head[l] : most;
      place.p[i] = exp_for<T>(place.p[i] - most);
      if (i % kKeys == 0 && m < place.heads) {
        results.weight(place.text, place.head + m, place.tile)[0] = most;
      }
    });
    team.team_barrier();
  }

  // The columns [begin, begin + kWidth) of the weighted sums, and with the first of them
  // the sums of the weights.
  KOKKOS_FUNCTION void weigh_values(const TeamMember& team, const Place& place,
                                    int begin) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, kThreads), [&](int thread) {
      const int lane = thread % kLanesOfRow, slot = thread / kLanesOfRow;
      const int c = begin + lane * kElements;
      A sum[kHeads][kElements] = {};
      A total[kHeads] = {};
      for (int turn = 0; turn < kTurns; ++turn) {
        const int j = slot + turn * kSlots;
        if (j >= place.keys) continue;
        Piece<T> value = {};
        if (c < results.d) {
          value =
              load_piece<kAligned>(place.value + j * place.columns + c, results.d - c);
        }
        for (int m = 0; m < kHeads; ++m) {
          const A weight = place.p[m * kKeys + j];
          total[m] += weight;
          for (int e = 0; e < kElements; ++e) {
            sum[m][e] = multiply_add(weight, static_cast<A>(value.element[e]), sum[m][e]);
          }
        }
      }
      for (int m = 0; m < kHeads; ++m) {
        const int row = slot * kHeads + m;
        for (int e = 0; e < kElements; ++e) {
          place.sums[row * kWidth + e * kLanesOfRow + lane] = sum[m][e];
        }
        if (lane == 0) place.totals[row] = total[m];
      }
    });
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, kHeads * kWidth), [&](int i) {
      const int m = i / kWidth, w = i % kWidth;
      if (m >= place.heads) return;
      const auto add_slots = [&](const A* from, int stride) {
        A sum = from[0];
        for (int slot = 1; slot < kSlots; ++slot) sum += from[slot * stride];
        return sum;
      };
      const int head = place.head + m;
      if (begin == 0 && w == 0) {
        results.weight(place.text, head, place.tile)[1] =
            add_slots(place.totals + m, kHeads);
      }
      const int column = begin + w % kLanesOfRow * kElements + w / kLanesOfRow;
      if (column < results.d) {
        results.output(place.text, head, place.tile)[column] =
            add_slots(place.sums + m * kWidth + w, kHeads * kWidth);
      }
    });
    team.team_barrier();
  }
};

template <class T>
struct CombineTeamTiles {
  using A = Accumulator<T>;

  CachedTexts texts;
  TeamTiles<A> results;
  T* out;

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    const auto item = static_cast<int>(team.league_rank());
    const int text = item / results.heads, head = item % results.heads;
    const index_t length = texts.length(text);
    T* const to = out + static_cast<index_t>(item) * results.d;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, results.d), [&](int c) {
      A sum[1];
      combine_tiles<T>(results, text, head, c, length, sum);
      to[c] = static_cast<T>(sum[0]);
    });
  }
};

template <class T, int kHeads, bool kAligned>
void take_tiles(const Exec& exec, const CachedTexts& texts, const CachedHeads& heads,
                const TeamTiles<Accumulator<T>>& results, View2<const T> qkv,
                View2<const T> k, View2<const T> v,
                const View2<const Accumulator<T>>& bias) {
  DecodeTile<T, kHeads, kAligned> tile{texts,
                                       results,
                                       static_cast<int>(heads.kv_heads),
                                       static_cast<int>(heads.heads / heads.kv_heads),
                                       static_cast<Accumulator<T>>(heads.scale),
                                       qkv.data(),
                                       static_cast<index_t>(qkv.extent(1)),
                                       k.data(),
                                       v.data(),
                                       DistanceBias<Accumulator<T>>(bias),
                                       {},
                                       {},
                                       {}};
  tile.by_head_groups = Divisor(tile.head_groups());
  tile.by_kv_heads = Divisor(tile.kv_heads);
  tile.by_tiles = Divisor(results.tiles);
  launch_early_teams(exec,
                     {"trireme::kernels::decode_attention[tiles]",
                      decode_attention_cost<T>(texts, heads, bias)},
                     tile.teams(), kThreads, tile,
                     tile.kScratch * sizeof(Accumulator<T>) + 16);
}

}  // namespace

template <class T>
void decode_tiles_by_teams(const Exec& exec, const CachedTexts& texts,
                           const CachedHeads& heads, View2<const T> qkv, View2<const T> k,
                           View2<const T> v, View1<Accumulator<T>> scratch,
                           View2<const Accumulator<T>> bias) {
  const TeamTiles<Accumulator<T>> results(texts, heads, scratch);
  const bool is_aligned = heads.head_dim % Piece<T>::kElements == 0 &&
                          has_pieces(qkv.data(), static_cast<index_t>(qkv.extent(1))) &&
                          has_pieces(k.data(), static_cast<index_t>(k.extent(1))) &&
                          has_pieces(v.data(), static_cast<index_t>(v.extent(1)));
  const bool is_grouped = heads.heads > heads.kv_heads;
  const auto take =
      is_aligned ? (is_grouped ? take_tiles<T, 4, true> : take_tiles<T, 1, true>)
                 : (is_grouped ? take_tiles<T, 4, false> : take_tiles<T, 1, false>);
  take(exec, texts, heads, results, qkv, k, v, bias);
}

template <class T>
void decode_attention_by_teams(const Exec& exec, const CachedTexts& texts,
                               const CachedHeads& heads, View2<const T> qkv,
                               View2<const T> k, View2<const T> v,
                               View1<Accumulator<T>> scratch, View2<T> o,
                               View2<const Accumulator<T>> bias) {
  using A = Accumulator<T>;
  decode_tiles_by_teams<T>(exec, texts, heads, qkv, k, v, scratch, bias);
  const TeamTiles<A> results(texts, heads, scratch);
  const index_t read = texts.count * heads.heads * results.tiles * (2 + heads.head_dim);
  launch_teams(exec,
               {"trireme::kernels::decode_attention[tiles_combined]",
                {.bytes = read * static_cast<index_t>(sizeof(A)) + bytes_of(o)}},
               texts.count * heads.heads, heads.head_dim > 64 ? 128 : 64,
               CombineTeamTiles<T>{texts, results, o.data()});
}

#define TRIREME_INSTANTIATE(T)                                          \
  template decltype(decode_tiles_by_teams<T>) decode_tiles_by_teams<T>; \
  template decltype(decode_attention_by_teams<T>) decode_attention_by_teams<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels::impl
