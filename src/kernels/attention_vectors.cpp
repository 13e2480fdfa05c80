// kernels/attention_vectors.cpp — tiles of attention in float, by the widest vectors of
// the build; bf16 and fp16 are widened when a tile is packed.
//
// Products are blocks of C held in registers: kBlockRows rows by kBlockVectors vectors,
// as many as there are registers for. Everything between them is a plain loop over
// queries, which lie side by side, and which g++ vectorises.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/exec.hpp"
#include "kernels/impl/attention_tiles.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/impl/vector_math.hpp"

namespace trireme::kernels::impl {

namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kBlockVectors = 4;  // of 32 registers, with 6 rows: 24 sums and 5 operands
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
constexpr int kBlockVectors = 2;
#else
constexpr int kVectorBytes = 16;
constexpr int kBlockVectors = 2;
#endif
constexpr int kBlockRows = 6;
constexpr int kFloats = kVectorBytes / static_cast<int>(sizeof(float));
// Whatever the vectors are, heads and queries are padded to this.
constexpr int kPadding = 16;

typedef float FloatVector __attribute__((vector_size(kVectorBytes)));
inline FloatVector load(const float* from) {
  FloatVector v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}
inline void store(FloatVector v, float* to) {
  std::memcpy(to, &v, sizeof(v));
}

// The last element of `low`, and all of `high` but its last.
template <int... i>
FloatVector moved_by_one(FloatVector low, FloatVector high,
                         std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(low, high, (kFloats - 1 + i)...);
}
inline FloatVector moved_by_one(FloatVector low, FloatVector high) {
  return moved_by_one(low, high, std::make_integer_sequence<int, kFloats>());
}

constexpr int padded(int count) {
  return (count + kPadding - 1) / kPadding * kPadding;
}

enum class Left { rows, columns };

// The left operand of a product: element (i, p) is data[i * leading + p], or
// data[p * leading + i] where it is held by columns.
template <Left left>
struct LeftOperand {
  const float* data;
  int leading;
  float at(int i, int p) const {
    return left == Left::rows ? data[i * leading + p] : data[p * leading + i];
  }
  LeftOperand from_row(int i) const {
    return {data + (left == Left::rows ? i * leading : i), leading};
  }
};

// C (kRowCount, kVectorCount vectors) = or += A (kRowCount, k) B (k, kVectorCount
// vectors).
template <int kRowCount, int kVectorCount, Left left>
inline void multiply_block(int k, LeftOperand<left> a, const float* b, int ldb, float* c,
                           int ldc, bool add) {
  FloatVector sum[kRowCount * kVectorCount];
  const auto at = [&](int i, int v) { return c + i * ldc + v * kFloats; };
  // Unrolled at once, so that the sums never have an address.
#pragma GCC unroll 8
  for (int i = 0; i < kRowCount; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectorCount; ++v) {
      sum[i * kVectorCount + v] = add ? load(at(i, v)) : FloatVector{};
    }
  }
  for (int p = 0; p < k; ++p) {
    FloatVector right[kVectorCount];
#pragma GCC unroll 4
    for (int v = 0; v < kVectorCount; ++v) {
      right[v] = load(b + p * ldb + v * kFloats);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRowCount; ++i) {
      const float factor = a.at(i, p);
#pragma GCC unroll 4
      for (int v = 0; v < kVectorCount; ++v) {
        sum[i * kVectorCount + v] += factor * right[v];
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRowCount; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectorCount; ++v) store(sum[i * kVectorCount + v], at(i, v));
  }
}

// The columns of `kVectorCount` vectors, for all rows.
template <int kVectorCount, Left left>
void multiply_columns(int m, int k, LeftOperand<left> a, const float* b, int ldb,
                      float* c, int ldc, bool add) {
  int i = 0;
  for (; i + kBlockRows <= m; i += kBlockRows) {
    multiply_block<kBlockRows, kVectorCount, left>(k, a.from_row(i), b, ldb, c + i * ldc,
                                                   ldc, add);
  }
  if (i + 4 <= m) {
    multiply_block<4, kVectorCount, left>(k, a.from_row(i), b, ldb, c + i * ldc, ldc,
                                          add);
    i += 4;
  }
  for (; i < m; ++i) {
    multiply_block<1, kVectorCount, left>(k, a.from_row(i), b, ldb, c + i * ldc, ldc,
                                          add);
  }
}

// C (m, n) = or += A (m, k) B (k, n), n a multiple of kPadding.
template <Left left>
void multiply(int m, int n, int k, LeftOperand<left> a, const float* b, int ldb, float* c,
              int ldc, bool add) {
  constexpr int kWide = kBlockVectors * kFloats;
  int j = 0;
  for (; j + kWide <= n; j += kWide) {
    multiply_columns<kBlockVectors, left>(m, k, a, b + j, ldb, c + j, ldc, add);
  }
  for (; j < n; j += kFloats) {
    multiply_columns<1, left>(m, k, a, b + j, ldb, c + j, ldc, add);
  }
}

// packed (kTile, depth) = rows, zeros where there are none.
template <class T>
void pack_rows(const Rows<const T>& rows, int count, int d, int depth, float* packed) {
  for (int i = 0; i < count; ++i) {
    const T* const from = rows.row(i);
    float* const to = packed + i * depth;
    TRIREME_INDEPENDENT_ITERATIONS
    for (int c = 0; c < d; ++c) to[c] = static_cast<float>(from[c]);
    std::fill(to + d, to + depth, 0.0f);
  }
  std::fill(packed + count * depth, packed + kTile * depth, 0.0f);
}

// to (depth, kTile) = factor * from^T.
void transpose(const float* from, int depth, float factor, float* to) {
  typedef float Four __attribute__((vector_size(16), aligned(sizeof(float)), may_alias));
  for (int i = 0; i < kTile; i += 4) {
    for (int c = 0; c < depth; c += 4) {
      const auto row = [&](int r) {
        return *reinterpret_cast<const Four*>(from + (i + r) * depth + c) * factor;
      };
      const Four r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
      const Four low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
      const Four high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
      const Four low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
      const Four high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
      const auto store = [&](int r, Four v) {
        *reinterpret_cast<Four*>(to + (c + r) * kTile + i) = v;
      };
      store(0, __builtin_shufflevector(low01, low23, 0, 1, 4, 5));
      store(1, __builtin_shufflevector(low01, low23, 2, 3, 6, 7));
      store(2, __builtin_shufflevector(high01, high23, 0, 1, 4, 5));
      store(3, __builtin_shufflevector(high01, high23, 2, 3, 6, 7));
    }
  }
}

// rows = factor * packed, rounded.
template <class T>
void unpack_rows(const float* packed, int count, int d, int depth, float factor,
                 const Rows<T>& rows) {
  for (int i = 0; i < count; ++i) {
    const float* const from = packed + i * depth;
    T* const to = rows.row(i);
    TRIREME_INDEPENDENT_ITERATIONS
    for (int c = 0; c < d; ++c) to[c] = static_cast<T>(factor * from[c]);
  }
}

// values[i] = hidden where query i does not see the key.
void hide(const TilePair& pair, int key, int columns, float hidden, float* values) {
  for (int i = 0; i < columns; ++i) {
    const bool seen = (pair.begin[i] <= key) & (key < pair.end[i]);
    values[i] = seen ? values[i] : hidden;
  }
}

// The kept half of a word: shifted into the upper half, to compare it there.
inline std::uint32_t upper_half(std::uint32_t word, int e) {
  return e == 0 ? word << 16 : word;
}

template <class T>
struct VectorTiles {
  using Element = T;
  struct Session {};
  static constexpr const int (&kWordOrder)[kTile] = kInOrder;

