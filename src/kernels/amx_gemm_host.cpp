// kernels/amx_gemm_host.cpp — products of bf16 on matrix tiles; see impl/amx_gemm.hpp.
//
// A tile is 16 rows of 64 bytes. One instruction adds to a tile of C, 16 x 16 floats, the
// product of a tile of A (16 rows, 32 values of k) and one of B, in which a row has two
// values of k for each of 16 columns: (k, k + 1) of column 0, (k, k + 1) of column 1 ...
// So both operands are matrices of pairs along k: A has an index of its own and then the
// pair, B the pair and then the index. Each is stored by rows of k or by rows of its own
// index, which makes four ways to pack a tile, out of two steps: interleaving two rows
// (where k is not contiguous) and transposing 16 x 16 pairs (where what comes first is
// not what the tile wants).
//
// A part of C is computed by one thread. It packs the part's columns of B, by up to 1024
// of k (kChunk) into its second-level cache, and then goes through the rows, 32 at a
// time:
//
//   for 1024 of k                      B: 512 columns packed, 1 MiB
//     for 128 rows, or 32              A: packed, or read in place
//       for 32 of them                 the next 32 are asked for where rows have k
//         for 256 of k (kNearDepth)          A: 16 KiB in the first-level cache
//           for each of 16 x 32 columns  4 tiles of C, 8 x 4 instructions; 16 KiB of B
//         after the last k: bias, sums with C and residual, rounding, activation
//
// Sums that are not complete lie as tiles in the workspace: of the 32 rows; of all rows
// of the part where k has several chunks. Order of the sums: k ascending, whatever the
// part, so that the bits do not depend on the number of threads. Example: y (1024, 2304)
// = x (1024, 768) W^T is cut into 6 parts of columns on two threads.
//
// The functions carry their instruction sets as an attribute, so that the rest of the
// program can be built for any processor.
#include <immintrin.h>
#include <oneapi/dnnl/dnnl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/types.hpp"
#include "kernels/impl/amx_gemm.hpp"
#include "kernels/impl/transpose_words.hpp"

// In front of functions and lambdas that use vectors or tiles.
#define TRIREME_AMX \
  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16")))

