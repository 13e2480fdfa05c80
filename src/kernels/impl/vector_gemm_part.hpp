// kernels/impl/vector_gemm_part.hpp — the part of a product that one thread computes, for
// the files vector_gemm_*.cpp: each includes it behind a pragma with its instruction set,
// and therefore everything here is of that file alone.
//
// C is made in tiles of kTileRows x 2 vectors, whose sums stay in registers while k goes
// by:
//
//   for 1032 rows, or all where k has one chunk
//     for 16 strips of 2 vectors of columns
//       for up to 384 of k (kChunk)        B: widened and packed, in the second cache
//         for 48 rows of A                 A: widened and packed
//           for kTileRows of them          A: in the first cache
//             for each strip               a tile: sums over this chunk; some of what is
//                                          packed next is asked for from memory
//           after the last k: bias, residual, rounding, activation of these rows
//
// Sums that are not complete lie in the workspace. Their order: k ascending within a
// chunk, then chunk by chunk, whatever the part and the vectors' length, so that only a
// processor without fused multiply-adds has other bits. Example: y (1024, 3072) = x
// (1024, 768) W^T with AVX-512 on two threads: two parts of 1536 columns, each 3 blocks
// of columns by 2 chunks by 86 rounds of 16 tiles of 12 x 32.
#ifndef TRIREME_KERNELS_IMPL_VECTOR_GEMM_PART_HPP_
#define TRIREME_KERNELS_IMPL_VECTOR_GEMM_PART_HPP_

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/types.hpp"
#include "kernels/impl/vector_gemm.hpp"

namespace trireme::kernels::impl {
namespace {

// Registers of some length. (Attributes that depend on a template's parameter are lost
// on g++ 12.)
template <int kBytes>
struct Registers;
#define TRIREME_REGISTERS(kBytes)                                          \
  template <>                                                              \
  struct Registers<kBytes> {                                               \
    typedef float Floats __attribute__((vector_size(kBytes)));             \
    typedef std::int32_t Indices __attribute__((vector_size(kBytes)));     \
    typedef std::uint32_t Words __attribute__((vector_size(kBytes)));      \
    typedef std::uint16_t Halves __attribute__((vector_size(kBytes / 2))); \
  };
TRIREME_REGISTERS(16)
TRIREME_REGISTERS(32)
TRIREME_REGISTERS(64)
#undef TRIREME_REGISTERS

// kVectorBytes: of a register. kTileRows: as many as there are registers for, two sums
// each.
template <int kVectorBytes, int kTileRows>
class VectorGemm {
 public:
  static constexpr index_t kFloats = kVectorBytes / 4;  // in a register
  static constexpr index_t kTileVectors = 2;
  static constexpr index_t kTileColumns = kTileVectors * kFloats;
  static constexpr index_t kChunk = 384;
  static constexpr index_t kBlockColumns = 16 * kTileColumns;
  // At most, where sums of a chunk are added to: they stay in the last cache.
  static constexpr index_t kSumRows = 1032 / kTileRows * kTileRows;
  // Rows of A that are packed at a time: a multiple of a line where they are columns.
  static constexpr index_t kGroup = 48 / kTileRows;
  // Packing A by columns writes whole registers; the last one goes beyond its rows.
  static constexpr index_t kPackedA = kTileRows * kChunk + kFloats;
  static constexpr index_t kFloatsOfWorkspace =
      kChunk * kBlockColumns + kGroup * kPackedA + kSumRows * kBlockColumns;
  static constexpr std::size_t kWorkspaceBytes = kFloatsOfWorkspace * sizeof(float);
  static_assert(kWorkspaceBytes % kLine == 0);

  template <class T>
  static void part(const FusedProduct<T>& task, const PartOfC& part,
                   std::byte* workspace) {
    const Room room(workspace);
    const bool has_chunks = task.product.k > kChunk;
    const index_t rows = has_chunks ? kSumRows : part.rows();
    for (index_t row = part.row; row < part.row_end; row += rows) {
      for (index_t j = part.column; j < part.column_end; j += kBlockColumns) {
        multiply_block(task,
                       {row, std::min(row + rows, part.row_end), j,
                        std::min(j + kBlockColumns, part.column_end)},
                       part.column_end, room);
      }
    }
  }