  static float bias_factor(double) { return 1.0f; }
  static int depth(int d) { return padded(d); }
  static constexpr std::size_t kSquare = sizeof(float) * kTile * kTile;
  static std::size_t tile_bytes(int depth) {
    return sizeof(float) * static_cast<std::size_t>(kTile * depth);
  }

  // Forward. Keys: k (kTile, depth), v (kTile, depth). Queries: q^T (depth, kTile) times
  // scale, o (kTile, depth), and of each row the maximum and the sum so far. Work: P^T.
  static std::size_t forward_key_bytes(int depth) { return 2 * tile_bytes(depth); }
  static std::size_t forward_query_bytes(int depth) {
    return 2 * tile_bytes(depth) + 2 * kTile * sizeof(float);
  }
  static std::size_t forward_work_bytes(int depth) {
    return std::max(kSquare, tile_bytes(depth));
  }

  struct Queries {
    float *q_t, *o, *max, *sum;
    Queries(std::byte* memory, int depth) {
      q_t = reinterpret_cast<float*>(memory);
      o = q_t + kTile * depth;
      max = o + kTile * depth;
      sum = max + kTile;
    }
  };

  static void load_forward_keys(const Rows<const T>& k, const Rows<const T>& v, int rows,
                                int d, std::byte* to) {
    auto* const key = reinterpret_cast<float*>(to);
    pack_rows(k, rows, d, depth(d), key);
    pack_rows(v, rows, d, depth(d), key + kTile * depth(d));
  }