namespace trireme::kernels::impl {
namespace {

constexpr index_t kEdge = 32;         // rows and columns of C at a time: 2 x 2 tiles
constexpr index_t kTileBytes = 1024;  // of every tile
constexpr index_t kStep = 32;         // of k: one tile deep
constexpr index_t kNearDepth = 256;   // of k, for which 32 rows of A stay close
constexpr index_t kChunk = 1024;      // of k, for which B is packed
constexpr index_t kGroup = 4;         // blocks of 32 rows of A, packed at a time
constexpr index_t kMaxStrips = 16;    // of B, 32 columns each
constexpr index_t kMaxBlocks = 32;    // of 32 rows, where sums of all rows are kept
constexpr index_t kStripBytes = kChunk / kStep * 2 * kTileBytes;
static_assert((kMaxStrips + kGroup) * kStripBytes +
                  kMaxBlocks * kMaxStrips * 4 * kTileBytes <=
              static_cast<index_t>(kAmxWorkspaceBytes));

// The library's intrinsics do not tell the compiler that tiles are read from memory.
TRIREME_AMX inline void stores_are_done() {
  asm volatile("" ::: "memory");
}

TRIREME_AMX void configure_tiles() {
  struct Configuration {
    std::uint8_t palette = 1, start_row = 0;
    std::array<std::uint8_t, 14> reserved{};
    std::array<std::uint16_t, 16> row_bytes{};
    std::array<std::uint8_t, 16> rows{};
  };
  static_assert(sizeof(Configuration) == 64);
  alignas(64) Configuration configuration;
  std::fill_n(configuration.row_bytes.begin(), 8, 64);
  std::fill_n(configuration.rows.begin(), 8, 16);
  stores_are_done();
  _tile_loadconfig(&configuration);
}

TRIREME_AMX inline void store_tile(const __m512i* rows, std::byte* tile) {
  for (int i = 0; i < 16; ++i) _mm512_store_si512(tile + i * 64, rows[i]);
}

TRIREME_AMX inline __mmask32 first_of_32(index_t count) {
  return count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
}
TRIREME_AMX inline __mmask16 first_of_16(index_t count) {
  return static_cast<__mmask16>(first_of_32(std::clamp<index_t>(count, 0, 16)));
}

enum class Tile { a, b };

// Two tiles, of 32 indices and 32 of k, from rows of k: x has element (index, k) at
// index * leading + k. What is beyond `count` indices and `depth` of k is zero.
template <Tile tile>
TRIREME_AMX inline void pack_step_of_rows(const bf16* x, index_t leading, index_t count,
                                          index_t depth, std::byte* to) {
  const __mmask32 mask = first_of_32(depth);
  for (index_t half = 0; half < 2; ++half, to += kTileBytes) {
    __m512i r[16];
    for (index_t i = 0; i < 16; ++i) {
      const index_t index = half * 16 + i;
      r[i] = index < count ? _mm512_maskz_loadu_epi16(mask, x + index * leading)
                           : _mm512_setzero_si512();
    }
    if (tile == Tile::b) transpose_words(r, r);
    store_tile(r, to);
  }
}

// The same where x has element (index, k) at k * leading + index.
template <Tile tile>
TRIREME_AMX inline void pack_step_of_columns(const bf16* x, index_t leading,
                                             index_t count, index_t depth,
                                             std::byte* to) {
  // Words 0 to 15, or 16 to 31, of two rows in turn.
  alignas(64) constexpr std::uint16_t kLow[] = {
      0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  const __mmask32 mask = first_of_32(count);
  const auto row = [&](index_t k) TRIREME_AMX {
    return k < depth ? _mm512_maskz_loadu_epi16(mask, x + k * leading)
                     : _mm512_setzero_si512();
  };
  __m512i first[16], second[16];
  for (index_t pair = 0; pair < 16; ++pair) {
    const __m512i even = row(2 * pair), odd = row(2 * pair + 1);
    first[pair] = _mm512_permutex2var_epi16(even, low, odd);
    second[pair] = _mm512_permutex2var_epi16(even, high, odd);
  }
  if (tile == Tile::a) {
    transpose_words(first, first);
    transpose_words(second, second);
  }
  store_tile(first, to);
  store_tile(second, to + kTileBytes);
}

// `count` indices of an operand by `depth` of k: strips of 32 indices, kStripBytes apart,
// two tiles a step. `has_k_rows`: rows of k. Goes along rows as they are stored.
template <Tile tile>
TRIREME_AMX void pack(const bf16* x, index_t leading, bool has_k_rows, index_t count,
                      index_t depth, std::byte* to) {
  const auto step_to = [&](index_t index, index_t k) {
    return to + index / kEdge * kStripBytes + k / kStep * 2 * kTileBytes;
  };
  if (has_k_rows) {
    for (index_t i = 0; i < count; i += kEdge) {
      for (index_t k = 0; k < depth; k += kStep) {
        pack_step_of_rows<tile>(x + i * leading + k, leading, count - i, depth - k,
                                step_to(i, k));
      }
    }
    return;
  }
  for (index_t k = 0; k < depth; k += kStep) {
    for (index_t i = 0; i < count; i += kEdge) {
      pack_step_of_columns<tile>(x + k * leading + i, leading, count - i, depth - k,
                                 step_to(i, k));
    }
  }
}

// Where 32 rows of A lie: the upper of two tiles, from it to the lower one, from one step
// to the next, and from row to row of a tile, in bytes.
struct StripOfA {
  const std::byte* upper;
  index_t to_lower, to_next, row_bytes;
};
StripOfA packed_strip(const std::byte* tiles) {
  return {tiles, kTileBytes, 2 * kTileBytes, 64};
}
StripOfA strip_in_place(const bf16* rows, index_t leading) {
  const index_t row_bytes = leading * static_cast<index_t>(sizeof(bf16));
  return {reinterpret_cast<const std::byte*>(rows), 16 * row_bytes, 64, row_bytes};
}

// Rows of A that are multiplied next, asked for from memory in time: a line of each of
// `rows` at every step of k.
struct Ahead {
  const std::byte* from;
  index_t row_bytes, rows;
};

// sums (4 tiles: 2 x 2) = or += A B over `steps` of k.
TRIREME_AMX inline void multiply(const StripOfA& a, const std::byte* b, index_t steps,
                                 bool is_first, std::byte* sums, Ahead ahead) {
  if (is_first) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, 64);
    _tile_loadd(1, sums + kTileBytes, 64);
    _tile_loadd(2, sums + 2 * kTileBytes, 64);
    _tile_loadd(3, sums + 3 * kTileBytes, 64);
  }
  const std::byte* upper = a.upper;
  const std::byte* lower = a.upper + a.to_lower;
  for (index_t step = 0; step < steps; ++step) {
    _tile_loadd(6, b, 64);
    _tile_loadd(4, upper, a.row_bytes);
    _tile_loadd(7, b + kTileBytes, 64);
    _tile_loadd(5, lower, a.row_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    for (index_t row = 0; row < ahead.rows; ++row) {
      _mm_prefetch(ahead.from + row * ahead.row_bytes, _MM_HINT_T1);
    }
    ahead.from += 64;
    upper += a.to_next;
    lower += a.to_next;
    b += 2 * kTileBytes;
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + kTileBytes, 64);
  _tile_stored(2, sums + 2 * kTileBytes, 64);
  _tile_stored(3, sums + 3 * kTileBytes, 64);
}

TRIREME_AMX inline __m512 load_bf16(const bf16* x, __mmask16 mask) {
  const __m512i words = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, x));
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
TRIREME_AMX inline void store_bf16(bf16* x, __mmask16 mask, __m512 values) {
  _mm256_mask_storeu_epi16(x, mask, (__m256i)_mm512_cvtneps_pbh(values));
}

// Of a part: 32 columns each.
index_t strips_of(const PartOfC& part) {
  return ceil_divide(part.columns(), kEdge);
}

// Whether 64 bytes at `to` are a line of its own.
inline bool is_line(const void* to) {
  return reinterpret_cast<std::uintptr_t>(to) % 64 == 0;
}

// Stores that go past the caches, for what is not read soon: memory needs not be read
// before a line of it is written. They take whole lines.
TRIREME_AMX inline void store_far(float* to, __mmask16 mask, __m512 values) {
  if (mask == 0xffff && is_line(to)) {
    _mm512_stream_ps(to, values);
  } else {
    _mm512_mask_storeu_ps(to, mask, values);
  }
}

// Columns [column, column + 16), or those of `mask`, of 32.
struct Lanes {
  __m512 low, high;
};
struct LaneMasks {
  explicit LaneMasks(index_t columns)
      : low(first_of_16(columns)), high(first_of_16(columns - 16)) {}
  __mmask16 low, high;
};
TRIREME_AMX inline Lanes plus(const Lanes& z, const bf16* x, const LaneMasks& mask) {
  return {_mm512_add_ps(z.low, load_bf16(x, mask.low)),
          _mm512_add_ps(z.high, load_bf16(x + 16, mask.high))};
}

// Up to 32 elements of a row of z, from complete sums, to where z goes.
TRIREME_AMX inline void finish_32(const FusedProduct<bf16>& task, index_t row,
                                  index_t column, const LaneMasks& mask,
                                  const std::byte* sums) {
  Lanes z{_mm512_load_ps(sums), _mm512_load_ps(sums + kTileBytes)};
  if (task.bias != nullptr) z = plus(z, task.bias + column, mask);
  if (task.residual != nullptr) {
    z = plus(z, task.residual + row * task.ld_residual + column, mask);
  }
  const bool adds = task.product.accumulate == Accumulate::yes;
  const index_t at = row * task.product.ldc + column;
  if (task.is_c_float) {
    float* const c = static_cast<float*>(task.c) + at;
    if (adds) {
      _mm512_mask_storeu_ps(c, mask.low,
                            _mm512_add_ps(z.low, _mm512_maskz_loadu_ps(mask.low, c)));
      _mm512_mask_storeu_ps(
          c + 16, mask.high,
          _mm512_add_ps(z.high, _mm512_maskz_loadu_ps(mask.high, c + 16)));
    } else {
      store_far(c, mask.low, z.low);
      store_far(c + 16, mask.high, z.high);
    }
    return;
  }
  bf16* const c = static_cast<bf16*>(task.c) + at;
  if (adds) z = plus(z, c, mask);
  const bool is_kept = task.pre_activation != nullptr;
  bf16* const to =
      is_kept ? task.pre_activation + row * task.ld_pre_activation + column : c;
  store_bf16(to, mask.low, z.low);
  store_bf16(to + 16, mask.high, z.high);
}

// Rows [row, row + rows) of a part whose sums are complete.
TRIREME_AMX void finish_rows(const FusedProduct<bf16>& task, const PartOfC& part,
                             index_t row, index_t rows, const std::byte* sums) {
  for (index_t strip = 0; strip < strips_of(part); ++strip, sums += 4 * kTileBytes) {
    const index_t column = part.column + strip * kEdge;
    const LaneMasks mask(part.column_end - column);
    for (index_t i = 0; i < rows; ++i) {
      finish_32(task, row + i, column, mask,
                sums + i / 16 * 2 * kTileBytes + i % 16 * 64);
    }
  }
  if (task.activate == nullptr) return;
  for (index_t i = row; i < row + rows; ++i) {
    bf16* const c = static_cast<bf16*>(task.c) + i * task.product.ldc + part.column;
    const bf16* const z =
        task.pre_activation == nullptr
            ? c
            : task.pre_activation + i * task.ld_pre_activation + part.column;
    task.activate(z, c, part.columns());
  }
}

// Whether rows of A are read in place: they lie as tiles want them, whole tiles are
// there, and the rows of a tile do not all fall into a few sets of the first-level cache.
bool is_in_place(const Product& p, index_t rows, index_t depth) {
  constexpr index_t kFewSets = 512;  // elements from row to row, or a multiple
  return p.transpose_a == Transpose::no && rows % kEdge == 0 && depth % kStep == 0 &&
         p.lda % kFewSets != 0;
}

// sums = or += rows of A, packed or not, by the strips of B, over `depth` of k. a: of the
// first row and k.
TRIREME_AMX void multiply_strips(const StripOfA& a, const std::byte* b, index_t strips,
                                 index_t depth, bool is_first, std::byte* sums,
                                 const Ahead& ahead) {
  for (index_t k = 0; k < depth; k += kNearDepth) {
    const index_t steps = ceil_divide(std::min(kNearDepth, depth - k), kStep);
    StripOfA from = a;
    from.upper += k / kStep * a.to_next;
    const std::byte* from_b = b + k / kStep * 2 * kTileBytes;
    for (index_t s = 0; s < strips; ++s, from_b += kStripBytes) {
      const index_t row = s * ahead.rows / strips;
      const Ahead rows{
          ahead.from + row * ahead.row_bytes + k * static_cast<index_t>(sizeof(bf16)),
          ahead.row_bytes, (s + 1) * ahead.rows / strips - row};
      multiply(from, from_b, steps, is_first && k == 0, sums + s * 4 * kTileBytes, rows);
    }
  }
}

// k is cut evenly into chunks: the same for every part.
index_t chunk_of(index_t k) {
  return ceil_divide(ceil_divide(k, ceil_divide(k, kChunk)), kStep) * kStep;
}

}  // namespace