 private:
  using Vector = typename Registers<kVectorBytes>::Floats;
  using Indices = typename Registers<kVectorBytes>::Indices;
  using Words = typename Registers<kVectorBytes>::Words;
  using Halves = typename Registers<kVectorBytes>::Halves;

  // The workspace's parts.
  struct Room {
    explicit Room(std::byte* workspace)
        : b(reinterpret_cast<float*>(workspace)),
          sums(b + kChunk * kBlockColumns),
          a(sums + kSumRows * kBlockColumns) {}
    float* b;     // strips (kChunk, kTileColumns)
    float* sums;  // (rows of the part, kBlockColumns)
    float* a;     // kGroup of (kTileRows, kChunk), or (kChunk, kTileRows); kPackedA apart
  };

  // ---- registers

  static Vector load(const float* from) {
    Vector v;
    std::memcpy(&v, from, sizeof(v));
    return v;
  }
  static Vector load(const bf16* from) {
    Halves halves;
    std::memcpy(&halves, from, sizeof(halves));
    return reinterpret_cast<Vector>(__builtin_convertvector(halves, Words) << 16);
  }
  static Vector load(const fp16* from) {
    Vector v{};
#if defined(__AVX512F__)
    if constexpr (kFloats == 16) {
      __m256i halves;
      std::memcpy(&halves, from, sizeof(halves));
      return reinterpret_cast<Vector>(_mm512_maskz_cvtph_ps(0xffff, halves));
    }
#endif
#if defined(__F16C__)
    if constexpr (kFloats == 8) {
      __m128i halves;
      std::memcpy(&halves, from, sizeof(halves));
      return reinterpret_cast<Vector>(_mm256_cvtph_ps(halves));
    }
#endif
    for (index_t i = 0; i < kFloats; ++i) v[i] = static_cast<float>(from[i]);
    return v;
  }
  static void store(Vector v, float* to) {
    std::memcpy(to, &v, sizeof(v));
  }
  // The rounding of bf16's constructor.
  static void store(Vector v, bf16* to) {
    const auto word = reinterpret_cast<Words>(v);
    const Words rounded = word + 0x7fffu + (word >> 16 & 1u);
    const Words result = (v == v ? rounded : word | 0x400000u) >> 16;
    const auto halves = __builtin_convertvector(result, Halves);
    std::memcpy(static_cast<void*>(to), &halves, sizeof(halves));
  }
  static void store(Vector v, fp16* to) {
#if defined(__AVX512F__)
    if constexpr (kFloats == 16) {
      const __m256i halves = _mm512_maskz_cvtps_ph(0xffff, reinterpret_cast<__m512>(v),
                                                   _MM_FROUND_TO_NEAREST_INT);
      std::memcpy(static_cast<void*>(to), &halves, sizeof(halves));
      return;
    }
#endif
#if defined(__F16C__)
    if constexpr (kFloats == 8) {
      const __m128i halves =
          _mm256_cvtps_ph(reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT);
      std::memcpy(static_cast<void*>(to), &halves, sizeof(halves));
      return;
    }
#endif
    for (index_t i = 0; i < kFloats; ++i) to[i] = static_cast<fp16>(v[i]);
  }

