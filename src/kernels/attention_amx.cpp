// kernels/attention_amx.cpp — tiles of attention in bf16, by the matrix registers of
// Intel's CPUs (AMX, since Sapphire Rapids): 16 rows of 64 bytes each, and a product of
// (16, 32) by (32, 16) into (16, 16) floats every 16 cycles.
//
// The right operand of a product holds pairs: word (r, c) is elements (2 r, c) and
// (2 r + 1, c). S^T = K Q^T and the softmax leave P^T in floats, keys down and queries
// across. In bf16 it is the left operand of dV = Z^T dO as it stands, and the right one
// of O^T = V^T Z^T where two rows are interleaved, which unpack instructions do within
// quarters of a vector: the columns of O^T and dQ^T, and of the words of dropout in the
// forward pass, are in the order column_query() until they are stored.
#include "kernels/impl/amx_gemm.hpp"
#include "kernels/impl/attention_tiles.hpp"
#include "kernels/impl/transpose_words.hpp"
#include "kernels/impl/vector_math.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#pragma GCC push_options
#pragma GCC target( \
    "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,bmi2,amx-tile,amx-bf16")

namespace trireme::kernels::impl {

namespace {

using Word = std::uint32_t;  // two bf16

// Query in column `column` of a half tile whose rows were interleaved by unpack
// instructions, 32 queries of it.
constexpr int column_query(int column) {
  const int lane = column % 16;
  return lane / 4 * 8 + column / 16 * 4 + lane % 4;
}

struct WordOrder32 {
  int query[kTile];
  constexpr WordOrder32() : query() {
    for (int c = 0; c < kTile; ++c) query[c] = c / 32 * 32 + column_query(c % 32);
  }
};
constexpr WordOrder32 kColumns;

// 2^y, by a polynomial of relative error 2.6e-6 between 0 and 1 (minimax): a probability
// is rounded to 8 bits. 0 where it is below the smallest number; NaN stays NaN.
inline __m512 exp2_of(__m512 y) {
  const __m512 f = _mm512_reduce_ps(y, _MM_FROUND_TO_NEG_INF);  // y - floor(y)
  __m512 p = _mm512_set1_ps(0x1.bb7cd4p-7f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.aa13f0p-5f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.ee798ap-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.62d166p-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.00002cp+0f));
  return _mm512_scalef_ps(p, y);
}

inline __m512i to_bf16(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// Elements [c, c + 32) of row i, zeros where there are none.
struct RowReader {
  Rows<const bf16> rows;
  int count, d;

  __m512i at(int i, int c) const {
    if (i >= count || c >= d) return _mm512_setzero_si512();
    const int left = d - c;
    const __mmask32 mask = left >= 32 ? ~0u : (1u << left) - 1u;
    return _mm512_maskz_loadu_epi16(mask, rows.row(i) + c);
  }
};

// to (kTile, depth) = rows.
void pack_natural(const RowReader& rows, int depth, bf16* to) {
  for (int i = 0; i < kTile; ++i) {
    for (int c = 0; c < depth; c += 32) {
      _mm512_storeu_si512(to + i * depth + c, rows.at(i, c));
    }
  }
}

// Pairs of rows, interleaved: to (kPairs, depth).
void pack_row_pairs(const RowReader& rows, int depth, Word* to) {
  alignas(64) std::uint16_t low[32], high[32];
  for (int i = 0; i < 16; ++i) {
    low[2 * i] = static_cast<std::uint16_t>(i);
    low[2 * i + 1] = static_cast<std::uint16_t>(i + 32);
    high[2 * i] = static_cast<std::uint16_t>(i + 16);
    high[2 * i + 1] = static_cast<std::uint16_t>(i + 48);
  }
  const __m512i low_of = _mm512_load_si512(low), high_of = _mm512_load_si512(high);
  for (int r = 0; r < kPairs; ++r) {
    for (int c = 0; c < depth; c += 32) {
      const __m512i even = rows.at(2 * r, c), odd = rows.at(2 * r + 1, c);
      _mm512_storeu_si512(to + r * depth + c,
                          _mm512_permutex2var_epi16(even, low_of, odd));
      _mm512_storeu_si512(to + r * depth + c + 16,
                          _mm512_permutex2var_epi16(even, high_of, odd));
    }
  }
}

// Pairs of columns, transposed: to (depth / 2, kTile).
void pack_column_pairs(const RowReader& rows, int depth, Word* to) {
  for (int i = 0; i < kTile; i += 16) {
    for (int c = 0; c < depth; c += 32) {
      __m512i from[16], columns[16];
      for (int r = 0; r < 16; ++r) from[r] = rows.at(i + r, c);
      transpose_words(from, columns);
      for (int r = 0; r < 16; ++r) {
        _mm512_storeu_si512(to + (c / 2 + r) * kTile + i, columns[r]);
      }
    }
  }
}

// The transpose: to (depth, kTile). `pairs` (kPairs, depth) are its rows in pairs.
void pack_transposed(const Word* pairs, int depth, bf16* to) {
  for (int r = 0; r < kPairs; r += 16) {
    for (int c = 0; c < depth; c += 16) {
      __m512i from[16], columns[16];
      for (int i = 0; i < 16; ++i) {
        from[i] = _mm512_loadu_si512(pairs + (r + i) * depth + c);
      }
      transpose_words(from, columns);
      for (int i = 0; i < 16; ++i) {
        _mm512_storeu_si512(to + (c + i) * kTile + 2 * r, columns[i]);
      }
    }
  }
}

// An operand in memory, and the bytes between its rows.
template <class T>
struct Matrix {
  T* data;
  int leading;  // elements
  auto* row(int i) const { return data + static_cast<std::ptrdiff_t>(i) * leading; }
  long stride() const { return leading * static_cast<long>(sizeof(T)); }
};

// What the vector units do while the matrix unit works through a product: words of
// dropout, some steps of them at every step of a product. A processor looks too few
// instructions ahead to find the words behind the product.
struct Beside {
  WordSteps* words = nullptr;
  int steps = 0;
  void operator()() const {
    if (words != nullptr) words->take(steps);
  }
};

// C (32, 32) = or += A (32, 32 k) B (32 k, 32).
inline void multiply_block(int k, Matrix<const bf16> a, Matrix<const Word> b,
                           Matrix<float> c, bool add, const Beside& beside) {
  if (add) {
    _tile_loadd(0, c.data, c.stride());
    _tile_loadd(1, c.data + 16, c.stride());
    _tile_loadd(2, c.row(16), c.stride());
    _tile_loadd(3, c.row(16) + 16, c.stride());
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int p = 0; p < k; ++p) {
    _tile_loadd(4, a.data + 32 * p, a.stride());
    _tile_loadd(6, b.row(16 * p), b.stride());
    _tile_loadd(7, b.row(16 * p) + 16, b.stride());
    beside();
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a.row(16) + 32 * p, a.stride());
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c.data, c.stride());
  _tile_stored(1, c.data + 16, c.stride());
  _tile_stored(2, c.row(16), c.stride());
  _tile_stored(3, c.row(16) + 16, c.stride());
}

// C (m, n) = or += A (m, k) B (k, n), each a multiple of 32.
inline void multiply(int m, int n, int k, Matrix<const bf16> a, Matrix<const Word> b,
                     Matrix<float> c, bool add, const Beside& beside = {}) {
  // g++ does not know that loading a register reads memory.
  asm volatile("" ::: "memory");
  for (int j = 0; j < n; j += 32) {
    for (int i = 0; i < m; i += 32) {
      multiply_block(k / 32, {a.row(i), a.leading}, {b.data + j, b.leading},
                     {c.row(i) + j, c.leading}, add, beside);
    }
  }
}

constexpr int halves(int count) {
  return (count + 31) / 32 * 32;
}

constexpr float kLog2E = 1.44269504088896341f;

// Which of 16 queries from `column` on see a key.
inline __mmask16 seen(const TilePair& pair, int key, int column) {
  const __m512i k = _mm512_set1_epi32(key);
  return _mm512_cmple_epi32_mask(_mm512_loadu_si512(pair.begin + column), k) &
         _mm512_cmplt_epi32_mask(k, _mm512_loadu_si512(pair.end + column));
}

struct AmxTiles {
  using Element = bf16;
  static constexpr const int (&kWordOrder)[kTile] = kColumns.query;

