// kernels/decode_attention_host.cpp — decode_attention() on host cores.
//
// A work item is a tile of keys of one key head of one text, with all query heads that
// share it. It leaves, for each of these, the tile's largest score M, the sum S of
// exp(score - M), and the values' sum weighted with the same. A second pass combines the
// tiles of a head in order:
//   M = max M_t,  o = sum exp(M_t - M) o_t / sum exp(M_t - M) S_t.
// Items of one tile stand side by side, so that a thread goes through the cache in the
// order of memory. Example: 12 heads and a text of 150 positions make 3 x 12 items, in
// the first 12 of which keys 0 to 63 are read.
#include <algorithm>
#include <cstring>

#include "base/types.hpp"
#include "kernels/impl/decode_attention.hpp"
#include "kernels/impl/vector_math.hpp"
#include "kernels/impl/vector_rows.hpp"

namespace trireme::kernels::impl {

namespace {

// The largest head for which there is a way here: its queries lie on the stack.
constexpr index_t kMostHeadElements = 256;

// What the items of a call leave behind: of each text, head and tile.
template <class A>
struct TileResults {
  A* data;
  index_t heads, tiles, d;

  A* of(index_t text, index_t head, index_t tile) const {
    return data + ((text * heads + head) * tiles + tile) * (2 + d);
  }
  static A& largest(A* result) { return result[0]; }
  static A& sum(A* result) { return result[1]; }
  static A* values(A* result) { return result + 2; }
};

// sums[m * ld + c] = sum over j of p[m * ldp + j] value[j][c] for the elements c of one
// block, `width` of them, and M rows of p.
template <class T, int M>
void weigh_block(index_t keys, const T* value, index_t ldv, index_t width,
                 const Accumulator<T>* p, index_t ldp, Accumulator<T>* sums, index_t ld) {
  using A = Accumulator<T>;
  using V = typename Block<T>::V;
  constexpr int vectors = Block<T>::vectors, size = Block<T>::elements;
  V sum[M][vectors] = {};
  for (index_t j = 0; j < keys; ++j) {
    const T* const row = value + j * ldv;
    V block[vectors];
    if (width == size) {
      __builtin_prefetch(row + 8 * ldv, 0, 2);
      Block<T>::load(row, block);
    } else {
      T rest[size] = {};
      for (index_t c = 0; c < width; ++c) rest[c] = row[c];
      Block<T>::load(rest, block);
    }
    for (int m = 0; m < M; ++m) {
      for (int v = 0; v < vectors; ++v) sum[m][v] += p[m * ldp + j] * block[v];
    }
  }
  for (int m = 0; m < M; ++m) {
    A elements[size];
    std::memcpy(elements, sum[m], sizeof(elements));
    for (index_t c = 0; c < width; ++c) {
      sums[m * ld + c] = elements[Block<T>::place(static_cast<int>(c))];
    }
  }
}

template <class T>
void weigh_values(int rows, index_t keys, const T* value, index_t ldv, index_t width,
                  const Accumulator<T>* p, index_t ldp, Accumulator<T>* sums,
                  index_t ld) {
  using Function = void (*)(index_t, const T*, index_t, index_t, const Accumulator<T>*,
                            index_t, Accumulator<T>*, index_t);
  constexpr Function functions[kMostDotRows] = {
      &weigh_block<T, 1>, &weigh_block<T, 2>, &weigh_block<T, 3>, &weigh_block<T, 4>,
      &weigh_block<T, 5>, &weigh_block<T, 6>, &weigh_block<T, 7>, &weigh_block<T, 8>};
  functions[rows - 1](keys, value, ldv, width, p, ldp, sums, ld);
}

template <class T>
struct TileItem {
  using A = Accumulator<T>;

  CachedTexts texts;
  CachedHeads heads;
  const T* queries;
  index_t query_width;
  const T* k;
  const T* v;
  DistanceBias<A> bias;
  TileResults<A> results;

  void operator()(index_t item) const {
    const index_t kv_head = item % heads.kv_heads;
    const index_t tile = item / heads.kv_heads % results.tiles;
    const index_t text = item / (heads.kv_heads * results.tiles);
    const index_t first = tile * kDecodeTile;
    const index_t keys = std::min(kDecodeTile, texts.length(text) - first);
    if (keys <= 0) return;
    const index_t group = heads.heads / heads.kv_heads;
    for (index_t head = 0; head < group; head += kMostDotRows) {
      const auto count = static_cast<int>(std::min<index_t>(kMostDotRows, group - head));
      take(text, kv_head, kv_head * group + head, count, tile, keys);
    }
  }