  // One step of a transposition: blocks of kHalf x kHalf elements beside the diagonal of
  // each 2 kHalf x 2 kHalf change places.
  template <index_t kHalf, index_t... kElement>
  static void swap_blocks(Vector* r, std::integer_sequence<index_t, kElement...>) {
    constexpr Indices kUpper = {static_cast<std::int32_t>(
        (kElement & kHalf) == 0 ? kElement : kFloats + kElement - kHalf)...};
    constexpr Indices kLower = {static_cast<std::int32_t>(
        (kElement & kHalf) == 0 ? kElement + kHalf : kFloats + kElement)...};
#pragma GCC unroll 16
    for (index_t i = 0; i < kFloats; ++i) {
      if ((i & kHalf) != 0) continue;
      const Vector upper = r[i], lower = r[i + kHalf];
      r[i] = __builtin_shuffle(upper, lower, kUpper);
      r[i + kHalf] = __builtin_shuffle(upper, lower, kLower);
    }
  }
  template <index_t kHalf = 1>
  static void transpose(Vector* r) {
    swap_blocks<kHalf>(r, std::make_integer_sequence<index_t, kFloats>());
    if constexpr (2 * kHalf < kFloats) transpose<2 * kHalf>(r);
  }

  // ---- packing

  // to[j] = from[j], and zeros from `count` to `padded`.
  template <class T>
  static void pack_row(const T* from, index_t count, index_t padded, float* to) {
    index_t j = 0;
    for (; j + kFloats <= count; j += kFloats) store(load(from + j), to + j);
    for (; j < count; ++j) to[j] = static_cast<float>(from[j]);
    for (; j < padded; ++j) to[j] = 0;
  }

  // Rows of A as they are stored: (kTileRows, kChunk) each group.
  template <class T>
  static void pack_a_of_rows(const T* a, index_t lda, index_t rows, index_t depth,
                             float* to) {
    for (index_t i = 0; i < rows; ++i) {
      pack_row(a + i * lda, depth, depth,
               to + i / kTileRows * kPackedA + i % kTileRows * kChunk);
    }
    for (index_t i = rows; i % kTileRows != 0; ++i) {
      std::fill_n(to + i / kTileRows * kPackedA + i % kTileRows * kChunk, depth, 0.0f);
    }
  }
  // Rows of A that are stored as columns: (kChunk, kTileRows) each group. `readable`: how
  // many columns there are from here on.
  template <class T>
  static void pack_a_of_columns(const T* a, index_t lda, index_t rows, index_t readable,
                                index_t depth, float* to) {
    constexpr index_t kRegisters = (kTileRows + kFloats - 1) / kFloats;
    for (index_t k = 0; k < depth; ++k) {
      for (index_t i = 0; i < rows; i += kTileRows) {
        const T* const from = a + k * lda + i;
        float* const row = to + i / kTileRows * kPackedA + k * kTileRows;
        if (i + kTileRows <= rows && i + kRegisters * kFloats <= readable) {
#pragma GCC unroll 4
          for (index_t r = 0; r < kRegisters; ++r) {
            store(load(from + r * kFloats), row + r * kFloats);
          }
        } else {
          for (index_t l = 0; l < kTileRows; ++l) {
            row[l] = i + l < rows ? static_cast<float>(from[l]) : 0;
          }
        }
      }
    }
  }

  // Columns of B into strips (kChunk, kTileColumns), where rows of k are stored.
  template <class T>
  static void pack_b_of_rows(const T* b, index_t ldb, index_t columns, index_t depth,
                             float* to) {
    for (index_t k = 0; k < depth; ++k) {
      for (index_t j = 0; j < columns; j += kTileColumns) {
        pack_row(b + k * ldb + j, std::min(kTileColumns, columns - j), kTileColumns,
                 to + j * kChunk + k * kTileColumns);
      }
    }
  }
  // The same where columns are stored.
  template <class T>
  static void pack_b_of_columns(const T* b, index_t ldb, index_t columns, index_t depth,
                                float* to) {
    for (index_t j = 0; j < columns; j += kFloats) {
      float* const strip =
          to + j / kTileColumns * kTileColumns * kChunk + j % kTileColumns;
      const index_t count = std::min(kFloats, columns - j);
      const T* const from = b + j * ldb;
      index_t k = 0;
      for (; count == kFloats && k + kFloats <= depth; k += kFloats) {
        Vector r[kFloats];
#pragma GCC unroll 16
        for (index_t i = 0; i < kFloats; ++i) r[i] = load(from + i * ldb + k);
        transpose(r);
#pragma GCC unroll 16
        for (index_t i = 0; i < kFloats; ++i) store(r[i], strip + (k + i) * kTileColumns);
      }
      for (; k < depth; ++k) {
        for (index_t i = 0; i < kFloats; ++i) {
          strip[k * kTileColumns + i] =
              i < count ? static_cast<float>(from[i * ldb + k]) : 0;
        }
      }
    }
    if (columns % kTileColumns != 0 && columns % kTileColumns <= kFloats) {
      float* const strip = to + columns / kTileColumns * kTileColumns * kChunk + kFloats;
      for (index_t k = 0; k < depth; ++k) store(Vector{}, strip + k * kTileColumns);
    }
  }