  // The shape of all eight registers, while it lives; a library that shapes them for
  // itself does so anew in each of its calls.
  struct Session {
    Session() {
      struct alignas(64) Shape {
        std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
        std::uint16_t row_bytes[16] = {};
        std::uint8_t rows[16] = {};
      } shape;
      for (int i = 0; i < 8; ++i) {
        shape.row_bytes[i] = 64;
        shape.rows[i] = 16;
      }
      // g++ takes this to read eight bytes of the shape.
      asm volatile("" : : "r"(&shape) : "memory");
      _tile_loadconfig(&shape);
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    ~Session() { _tile_release(); }
  };

  // Scores are scaled where exponentials are taken.
  static float bias_factor(double scale) { return static_cast<float>(1.0 / scale); }
  static int depth(int d) { return halves(d); }
  static std::size_t tile_bytes(int depth) {
    return sizeof(bf16) * static_cast<std::size_t>(kTile * depth);
  }
  static constexpr std::size_t kSquare = sizeof(float) * kTile * kTile;

  // Forward. Keys: k (kTile, depth), v^T (depth, kTile). Queries: column pairs of q^T,
  // o^T (depth, kTile) in floats, maximum and sum of each row. Work: S^T, pairs of P^T.
  static std::size_t forward_key_bytes(int depth) { return 2 * tile_bytes(depth); }
  static std::size_t forward_query_bytes(int depth) {
    return 3 * tile_bytes(depth) + 2 * kTile * sizeof(float);
  }
  static std::size_t forward_work_bytes(int depth) {
    return std::max(kSquare + kSquare / 2, tile_bytes(depth));
  }