bool may_use_amx() {
  static const bool may = [] {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx512bf16") || !this_cpu().has_amx_bf16) return false;
    // One switch, ONEDNN_MAX_CPU_ISA, governs all products, of attention, too.
    constexpr int kAmx = dnnl_cpu_isa_avx512_core_amx;
    if ((dnnl_get_effective_cpu_isa() & kAmx) != kAmx) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2)
    return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return may;
}

std::vector<PartOfC> amx_parts(const Product& product, index_t threads) {
  const index_t rows = ceil_divide(product.m, kEdge);
  const index_t columns = ceil_divide(product.n, kEdge);
  // Rough costs in cycles: of 4 products of tiles with B in the second-level cache, of
  // packing 2 tiles, of reading them in place. Only their proportions matter, and only
  // for the speed.
  constexpr double kProducts = 90, kPack = 200, kInPlace = 20;
  const double pack_a = product.transpose_a == Transpose::yes ? kPack : kInPlace;
  const index_t least_rows = product.k > kChunk ? ceil_divide(rows, kMaxBlocks) : 1;
  const index_t least_columns = ceil_divide(columns, kMaxStrips);
  index_t row_parts = 1, column_parts = 1;
  double least = std::numeric_limits<double>::infinity();
  for (index_t c = least_columns; c <= std::min(columns, least_columns + threads); ++c) {
    for (index_t r = least_rows; r <= std::min(rows, least_rows + threads); ++r) {
      const auto height = static_cast<double>(ceil_divide(rows, r));
      const auto width = static_cast<double>(ceil_divide(columns, c));
      const double cost = static_cast<double>(ceil_divide(r * c, threads)) *
                          (height * width * kProducts + height * pack_a + width * kPack);
      if (cost < least) {
        least = cost;
        row_parts = r;
        column_parts = c;
      }
    }
  }
  return parts_of_tiles(product, kEdge, kEdge, row_parts, column_parts);
}