  static void begin_forward(const Rows<const T>& q, int rows, int d, double scale,
                            std::byte* to) {
    const Queries state(to, depth(d));
    // o is not in use yet.
    pack_rows(q, rows, d, depth(d), state.o);
    transpose(state.o, depth(d), static_cast<float>(scale), state.q_t);
    std::fill_n(state.o, kTile * depth(d), 0.0f);
    std::fill_n(state.max, kTile, -Kokkos::Experimental::infinity_v<float>);
    std::fill_n(state.sum, kTile, 0.0f);
  }

  static void forward_tile(const TilePair& pair, int d, double, const std::byte* keys,
                           std::byte* queries, std::byte* work) {
    const int n = depth(d), columns = padded(pair.queries);
    const auto* const key = reinterpret_cast<const float*>(keys);
    const Queries state(queries, n);
    auto* const p = reinterpret_cast<float*>(work);
    multiply_scores(pair, columns, d, key, state.q_t, p);
    pair.draw_words(0, (columns + 31) / 32 * 32);
    softmax(pair, n, columns, state, p);
    multiply<Left::columns>(pair.queries, n, pair.keys, {p, kTile}, key + kTile * n, n,
                            state.o, n, true);
  }

  // Scores, in both passes the same ones: the product of keys and queries, and the bias.
  static void multiply_scores(const TilePair& pair, int columns, int d, const float* key,
                              const float* q_t, float* scores) {
    const LeftOperand<Left::rows> keys{key, depth(d)};
    if (pair.bias == nullptr) {
      multiply<Left::rows>(pair.keys, columns, d, keys, q_t, kTile, scores, kTile, false);
      return;
    }
    pair.put_bias(pair.keys, scores);
    multiply<Left::rows>(pair.keys, columns, d, keys, q_t, kTile, scores, kTile, true);
  }

  // Scores become unnormalised probabilities, after dropout but for its scale.
  static void softmax(const TilePair& pair, int n, int columns, const Queries& state,
                      float* p) {
    constexpr float kInfinity = Kokkos::Experimental::infinity_v<float>;
    float largest[kTile], from[kTile], sum[kTile] = {};
    std::fill_n(largest, kTile, -kInfinity);
    for (int k = 0; k < pair.keys; ++k) {
      if (pair.partial) hide(pair, k, columns, -kInfinity, p + k * kTile);
      for (int i = 0; i < columns; ++i) {
        largest[i] = p[k * kTile + i] > largest[i] ? p[k * kTile + i] : largest[i];
      }
    }
    raise(pair, n, largest, state);
    for (int i = 0; i < kTile; ++i) {
      from[i] = state.max[i] == -kInfinity ? 0.0f : state.max[i];
    }
    for (int k = 0; k < pair.keys; ++k) {
      float* const row = p + k * kTile;
      for (int i = 0; i < columns; ++i) {
        const float e = vector_exp(row[i] - from[i]);
        sum[i] += e;
        row[i] = e;
      }
      if (pair.words == nullptr) continue;
      const std::uint32_t* const words = pair.words + k / 2 * kTile;
      const std::uint32_t threshold = pair.threshold << 16;
      TRIREME_INDEPENDENT_ITERATIONS
      for (int i = 0; i < columns; ++i) {
        row[i] = upper_half(words[i], k % 2) >= threshold ? row[i] : 0.0f;
      }
    }
    for (int i = 0; i < columns; ++i) state.sum[i] += sum[i];
  }