  struct Queries {
    Word* q_t;
    float *o_t, *max, *sum;
    Queries(std::byte* memory, int depth) {
      q_t = reinterpret_cast<Word*>(memory);
      o_t = reinterpret_cast<float*>(memory + tile_bytes(depth));
      max = o_t + kTile * depth;
      sum = max + kTile;
    }
  };

  static void load_forward_keys(const Rows<const bf16>& k, const Rows<const bf16>& v,
                                int rows, int d, std::byte* to) {
    const int n = depth(d);
    auto* const key = reinterpret_cast<bf16*>(to);
    auto* const value = key + kTile * n;
    // Pairs of v's rows lie where k's copy comes after.
    pack_row_pairs({v, rows, d}, n, reinterpret_cast<Word*>(key));
    pack_transposed(reinterpret_cast<const Word*>(key), n, value);
    pack_natural({k, rows, d}, n, key);
  }

  static void begin_forward(const Rows<const bf16>& q, int rows, int d, double,
                            std::byte* to) {
    const Queries state(to, depth(d));
    pack_column_pairs({q, rows, d}, depth(d), state.q_t);
    std::fill_n(state.o_t, kTile * depth(d), 0.0f);
    std::fill_n(state.max, kTile, -Kokkos::Experimental::infinity_v<float>);
    std::fill_n(state.sum, kTile, 0.0f);
  }

  static void forward_tile(const TilePair& pair, int d, double scale,
                           const std::byte* keys, std::byte* queries, std::byte* work) {
    const int n = depth(d), rows = halves(pair.keys);
    const auto* const key = reinterpret_cast<const bf16*>(keys);
    const Queries state(queries, n);
    auto* const s = reinterpret_cast<float*>(work);
    auto* const p = reinterpret_cast<Word*>(work + kSquare);
    const auto add_values = [&](int half, const Beside& beside) {
      multiply(n, 32, rows, {key + kTile * n, kTile}, {p + half, kTile},
               {state.o_t + half, kTile}, true, beside);
    };
    const bool has_bias = pair.bias != nullptr;
    if (has_bias) pair.put_bias(rows, s);
    for (int half = 0; half < pair.queries; half += 32) {
      WordSteps words(pair, half, 32);
      multiply(rows, 32, n, {key, n}, {state.q_t + half, kTile}, {s + half, kTile},
               has_bias, {&words, half == 0 ? 2 : 1});
      // Behind the scores of the other half, so that there are products to draw beside.
      if (half > 0) add_values(half - 32, {&words, 1});
      words.take_all();
      softmax(pair, n, half, static_cast<float>(scale) * kLog2E, state, s, p);
    }
    add_values(pair.queries > 32 ? 32 : 0, {});
  }