  // ---- sums

  enum class Packing { rows, columns };

  // A tile of C (kTileRows, kTileColumns) = or += A B over `depth` of k.
  template <Packing packing>
  static void multiply(const float* a, const float* b, index_t depth, bool adds,
                       float* c) {
    Vector sum[kTileRows][kTileVectors];
#pragma GCC unroll 16
    for (index_t i = 0; i < kTileRows; ++i) {
      // The sums so far are needed at the end, and come meanwhile.
      __builtin_prefetch(c + i * kBlockColumns, 1);
      __builtin_prefetch(c + i * kBlockColumns + kTileColumns - 1, 1);
#pragma GCC unroll 4
      for (index_t v = 0; v < kTileVectors; ++v) sum[i][v] = Vector{};
    }
    for (index_t k = 0; k < depth; ++k, b += kTileColumns) {
      Vector right[kTileVectors];
#pragma GCC unroll 4
      for (index_t v = 0; v < kTileVectors; ++v) right[v] = load(b + v * kFloats);
#pragma GCC unroll 16
      for (index_t i = 0; i < kTileRows; ++i) {
        const float left =
            packing == Packing::rows ? a[i * kChunk + k] : a[k * kTileRows + i];
#pragma GCC unroll 4
        for (index_t v = 0; v < kTileVectors; ++v) sum[i][v] += left * right[v];
      }
    }
#pragma GCC unroll 16
    for (index_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
      for (index_t v = 0; v < kTileVectors; ++v) {
        float* const to = c + i * kBlockColumns + v * kFloats;
        store(adds ? load(to) + sum[i][v] : sum[i][v], to);
      }
    }
  }

  // What is packed later, asked for from memory while sums are taken: `bytes` of each of
  // `rows`, line by line.
  class Ahead {
   public:
    Ahead() = default;
    // For `asks` calls of ask().
    Ahead(const void* from, index_t row_bytes, index_t rows, index_t bytes, index_t asks)
        : row_(reinterpret_cast<std::uintptr_t>(from)),
          line_(first_line()),
          row_bytes_(row_bytes),
          rows_(rows),
          bytes_(bytes),
          lines_(ceil_divide(rows * (bytes / static_cast<index_t>(kLine) + 2), asks)) {}
    void ask() {
      for (index_t i = 0; i < lines_ && rows_ > 0; ++i) {
        __builtin_prefetch(reinterpret_cast<const void*>(line_), 0, 2);
        line_ += kLine;
        if (line_ < row_ + static_cast<std::uintptr_t>(bytes_)) continue;
        row_ += static_cast<std::uintptr_t>(row_bytes_);
        line_ = first_line();
        --rows_;
      }
    }

   private:
    std::uintptr_t first_line() const { return row_ / kLine * kLine; }

    std::uintptr_t row_ = 0, line_ = 0;
    index_t row_bytes_ = 0, rows_ = 0, bytes_ = 0, lines_ = 0;
  };