  // Exponents are taken from a maximum seen before as long as none is above it by more
  // than kSlack: e^kSlack is no danger to a sum, and o is seldom rescaled.
  static constexpr float kSlack = 8.0f;
  static void raise(const TilePair& pair, int n, const float* largest,
                    const Queries& state) {
    for (int i = 0; i < pair.queries; ++i) {
      if (!(largest[i] > state.max[i] + kSlack)) continue;
      const float rescale = vector_exp(state.max[i] - largest[i]);
      state.max[i] = largest[i];
      if (state.sum[i] == 0.0f) continue;
      state.sum[i] *= rescale;
      for (int c = 0; c < n; ++c) state.o[i * n + c] *= rescale;
    }
  }

  static void end_forward(std::byte* queries, int rows, int d, double, float keep_scale,
                          const Rows<T>& o, float* lse) {
    const Queries state(queries, depth(d));
    for (int i = 0; i < rows; ++i) {
      const bool none = state.sum[i] == 0.0f;
      const float factor = none ? 0.0f : keep_scale / state.sum[i];
      unpack_rows(state.o + i * depth(d), 1, d, depth(d), factor,
                  Rows<T>{o.row(i), o.stride});
    }
    for (int i = 0; i < rows; ++i) lse[i] = state.max[i] + vector_log(state.sum[i]);
  }

  // Backward. Keys: k (kTile, depth), v (kTile, depth); sums: d_k, d_v. Queries: q^T
  // times scale, d_o^T, q, d_o, lse, delta. Work: z^T and d_s^T. d_q: (kTile, depth).
  static std::size_t backward_key_bytes(int depth) { return 2 * tile_bytes(depth); }
  static std::size_t key_sum_bytes(int depth) { return 2 * tile_bytes(depth); }
  static std::size_t backward_query_bytes(int depth) {
    return 4 * tile_bytes(depth) + 2 * kTile * sizeof(float);
  }
  static std::size_t backward_work_bytes(int) { return 2 * kSquare; }

  static void load_backward_keys(const Rows<const T>& k, const Rows<const T>& v, int rows,
                                 int d, std::byte* to) {
    load_forward_keys(k, v, rows, d, to);
  }

  struct BackwardQueries {
    float *q_t, *d_o_t, *q, *d_o, *lse, *delta;
    BackwardQueries(std::byte* memory, int depth) {
      q_t = reinterpret_cast<float*>(memory);
      d_o_t = q_t + kTile * depth;
      q = d_o_t + kTile * depth;
      d_o = q + kTile * depth;
      lse = d_o + kTile * depth;
      delta = lse + kTile;
    }
  };

  static void begin_backward(const Rows<const T>& q, const Rows<const T>& d_o, int rows,
                             int d, double scale, const float* lse, const float* delta,
                             std::byte* to) {
    const BackwardQueries state(to, depth(d));
    pack_rows(q, rows, d, depth(d), state.q);
    pack_rows(d_o, rows, d, depth(d), state.d_o);
    transpose(state.q, depth(d), static_cast<float>(scale), state.q_t);
    transpose(state.d_o, depth(d), 1.0f, state.d_o_t);
    std::fill(std::copy_n(lse, rows, state.lse), state.lse + kTile, 0.0f);
    std::fill(std::copy_n(delta, rows, state.delta), state.delta + kTile, 0.0f);
  }

  template <bool keys_wanted, bool queries_wanted>
  static void backward_tile(const TilePair& pair, int d, double, const std::byte* keys,
                            std::byte* queries, std::byte* key_sums, float* d_q,
                            std::byte* work) {
    const int n = depth(d), columns = padded(pair.queries);
    const auto* const key = reinterpret_cast<const float*>(keys);
    const BackwardQueries state(queries, n);
    auto* const z = reinterpret_cast<float*>(work);
    float* const d_s = z + kTile * kTile;
    multiply_scores(pair, columns, d, key, state.q_t, z);
    multiply<Left::rows>(pair.keys, columns, d, {key + kTile * n, n}, state.d_o_t, kTile,
                         d_s, kTile, false);
    pair.draw_words(0, (columns + 31) / 32 * 32);
    for (int k = 0; k < pair.keys; ++k) {
      score_gradient(pair, k, columns, state, z + k * kTile, d_s + k * kTile);
    }
    if (queries_wanted && pair.d_bias != nullptr) add_diagonals(pair, columns, d_s);
    if constexpr (keys_wanted) {
      auto* const d_k = reinterpret_cast<float*>(key_sums);
      multiply<Left::rows>(pair.keys, n, pair.queries, {d_s, kTile}, state.q, n, d_k, n,
                           true);
      multiply<Left::rows>(pair.keys, n, pair.queries, {z, kTile}, state.d_o, n,
                           d_k + kTile * n, n, true);
    }
    if constexpr (queries_wanted) {
      multiply<Left::columns>(pair.queries, n, pair.keys, {d_s, kTile}, key, n, d_q, n,
                              true);
    }
  }