  // Of 32 queries: scores become pairs of unnormalised probabilities, after dropout but
  // for its scale.
  static void softmax(const TilePair& pair, int n, int half, float scale,
                      const Queries& state, float* s, Word* p) {
    const int rows = halves(pair.keys);
    __m512 from[2], sum[2];
    for (int b = 0; b < 2; ++b) {
      const int column = half + 16 * b;
      from[b] = raise_scores(pair, rows, column, s);
      sum[b] = _mm512_setzero_ps();
    }
    raise(n, half, scale, state, from);
    if (pair.words == nullptr) {
      exponentials<false>(pair, rows, half, scale, from, s, sum, p);
    } else {
      exponentials<true>(pair, rows, half, scale, from, s, sum, p);
    }
    for (int b = 0; b < 2; ++b) {
      float* const total = state.sum + half + 16 * b;
      _mm512_storeu_ps(total, _mm512_add_ps(_mm512_loadu_ps(total), sum[b]));
    }
  }

  // The largest score of each of 16 queries; those of keys that are not seen become minus
  // infinity.
  static __m512 raise_scores(const TilePair& pair, int rows, int column, float* s) {
    const __m512 none = _mm512_set1_ps(-Kokkos::Experimental::infinity_v<float>);
    __m512 largest[2] = {none, none};
    for (int k = 0; k < rows; k += 2) {
      for (int e = 0; e < 2; ++e) {
        float* const at = s + (k + e) * kTile + column;
        __m512 score = _mm512_loadu_ps(at);
        if (pair.partial) {
          score = _mm512_mask_mov_ps(none, seen(pair, k + e, column), score);
          _mm512_storeu_ps(at, score);
        }
        largest[e] = _mm512_max_ps(score, largest[e]);  // passes NaN over
      }
    }
    return _mm512_max_ps(largest[0], largest[1]);
  }

  // Exponents are taken from a maximum seen before as long as none is above it by more
  // than 2^kSlack: no danger to a sum, and o is seldom rescaled. `from` holds the largest
  // scores and becomes what to subtract.
  static constexpr float kSlack = 10.0f;
  static void raise(int n, int half, float scale, const Queries& state,
                    __m512 (&from)[2]) {
    const __m512 none = _mm512_set1_ps(-Kokkos::Experimental::infinity_v<float>);
    const __m512 slack = _mm512_set1_ps(kSlack / scale);
    __m512 rescale[2];
    unsigned raised = 0;
    for (int b = 0; b < 2; ++b) {
      float* const max = state.max + half + 16 * b;
      float* const sum = state.sum + half + 16 * b;
      const __m512 before = _mm512_loadu_ps(max);
      const __mmask16 above =
          _mm512_cmp_ps_mask(from[b], _mm512_add_ps(before, slack), _CMP_GT_OQ);
      const __m512 after = _mm512_mask_mov_ps(before, above, from[b]);
      const __mmask16 had_any = _mm512_cmp_ps_mask(before, none, _CMP_NEQ_OQ);
      raised |= above & had_any;
      rescale[b] = _mm512_mask_mov_ps(
          _mm512_set1_ps(1.0f), above & had_any,
          exp2_of(_mm512_mul_ps(_mm512_sub_ps(before, after), _mm512_set1_ps(scale))));
      _mm512_storeu_ps(max, after);
      _mm512_storeu_ps(sum, _mm512_mul_ps(_mm512_loadu_ps(sum), rescale[b]));
      from[b] = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(after, none, _CMP_NEQ_OQ),
                                    _mm512_mul_ps(after, _mm512_set1_ps(scale)));
    }
    if (raised != 0) rescale_outputs(n, half, rescale, state.o_t);
  }

  static void rescale_outputs(int n, int half, const __m512 (&rescale)[2], float* o_t) {
    alignas(64) std::int32_t order[32];
    for (int c = 0; c < 32; ++c) order[c] = column_query(c);
    __m512 factor[2];
    for (int b = 0; b < 2; ++b) {
      factor[b] = _mm512_permutex2var_ps(rescale[0], _mm512_load_si512(order + 16 * b),
                                         rescale[1]);
    }
    for (int c = 0; c < n; ++c) {
      for (int b = 0; b < 2; ++b) {
        float* const at = o_t + c * kTile + half + 16 * b;
        _mm512_storeu_ps(at, _mm512_mul_ps(_mm512_loadu_ps(at), factor[b]));
      }
    }
  }