  // The query heads [head, head + count) with the keys of a tile.
  void take(index_t text, index_t kv_head, index_t head, int count, index_t tile,
            index_t keys) const {
    alignas(64) A query[kMostDotRows * kMostHeadElements];
    alignas(64) A p[kMostDotRows * kDecodeTile];
    const index_t d = heads.head_dim, columns = heads.kv_heads * d;
    const index_t begin =
        (texts.first_row(text) + tile * kDecodeTile) * columns + kv_head * d;
    const index_t ldq = whole_blocks<T>(d);
    query[0] = A{0};  // a compiler does not see that there is at least one head
    for (int m = 0; m < count; ++m) {
      widen_row<T>(queries + text * query_width + (head + m) * d, d,
                   static_cast<A>(heads.scale), query + m * ldq);
    }
    dot_rows<T, A>(count, keys, k + begin, columns, query, ldq, d, p, kDecodeTile);
    if (bias.is_there()) add_bias(text, head, count, tile, keys, p);
    for (int m = 0; m < count; ++m) {
      soften(p + m * kDecodeTile, keys, results.of(text, head + m, tile));
    }
    const index_t ld = results.tiles * (2 + d);  // from head to head
    A* const sums = TileResults<A>::values(results.of(text, head, tile));
    for (index_t c = 0; c < d; c += Block<T>::elements) {
      weigh_values<T>(count, keys, v + begin + c, columns,
                      std::min<index_t>(Block<T>::elements, d - c), p, kDecodeTile,
                      sums + c, ld);
    }
  }

  void add_bias(index_t text, index_t head, int count, index_t tile, index_t keys,
                A* p) const {
    const index_t farthest = texts.length(text) - 1 - tile * kDecodeTile;
    for (int m = 0; m < count; ++m) {
      for (index_t j = 0; j < keys; ++j) {
        p[m * kDecodeTile + j] += bias.of(head + m, farthest - j);
      }
    }
  }

  // Scores of a tile become exp(score - M); M and their sum go to the result. Scores
  // behind the last key are taken for minus infinity, so that loops have one length.
  static void soften(A* p, index_t keys, A* result) {
    for (index_t j = keys; j < kDecodeTile; ++j) {
      p[j] = -Kokkos::Experimental::infinity_v<A>;
    }
    constexpr index_t lanes = VectorOf<A>::lanes;
    A most[lanes], total[lanes] = {};
    for (index_t l = 0; l < lanes; ++l) most[l] = p[l];
    for (index_t j = lanes; j < kDecodeTile; j += lanes) {
      for (index_t l = 0; l < lanes; ++l) most[l] = std::max(most[l], p[j + l]);
    }
    const A largest = *std::max_element(most, most + lanes);
    for (index_t j = 0; j < kDecodeTile; ++j) p[j] = vector_exp(p[j] - largest);
    for (index_t j = 0; j < kDecodeTile; j += lanes) {
      for (index_t l = 0; l < lanes; ++l) total[l] += p[j + l];
    }
    typename VectorOf<A>::type sum;
    std::memcpy(&sum, total, sizeof(sum));
    TileResults<A>::largest(result) = largest;
    TileResults<A>::sum(result) = sum_of_lanes(sum);
  }
};

template <class T>
struct CombineTiles {
  using A = Accumulator<T>;

  CachedTexts texts;
  TileResults<A> results;
  T* out;

  void operator()(index_t item) const {
    using Result = TileResults<A>;
    const index_t text = item / results.heads, head = item % results.heads;
    const index_t tiles = (texts.length(text) + kDecodeTile - 1) / kDecodeTile;
    if (tiles == 0) {
      std::fill_n(out + item * results.d, results.d, T(A{0}));
      return;
    }
    A largest = Result::largest(results.of(text, head, 0));
    for (index_t t = 1; t < tiles; ++t) {
      largest = std::max(largest, Result::largest(results.of(text, head, t)));
    }
    A sums[kMostHeadElements] = {};
    A total{0};
    for (index_t t = 0; t < tiles; ++t) {
      A* const result = results.of(text, head, t);
      const A weight = vector_exp(Result::largest(result) - largest);
      const A* const values = Result::values(result);
      total += weight * Result::sum(result);
      for (index_t c = 0; c < results.d; ++c) sums[c] += weight * values[c];
    }
    T* const to = out + item * results.d;
    for (index_t c = 0; c < results.d; ++c) to[c] = static_cast<T>(sums[c] / total);
  }
};

}  // namespace

bool decodes_by_teams() {
  return false;
}

template <class T>
void decode_attention_here(const Exec& exec, const CachedTexts& texts,
                           const CachedHeads& heads, View2<const T> qkv, View2<const T> k,
                           View2<const T> v, View1<Accumulator<T>> scratch, View2<T> o,
                           View2<const Accumulator<T>> bias) {
  using A = Accumulator<T>;
  if (heads.head_dim > kMostHeadElements) {
    decode_attention_reference<T>(exec, texts, heads, qkv, k, v, scratch, o, bias);
    return;
  }
  const index_t tiles = (texts.longest + kDecodeTile - 1) / kDecodeTile;
  const TileResults<A> results{scratch.data(), heads.heads, tiles, heads.head_dim};
  launch(exec,
         {"trireme::kernels::decode_attention",
          decode_attention_cost<T>(texts, heads, bias)},
         texts.count * tiles * heads.kv_heads,
         TileItem<T>{texts, heads, qkv.data(), static_cast<index_t>(qkv.extent(1)),
                     k.data(), v.data(), DistanceBias<A>(bias), results});
  const index_t read = texts.count * heads.heads * tiles * (2 + heads.head_dim);
  launch(exec,
         {"trireme::kernels::decode_attention[combine]",
          {.bytes = read * static_cast<index_t>(sizeof(A)) + bytes_of(o)}},
         texts.count * heads.heads, CombineTiles<T>{texts, results, o.data()});
}

#define TRIREME_INSTANTIATE(T) \
  template decltype(decode_attention_here<T>) decode_attention_here<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels::impl