  // Of one key: from scores and d_o v^T to z = P after dropout but for its scale, and
  // d_s = P (dropout'(d_o v^T) - delta).
  static void score_gradient(const TilePair& pair, int k, int columns,
                             const BackwardQueries& state, float* z, float* d_s) {
    const float *const lse = state.lse, *const delta = state.delta;
    TRIREME_INDEPENDENT_ITERATIONS
    for (int i = 0; i < columns; ++i) z[i] = vector_exp(z[i] - lse[i]);
    if (pair.partial) {
      hide(pair, k, columns, 0.0f, z);
      hide(pair, k, columns, 0.0f, d_s);
    }
    if (pair.words == nullptr) {
      TRIREME_INDEPENDENT_ITERATIONS
      for (int i = 0; i < columns; ++i) d_s[i] = z[i] * (d_s[i] - delta[i]);
      return;
    }
    // Copies, which no store of the loop can be taken to change.
    const std::uint32_t* const words = pair.words + k / 2 * kTile;
    const std::uint32_t threshold = pair.threshold << 16;
    const float keep_scale = pair.keep_scale;
    TRIREME_INDEPENDENT_ITERATIONS
    for (int i = 0; i < columns; ++i) {
      const bool kept = upper_half(words[i], k % 2) >= threshold;
      const float through = kept ? keep_scale * d_s[i] : 0.0f;
      d_s[i] = z[i] * (through - delta[i]);
      z[i] = kept ? z[i] : 0.0f;
    }
  }

  // Adds the diagonals of d_s (keys, kTile) to those of the pair. A sum goes with its
  // diagonal from a key's row to the next, where it is one query further, and leaves
  // behind the last query.
  static void add_diagonals(const TilePair& pair, int columns, float* d_s) {
    constexpr int kVectors = kTile / kFloats;
    FloatVector sum[kVectors] = {};
    for (int k = 0; k < pair.keys; ++k) {
      float* const row = d_s + k * kTile;
      std::fill(row + columns, row + kTile, 0.0f);
      pair.d_bias[2 * kTile - 1 - k] += sum[kVectors - 1][kFloats - 1];
#pragma GCC unroll 16
      for (int v = kVectors - 1; v > 0; --v) {
        sum[v] = moved_by_one(sum[v - 1], sum[v]) + load(row + v * kFloats);
      }
      sum[0] = moved_by_one(FloatVector{}, sum[0]) + load(row);
    }
    float* const left = pair.d_bias + kTile - pair.keys;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      store(load(left + v * kFloats) + sum[v], left + v * kFloats);
    }
  }

  static void store_key_sums(const std::byte* sums, int rows, int d, double scale,
                             float keep_scale, const Rows<T>& d_k, const Rows<T>& d_v) {
    const auto* const sum = reinterpret_cast<const float*>(sums);
    unpack_rows(sum, rows, d, depth(d), static_cast<float>(scale), d_k);
    unpack_rows(sum + kTile * depth(d), rows, d, depth(d), keep_scale, d_v);
  }
  static void store_d_q(const float* sum, int rows, int d, double scale,
                        const Rows<T>& d_q) {
    unpack_rows(sum, rows, d, depth(d), static_cast<float>(scale), d_q);
  }
};

}  // namespace

template <class T>
void forward_by_vectors(const Exec& exec, const Kernel& kernel,
                        const ForwardArguments<T>& arguments) {
  launch_forward<VectorTiles<T>>(exec, kernel, arguments);
}

template <class T>
void backward_by_vectors(const Exec& exec, const BackwardKernels& kernels,
                         const BackwardArguments<T>& arguments) {
  launch_backward<VectorTiles<T>>(exec, kernels, arguments);
}

#define TRIREME_INSTANTIATE(T)                                           \
  template void forward_by_vectors(const Exec&, const Kernel&,           \
                                   const ForwardArguments<T>&);          \
  template void backward_by_vectors(const Exec&, const BackwardKernels&, \
                                    const BackwardArguments<T>&);
TRIREME_FOR_EACH_FAST_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels::impl