  // kTileRows rows of a block by all its strips; sums: (kTileRows, kBlockColumns).
  template <Packing packing>
  static void multiply_strips(const float* a, const float* b, index_t columns,
                              index_t depth, bool adds, float* sums, Ahead& a_ahead,
                              Ahead& b_ahead) {
    for (index_t j = 0; j < columns; j += kTileColumns) {
      a_ahead.ask();
      b_ahead.ask();
      multiply<packing>(a, b + j * kChunk, depth, adds, sums + j);
    }
  }

  // ---- what follows

  template <class T>
  static T* row_of(T* data, index_t leading, index_t row, index_t column) {
    return data == nullptr ? nullptr : data + row * leading + column;
  }

  // z[j] = sums[j] + bias[j] + residual[j] + before[j], without those that are null.
  template <class T, class To>
  static void finish_row(const float* sums, const T* bias, const T* residual,
                         const To* before, To* z, index_t count) {
    index_t j = 0;
    for (; j + kFloats <= count; j += kFloats) {
      Vector x = load(sums + j);
      if (bias != nullptr) x += load(bias + j);
      if (residual != nullptr) x += load(residual + j);
      if (before != nullptr) x += load(before + j);
      store(x, z + j);
    }
    for (; j < count; ++j) {
      float x = sums[j];
      if (bias != nullptr) x += static_cast<float>(bias[j]);
      if (residual != nullptr) x += static_cast<float>(residual[j]);
      if (before != nullptr) x += static_cast<float>(before[j]);
      z[j] = static_cast<To>(x);
    }
  }

  // Rows [row, row + rows) of a block's columns, whose sums are complete.
  template <class T>
  static void finish(const FusedProduct<T>& task, const PartOfC& block, index_t row,
                     index_t rows, const float* sums) {
    const index_t columns = block.columns();
    const T* const bias = row_of(task.bias, 0, 0, block.column);
    const bool adds = task.product.accumulate == Accumulate::yes;
    for (index_t i = row; i < row + rows; ++i, sums += kBlockColumns) {
      if (task.is_c_float) {
        float* const c =
            row_of(static_cast<float*>(task.c), task.product.ldc, i, block.column);
        finish_row<T, float>(sums, nullptr, nullptr, adds ? c : nullptr, c, columns);
        continue;
      }
      const T* const residual = row_of(task.residual, task.ld_residual, i, block.column);
      T* const c = row_of(static_cast<T*>(task.c), task.product.ldc, i, block.column);
      T* const kept =
          row_of(task.pre_activation, task.ld_pre_activation, i, block.column);
      T* const z = kept != nullptr ? kept : c;
      finish_row<T, T>(sums, bias, residual, adds ? c : nullptr, z, columns);
      if (task.activate != nullptr) task.activate(z, c, columns);
    }
  }

  // ---- a block of C

  template <class T>
  static void pack_b(const FusedProduct<T>& task, const PartOfC& block, index_t k,
                     index_t depth, const Room& room) {
    const Product& p = task.product;
    const index_t columns = block.columns();
    if (p.transpose_b == Transpose::yes) {
      pack_b_of_columns(task.b + block.column * p.ldb + k, p.ldb, columns, depth, room.b);
    } else {
      pack_b_of_rows(task.b + k * p.ldb + block.column, p.ldb, columns, depth, room.b);
    }
  }