  template <bool dropped>
  static void exponentials(const TilePair& pair, int rows, int half, float scale,
                           const __m512 (&from)[2], const float* s, __m512 (&sum)[2],
                           Word* p) {
    const __m512 factor = _mm512_set1_ps(scale);
    const __m512i threshold =
        _mm512_set1_epi16(static_cast<std::int16_t>(pair.threshold));
    for (int k = 0; k < rows; k += 2) {
      __m512i row[2];
      for (int e = 0; e < 2; ++e) {
        __m512 value[2];
        for (int b = 0; b < 2; ++b) {
          const __m512 score = _mm512_loadu_ps(s + (k + e) * kTile + half + 16 * b);
          value[b] = exp2_of(_mm512_fmsub_ps(score, factor, from[b]));
          sum[b] = _mm512_add_ps(sum[b], value[b]);
        }
        row[e] = to_bf16(value[0], value[1]);
      }
      __m512i pairs[2] = {_mm512_unpacklo_epi16(row[0], row[1]),
                          _mm512_unpackhi_epi16(row[0], row[1])};
      for (int b = 0; b < 2; ++b) {
        const int at = k / 2 * kTile + half + 16 * b;
        if constexpr (dropped) {
          const __mmask32 kept =
              _mm512_cmpge_epu16_mask(_mm512_loadu_si512(pair.words + at), threshold);
          pairs[b] = _mm512_maskz_mov_epi16(kept, pairs[b]);
        }
        _mm512_storeu_si512(p + at, pairs[b]);
      }
    }
  }

  static void end_forward(std::byte* queries, int rows, int d, double scale,
                          float keep_scale, const Rows<bf16>& o, float* lse) {
    const Queries state(queries, depth(d));
    alignas(64) float factor[kTile];
    for (int i = 0; i < kTile; ++i) {
      factor[i] = state.sum[i] == 0.0f ? 0.0f : keep_scale / state.sum[i];
      state.max[i] = static_cast<float>(scale) * state.max[i] + vector_log(state.sum[i]);
    }
    std::copy_n(state.max, rows, lse);
    store_transposed(state.o_t, rows, d, factor, o);
  }

  // rows = factor[query] * sums^T; sums (depth, kTile), their columns in the order
  // column_query().
  static void store_transposed(const float* sums, int rows, int d, const float* factor,
                               const Rows<bf16>& to) {
    alignas(64) std::uint16_t interleave[32];
    for (int i = 0; i < 32; ++i) {
      interleave[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * 16);
    }
    const __m512i pairs_of = _mm512_load_si512(interleave);
    for (int column = 0; column < kTile; column += 16) {
      alignas(64) float by[16];
      for (int l = 0; l < 16; ++l) by[l] = factor[kColumns.query[column + l]];
      const __m512 scaled = _mm512_load_ps(by);
      for (int c = 0; c < d; c += 32) {
        __m512i from[16], row[16];
        for (int i = 0; i < 16; ++i) {
          const float* const at = sums + (c + 2 * i) * kTile + column;
          from[i] = _mm512_permutexvar_epi16(
              pairs_of, to_bf16(_mm512_mul_ps(_mm512_loadu_ps(at), scaled),
                                _mm512_mul_ps(_mm512_loadu_ps(at + kTile), scaled)));
        }
        transpose_words(from, row);
        const __mmask32 mask = d - c >= 32 ? ~0u : (1u << (d - c)) - 1u;
        for (int l = 0; l < 16; ++l) {
          const int query = kColumns.query[column + l];
          if (query < rows) _mm512_mask_storeu_epi16(to.row(query) + c, mask, row[l]);
        }
      }
    }
  }

  // Backward. Keys: k, v (kTile, depth), k^T (depth, kTile); sums: d_k, d_v in floats.
  // Queries: column pairs of q^T and d_o^T, row pairs of q and d_o, minus lse and minus
  // delta. Work: S^T, (d_o v^T)^T, z^T, d_s^T, pairs of d_s^T. d_q: d_q^T.
  static std::size_t backward_key_bytes(int depth) { return 3 * tile_bytes(depth); }
  static std::size_t key_sum_bytes(int depth) { return 4 * tile_bytes(depth); }
  static std::size_t backward_query_bytes(int depth) {
    return 4 * tile_bytes(depth) + 2 * kTile * sizeof(float);
  }
  static std::size_t backward_work_bytes(int) { return 2 * kSquare + 3 * kSquare / 2; }