TRIREME_AMX void amx_part(const FusedProduct<bf16>& task, const PartOfC& part,
                          std::byte* workspace) {
  const Product& p = task.product;
  const index_t strips = strips_of(part);
  const index_t chunk = chunk_of(p.k);
  const bool a_has_k_rows = p.transpose_a == Transpose::no;
  const bool b_has_k_rows = p.transpose_b == Transpose::yes;
  const index_t group = a_has_k_rows ? kEdge : kGroup * kEdge;
  std::byte* const packed_b = workspace;
  std::byte* const packed_a = packed_b + kMaxStrips * kStripBytes;
  std::byte* const all_sums = packed_a + kGroup * kStripBytes;

  configure_tiles();
  for (index_t k = 0; k < p.k; k += chunk) {
    const index_t depth = std::min(chunk, p.k - k);
    pack<Tile::b>(
        task.b + (b_has_k_rows ? part.column * p.ldb + k : k * p.ldb + part.column),
        p.ldb, b_has_k_rows, part.columns(), depth, packed_b);
    for (index_t row = part.row; row < part.row_end; row += group) {
      const index_t rows = std::min(group, part.row_end - row);
      const bf16* const a = task.a + (a_has_k_rows ? row * p.lda + k : k * p.lda + row);
      const bool in_place = is_in_place(p, rows, depth);
      if (!in_place) pack<Tile::a>(a, p.lda, a_has_k_rows, rows, depth, packed_a);
      stores_are_done();
      for (index_t i = 0; i < rows; i += kEdge) {
        const StripOfA strip = in_place
                                   ? strip_in_place(a + i * p.lda, p.lda)
                                   : packed_strip(packed_a + i / kEdge * kStripBytes);
        const index_t block = chunk < p.k ? (row + i - part.row) / kEdge : 0;
        std::byte* const sums = all_sums + block * strips * 4 * kTileBytes;
        const index_t next = std::min(kEdge, part.row_end - (row + i + kEdge));
        const Ahead ahead =
            a_has_k_rows && next > 0
                ? Ahead{reinterpret_cast<const std::byte*>(a + (i + kEdge) * p.lda),
                        p.lda * static_cast<index_t>(sizeof(bf16)), next}
                : Ahead{};
        multiply_strips(strip, packed_b, strips, depth, k == 0, sums, ahead);
        if (k + depth == p.k) {
          finish_rows(task, part, row + i, std::min(kEdge, rows - i), sums);
        }
      }
    }
  }
  _tile_release();
  _mm_sfence();  // what was stored past the caches is seen before what follows
}

}  // namespace trireme::kernels::impl