  static index_t strips_of(const PartOfC& block) {
    return ceil_divide(block.columns(), kTileColumns);
  }
  // An operand's elements (index, k), `count` by `depth` of them.
  template <class T>
  static Ahead elements_ahead(const T* x, index_t leading, bool has_k_rows, index_t index,
                              index_t count, index_t k, index_t depth, index_t asks) {
    if (count <= 0 || depth <= 0) return {};
    constexpr auto kSize = static_cast<index_t>(sizeof(T));
    if (has_k_rows) {
      return {x + k * leading + index, leading * kSize, depth, count * kSize, asks};
    }
    return {x + index * leading + k, leading * kSize, count, depth * kSize, asks};
  }
  // The next group of rows of A.
  template <class T>
  static Ahead a_ahead(const FusedProduct<T>& task, const PartOfC& block, index_t row,
                       index_t k, index_t depth) {
    const Product& p = task.product;
    return elements_ahead(task.a, p.lda, p.transpose_a == Transpose::yes, row,
                          std::min<index_t>(kGroup * kTileRows, block.row_end - row), k,
                          depth, kGroup * strips_of(block));
  }
  // The next chunk of B, for all rounds of this one: of this block, from k on, or the
  // first one of those that follow to its right.
  template <class T>
  static Ahead b_ahead(const FusedProduct<T>& task, const PartOfC& block,
                       index_t columns_end, index_t k, index_t chunk) {
    const Product& p = task.product;
    const index_t column = k < p.k ? block.column : block.column_end;
    const index_t end = std::min(column + kBlockColumns, columns_end);
    if (k >= p.k) k = 0;
    const index_t rounds = ceil_divide(block.rows(), kTileRows);
    return elements_ahead(task.b, p.ldb, p.transpose_b == Transpose::no, column,
                          end - column, k, std::min(chunk, p.k - k),
                          rounds * strips_of(block));
  }

  // Rows of A by the chunk of B that is packed.
  template <Packing packing, class T>
  static void multiply_rows(const FusedProduct<T>& task, const PartOfC& block, index_t k,
                            index_t chunk, const Room& room, Ahead b_ahead) {
    const Product& p = task.product;
    const index_t columns = block.columns();
    const index_t depth = std::min(chunk, p.k - k);
    constexpr index_t kGroupRows = kGroup * kTileRows;
    for (index_t first = block.row; first < block.row_end; first += kGroupRows) {
      const index_t end = std::min(first + kGroupRows, block.row_end);
      if constexpr (packing == Packing::columns) {
        pack_a_of_columns(task.a + k * p.lda + first, p.lda, end - first, p.m - first,
                          depth, room.a);
      } else {
        pack_a_of_rows(task.a + first * p.lda + k, p.lda, end - first, depth, room.a);
      }
      Ahead next = a_ahead(task, block, end, k, depth);
      for (index_t row = first; row < end; row += kTileRows) {
        // Where they are complete at once, rows of sums take turns.
        float* const sums =
            room.sums + (chunk < p.k ? row - block.row : 0) * kBlockColumns;
        multiply_strips<packing>(room.a + (row - first) / kTileRows * kPackedA, room.b,
                                 columns, depth, k > 0, sums, next, b_ahead);
        if (k + depth == p.k) {
          finish(task, block, row, std::min<index_t>(kTileRows, end - row), sums);
        }
      }
    }
  }

  template <class T>
  static void multiply_block(const FusedProduct<T>& task, const PartOfC& block,
                             index_t columns_end, const Room& room) {
    const Product& p = task.product;
    const index_t chunk = chunk_of(p.k);
    for (index_t k = 0; k < p.k; k += chunk) {
      pack_b(task, block, k, std::min(chunk, p.k - k), room);
      const Ahead next = b_ahead(task, block, columns_end, k + chunk, chunk);
      if (p.transpose_a == Transpose::yes) {
        multiply_rows<Packing::columns>(task, block, k, chunk, room, next);
      } else {
        multiply_rows<Packing::rows>(task, block, k, chunk, room, next);
      }
    }
  }

  // k is cut evenly; the same for every part and every length of vectors.
  static index_t chunk_of(index_t k) {
    constexpr index_t kStep = 16;
    return ceil_divide(ceil_divide(k, ceil_divide(k, kChunk)), kStep) * kStep;
  }
};

template <int kVectorBytes, int kTileRows>
constexpr VectorSet vector_set_of(std::string_view name) {
  using Gemm = VectorGemm<kVectorBytes, kTileRows>;
  return {name,
          kTileRows,
          Gemm::kTileColumns,
          Gemm::kWorkspaceBytes,
          Gemm::template part<bf16>,
          Gemm::template part<fp16>};
}

}  // namespace
}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_VECTOR_GEMM_PART_HPP_