  static void load_backward_keys(const Rows<const bf16>& k, const Rows<const bf16>& v,
                                 int rows, int d, std::byte* to) {
    const int n = depth(d);
    auto* const key = reinterpret_cast<bf16*>(to);
    auto* const value = key + kTile * n;
    auto* const key_t = value + kTile * n;
    // Pairs of k's rows lie where v's copy comes after.
    pack_row_pairs({k, rows, d}, n, reinterpret_cast<Word*>(value));
    pack_transposed(reinterpret_cast<const Word*>(value), n, key_t);
    pack_natural({k, rows, d}, n, key);
    pack_natural({v, rows, d}, n, value);
  }

  struct BackwardQueries {
    Word *q_t, *d_o_t, *q, *d_o;
    float *lse, *delta;  // minus log2(e) times lse, minus delta
    BackwardQueries(std::byte* memory, int depth) {
      q_t = reinterpret_cast<Word*>(memory);
      d_o_t = q_t + kPairs * depth;
      q = d_o_t + kPairs * depth;
      d_o = q + kPairs * depth;
      lse = reinterpret_cast<float*>(d_o + kPairs * depth);
      delta = lse + kTile;
    }
  };

  static void begin_backward(const Rows<const bf16>& q, const Rows<const bf16>& d_o,
                             int rows, int d, double, const float* lse,
                             const float* delta, std::byte* to) {
    const int n = depth(d);
    const BackwardQueries state(to, n);
    pack_column_pairs({q, rows, d}, n, state.q_t);
    pack_column_pairs({d_o, rows, d}, n, state.d_o_t);
    pack_row_pairs({q, rows, d}, n, state.q);
    pack_row_pairs({d_o, rows, d}, n, state.d_o);
    for (int i = 0; i < kTile; ++i) {
      state.lse[i] = i < rows ? -kLog2E * lse[i] : 0.0f;
      state.delta[i] = i < rows ? -delta[i] : 0.0f;
    }
  }

  struct BackwardWork {
    float *s, *g;
    bf16 *z, *d_s;
    Word* d_s_pairs;
    explicit BackwardWork(std::byte* memory) {
      s = reinterpret_cast<float*>(memory);
      g = s + kTile * kTile;
      z = reinterpret_cast<bf16*>(g + kTile * kTile);
      d_s = z + kTile * kTile;
      d_s_pairs = reinterpret_cast<Word*>(d_s + kTile * kTile);
    }
  };

  template <bool keys_wanted, bool queries_wanted>
  static void backward_tile(const TilePair& pair, int d, double scale,
                            const std::byte* keys, std::byte* queries,
                            std::byte* key_sums, float* d_q, std::byte* memory) {
    const int n = depth(d), rows = halves(pair.keys), columns = halves(pair.queries);
    const auto* const key = reinterpret_cast<const bf16*>(keys);
    const bf16 *const value = key + kTile * n, *const key_t = value + kTile * n;
    const BackwardQueries state(queries, n);
    const BackwardWork work(memory);
    const float factor = static_cast<float>(scale) * kLog2E;
    const bool has_bias = pair.bias != nullptr;
    if (has_bias) pair.put_bias(rows, work.s);
    for (int half = 0; half < columns; half += 32) {
      WordSteps words(pair, half, 32);
      const Beside beside{&words, 1};
      multiply(rows, 32, n, {key, n}, {state.q_t + half, kTile}, {work.s + half, kTile},
               has_bias, beside);
      multiply(rows, 32, n, {value, n}, {state.d_o_t + half, kTile},
               {work.g + half, kTile}, false, beside);
      words.take_all();
      const int kind = (pair.partial ? 1 : 0) + (pair.words != nullptr ? 2 : 0);
      if (queries_wanted && has_bias) {
        score_gradients<true>(kind, pair, rows, half, factor, state, work);
      } else {
        score_gradients<false>(kind, pair, rows, half, factor, state, work);
      }
    }
    if (queries_wanted && has_bias) add_diagonals(pair, rows, columns, work.g);
    if constexpr (keys_wanted) {
      auto* const d_k = reinterpret_cast<float*>(key_sums);
      multiply(rows, n, columns, {work.d_s, kTile}, {state.q, n}, {d_k, n}, true);
      multiply(rows, n, columns, {work.z, kTile}, {state.d_o, n}, {d_k + kTile * n, n},
               true);
    }
    if constexpr (queries_wanted) {
      multiply(n, columns, rows, {key_t, kTile}, {work.d_s_pairs, kTile}, {d_q, kTile},
               true);
    }
  }

  // kind: 1 of a partial pair, and 2 more with dropout.
  template <bool kept>
  static void score_gradients(int kind, const TilePair& pair, int rows, int half,
                              float scale, const BackwardQueries& state,
                              const BackwardWork& work) {
    switch (kind) {
      case 0:
        return score_gradients<false, false, kept>(pair, rows, half, scale, state, work);
      case 1:
        return score_gradients<true, false, kept>(pair, rows, half, scale, state, work);
      case 2:
        return score_gradients<false, true, kept>(pair, rows, half, scale, state, work);
      default:
        return score_gradients<true, true, kept>(pair, rows, half, scale, state, work);
    }
  }

  // Of 32 queries: z = P after dropout but for its scale, and d_s = P (dropout'(d_o v^T)
  // - delta), which is left in g before it is rounded if it is to be kept.
  template <bool partial, bool dropped, bool keeps_d_s>
  static void score_gradients(const TilePair& pair, int rows, int half, float scale,
                              const BackwardQueries& state, const BackwardWork& work) {
    const __m512 factor = _mm512_set1_ps(scale);
    const __m512 keep_scale = _mm512_set1_ps(pair.keep_scale);
    const __m512i threshold = _mm512_set1_epi32(static_cast<int>(pair.threshold << 16));
    const __m512 lse[2] = {_mm512_loadu_ps(state.lse + half),
                           _mm512_loadu_ps(state.lse + half + 16)};
    const __m512 delta[2] = {_mm512_loadu_ps(state.delta + half),
                             _mm512_loadu_ps(state.delta + half + 16)};
    for (int k = 0; k < rows; k += 2) {
      __m512i gradient[2];
      for (int e = 0; e < 2; ++e) {
        __m512 z[2], d_s[2];
        for (int b = 0; b < 2; ++b) {
          const int at = (k + e) * kTile + half + 16 * b;
          __m512 p =
              exp2_of(_mm512_fmadd_ps(_mm512_loadu_ps(work.s + at), factor, lse[b]));
          __mmask16 visible = 0xffff, kept = 0xffff;
          if constexpr (partial) {
            visible = seen(pair, k + e, half + 16 * b);
            p = _mm512_maskz_mov_ps(visible, p);
          }
          const __m512 g = _mm512_loadu_ps(work.g + at);
          __m512 through;
          if constexpr (dropped) {
            __m512i words =
                _mm512_loadu_si512(pair.words + k / 2 * kTile + half + 16 * b);
            if (e == 0) words = _mm512_slli_epi32(words, 16);
            kept = _mm512_cmpge_epu32_mask(words, threshold);
            through = _mm512_mask3_fmadd_ps(g, keep_scale, delta[b], kept);
            z[b] = _mm512_maskz_mov_ps(kept, p);
          } else {
            through = _mm512_add_ps(g, delta[b]);
            z[b] = p;
          }
          // Of a key that is not seen, g may be anything.
          d_s[b] = partial ? _mm512_maskz_mul_ps(visible, p, through)
                           : _mm512_mul_ps(p, through);
        }
        const int row = (k + e) * kTile + half;
        if constexpr (keeps_d_s) {
          _mm512_storeu_ps(work.g + row, d_s[0]);
          _mm512_storeu_ps(work.g + row + 16, d_s[1]);
        }
        gradient[e] = to_bf16(d_s[0], d_s[1]);
        _mm512_storeu_si512(work.z + row, to_bf16(z[0], z[1]));
        _mm512_storeu_si512(work.d_s + row, gradient[e]);
      }
      Word* const pairs = work.d_s_pairs + k / 2 * kTile + half;
      _mm512_storeu_si512(pairs, _mm512_unpacklo_epi16(gradient[0], gradient[1]));
      _mm512_storeu_si512(pairs + 16, _mm512_unpackhi_epi16(gradient[0], gradient[1]));
    }
  }

  // Adds the diagonals of d_s (rows, kTile) to those of the pair, as VectorTiles does. Of
  // keys and queries that are not there it is zero, but for half a tile that was not
  // computed.
  static void add_diagonals(const TilePair& pair, int rows, int columns,
                            const float* d_s) {
    const __m512 none = _mm512_setzero_ps();
    const auto moved_by_one = [](__m512 low, __m512 high) {
      return _mm512_castsi512_ps(
          _mm512_alignr_epi32(_mm512_castps_si512(high), _mm512_castps_si512(low), 15));
    };
    __m512 sum[4] = {none, none, none, none};
    for (int k = 0; k < rows; ++k) {
      const float* const row = d_s + k * kTile;
      const bool is_whole = columns > 32;
      pair.d_bias[2 * kTile - 1 - k] +=
          _mm512_cvtss_f32(_mm512_permutexvar_ps(_mm512_set1_epi32(15), sum[3]));
      const __m512 values[4] = {_mm512_loadu_ps(row), _mm512_loadu_ps(row + 16),
                                is_whole ? _mm512_loadu_ps(row + 32) : none,
                                is_whole ? _mm512_loadu_ps(row + 48) : none};
      for (int v = 3; v > 0; --v) {
        sum[v] = _mm512_add_ps(moved_by_one(sum[v - 1], sum[v]), values[v]);
      }
      sum[0] = _mm512_add_ps(moved_by_one(none, sum[0]), values[0]);
    }
    float* const left = pair.d_bias + kTile - rows;
    for (int v = 0; v < 4; ++v) {
      float* const at = left + 16 * v;
      _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), sum[v]));
    }
  }

  // rows = factor * sums (kTile, depth).
  static void store_rows(const float* sums, int rows, int d, float factor,
                         const Rows<bf16>& to) {
    const __m512 by = _mm512_set1_ps(factor);
    for (int i = 0; i < rows; ++i) {
      for (int c = 0; c < d; c += 32) {
        const float* const at = sums + i * depth(d) + c;
        const __mmask32 mask = d - c >= 32 ? ~0u : (1u << (d - c)) - 1u;
        _mm512_mask_storeu_epi16(to.row(i) + c, mask,
                                 to_bf16(_mm512_mul_ps(_mm512_loadu_ps(at), by),
                                         _mm512_mul_ps(_mm512_loadu_ps(at + 16), by)));
      }
    }
  }
  static void store_key_sums(const std::byte* sums, int rows, int d, double scale,
                             float keep_scale, const Rows<bf16>& d_k,
                             const Rows<bf16>& d_v) {
    const auto* const sum = reinterpret_cast<const float*>(sums);
    store_rows(sum, rows, d, static_cast<float>(scale), d_k);
    store_rows(sum + kTile * depth(d), rows, d, keep_scale, d_v);
  }
  static void store_d_q(const float* sum, int rows, int d, double scale,
                        const Rows<bf16>& d_q) {
    float factor[kTile];
    std::fill_n(factor, kTile, static_cast<float>(scale));
    store_transposed(sum, rows, d, factor, d_q);
  }
};

}  // namespace

bool has_bf16_matrices() {
  static const bool has = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && may_use_amx();
  }();
  return has;
}

void forward_by_matrices(const Exec& exec, const Kernel& kernel,
                         const ForwardArguments<bf16>& arguments) {
  launch_forward<AmxTiles>(exec, kernel, arguments);
}

void backward_by_matrices(const Exec& exec, const BackwardKernels& kernels,
                          const BackwardArguments<bf16>& arguments) {
  launch_backward<AmxTiles>(exec, kernels, arguments);
}

}  // namespace trireme::kernels::impl

#pragma GCC pop_options

#else

#include "base/error.hpp"

namespace trireme::kernels::impl {

bool has_bf16_matrices() {
  return false;
}
void forward_by_matrices(const Exec&, const Kernel&, const ForwardArguments<bf16>&) {
  TRIREME_REQUIRE(false, "this build has no matrix registers");
}
void backward_by_matrices(const Exec&, const BackwardKernels&,
                          const BackwardArguments<bf16>&) {
  TRIREME_REQUIRE(false, "this build has no matrix registers");
}

}  // namespace trireme::kernels::impl

#endif
