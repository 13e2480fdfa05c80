// kernels/cuda/attention_tiles.hpp — tiles of attention's operands in shared memory, and
// the fragments of tensor cores that are read from them.
//
// A tile has rows of head_dim elements, 8 further apart: the 16-byte pieces of eight rows
// that one matrix of 8 x 8 is read from then lie in different banks, for every size that
// is a multiple of 16.
#ifndef TRIREME_KERNELS_CUDA_ATTENTION_TILES_HPP_
#define TRIREME_KERNELS_CUDA_ATTENTION_TILES_HPP_

#include <cstdint>

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/warp.hpp"

namespace trireme::cuda {

inline constexpr int kQuadElements = 8;  // of 16 bits
inline constexpr float kLog2OfE = 1.4426950408889634f;
constexpr int pitch_of(int elements) {
  return elements + kQuadElements;
}
constexpr int divide_up(int a, int b) {
  return (a + b - 1) / b;
}

TRIREME_DEVICE int smaller(int a, int b) {
  return a < b ? a : b;
}

// Keys [begin, end); none where begin >= end.
struct KeyRange {
  int begin, end;
  TRIREME_DEVICE bool is_empty() const { return begin >= end; }
};

// Those that the mask shows to a query.
TRIREME_DEVICE KeyRange keys_of_mask(const AttentionShape& shape, int sample, int query) {
  KeyRange keys{0, shape.kv_length};
  if (shape.is_causal) {
    keys.end = smaller(keys.end, query + shape.kv_length - shape.q_length + 1);
  }
  if (shape.key_lengths != nullptr) {
    keys.end = smaller(keys.end, shape.key_lengths[sample]);
  }
  const int in_field = query * shape.batch + sample;  // of fewer than 2^31
  if (shape.document_begins != nullptr) keys.begin = shape.document_begins[in_field];
  if (shape.document_ends != nullptr) {
    keys.end = smaller(keys.end, shape.document_ends[in_field]);
  }
  return keys;
}
// Padding among the queries has an empty range where that of the last query ends.
TRIREME_DEVICE KeyRange visible_keys(const AttentionShape& shape, int sample, int query) {
  if (shape.query_lengths != nullptr) {
    const int length = shape.query_lengths[sample];
    if (query >= length) {
      const int end = length > 0 ? keys_of_mask(shape, sample, length - 1).end : 0;
      return {end, end};
    }
  }
  return keys_of_mask(shape, sample, query);
}
// Those that the queries [first, last] see, without gaps: neither end of a range comes
// before that of the query before it.
TRIREME_DEVICE KeyRange visible_keys(const AttentionShape& shape, int sample, int first,
                                     int last) {
  const KeyRange keys{visible_keys(shape, sample, first).begin,
                      visible_keys(shape, sample, last).end};
  return keys.is_empty() ? KeyRange{0, 0} : keys;
}

// A row of a head of a sample; Heads or ConstHeads.
template <int kHeadDim, class AnyHeads>
TRIREME_DEVICE auto row_of(const AnyHeads& heads, int sample, int head, int position) {
  return heads.data + static_cast<std::int64_t>(position) * heads.sequence_stride +
         static_cast<std::int64_t>(sample) * heads.batch_stride + head * kHeadDim;
}

// A tile's rows [0, kRows) from position `begin` on, zeros from `length` on. By all
// threads of a block of kThreads, of which this one is `thread`.
template <int kRows, int kHeadDim, int kThreads>
TRIREME_DEVICE void load_tile(const ConstHeads& heads, int sample, int head, int begin,
                              int length, std::uint16_t* tile,
                              int thread = thread_index()) {
  constexpr int kQuads = kHeadDim / kQuadElements;
  const std::uint16_t* const rows = row_of<kHeadDim>(heads, sample, head, 0);
  TRIREME_UNROLL
  for (int i = 0; i < divide_up(kRows * kQuads, kThreads); ++i) {
    const int quad = i * kThreads + thread;
    if (kRows * kQuads % kThreads != 0 && quad >= kRows * kQuads) break;
    const int row = quad / kQuads, column = quad % kQuads * kQuadElements;
    const int position = begin + row;
    const bool is_there = position < length;
    copy_quad_async(tile + row * pitch_of(kHeadDim) + column,
                    rows +
                        static_cast<std::int64_t>(smaller(position, length - 1)) *
                            heads.sequence_stride +
                        column,
                    is_there);
  }
}

// The other way, of a tile's rows below `length`, by the threads [0, kThreads) from
// `thread` on.
template <int kRows, int kHeadDim, int kThreads>
TRIREME_DEVICE void store_tile(const std::uint16_t* tile, int thread, const Heads& heads,
                               int sample, int head, int begin, int length) {
  constexpr int kQuads = kHeadDim / kQuadElements;
  std::uint16_t* const rows = row_of<kHeadDim>(heads, sample, head, begin);
  TRIREME_UNROLL
  for (int i = 0; i < divide_up(kRows * kQuads, kThreads); ++i) {
    const int quad = i * kThreads + thread;
    const int row = quad / kQuads, column = quad % kQuads * kQuadElements;
    if (begin + row >= length || row >= kRows) break;
    *reinterpret_cast<Quad*>(
        rows + static_cast<std::int64_t>(row) * heads.sequence_stride + column) =
        *reinterpret_cast<const Quad*>(tile + row * pitch_of(kHeadDim) + column);
  }
}

// Of a head's bias so many distances from `first` on, zeros where there are none. By all
// threads of a block of kThreads.
template <int kCount, int kThreads>
TRIREME_DEVICE void load_bias(const AttentionShape& shape, const float* bias, int head,
                              int first, float* to) {
  const int distances = shape.q_length + shape.kv_length - 1;
  const float* const of_head = bias + static_cast<std::int64_t>(head) * distances;
  TRIREME_UNROLL
  for (int i = 0; i < divide_up(kCount, kThreads); ++i) {
    const int at = i * kThreads + thread_index();
    if (at >= kCount) break;
    const bool is_there = first + at >= 0 && first + at < distances;
    copy_word_async(to + at, of_head + (is_there ? first + at : 0), is_there);
  }
}

// Scores become powers of 2: scores times `factor`, and the bias. In a fragment's tiles
// of C, rows `half` of tile (m, n) have the distances of all of diagonal 2 m + half - n,
// so that each is read once. `bias`: of the lane's element 0 on diagonal 0.
template <int kRows, int kColumns>
TRIREME_DEVICE void add_bias(float factor, const float* bias,
                             float (&s)[kRows][kColumns][4]) {
  TRIREME_UNROLL
  for (int diagonal = 1 - kColumns; diagonal < 2 * kRows; ++diagonal) {
    TRIREME_UNROLL
    for (int e = 0; e < 2; ++e) {
      const float added = bias[8 * diagonal - e] * kLog2OfE;
      TRIREME_UNROLL
      for (int row = 0; row < 2 * kRows; ++row) {
        const int n = row - diagonal;
        if (n < 0 || n >= kColumns) continue;
        float& score = s[row / 2][n][row % 2 * 2 + e];
        score = score * factor + added;
      }
    }
  }
}

// A fragment's four matrices, 16 x 16 elements from (row, column) of a tile on, with the
// second one below the first:
//   load_matrices:   A = the tile's elements;
//   load_transposed: B, of two tiles of 8 columns, whose rows are the tile's rows.
TRIREME_DEVICE const std::uint16_t* matrices_down(const std::uint16_t* tile, int pitch,
                                                  int row, int column) {
  const int lane = lane_index();
  return tile + (row + lane % 16) * pitch + column + lane / 16 * 8;
}
// With the second one to the right of the first:
//   load_matrices:   B, of two tiles of 8 columns, whose columns are the tile's rows;
//   load_transposed: A = the transpose of the tile's elements.
TRIREME_DEVICE const std::uint16_t* matrices_right(const std::uint16_t* tile, int pitch,
                                                   int row, int column) {
  const int lane = lane_index();
  return tile + (row + lane / 16 * 8 + lane % 8) * pitch + column + lane / 8 % 2 * 8;
}

// sums (16 kRows x 16 kColumns) += a b: fragments of one step of k.
template <Element kElement, int kRows, int kColumns>
TRIREME_DEVICE void multiply_step(const std::uint32_t (&a)[kRows][4],
                                  const std::uint32_t (&b)[4],
                                  float (&sums)[kRows][kColumns][4], int column_pair) {
  TRIREME_UNROLL
  for (int m = 0; m < kRows; ++m) {
    multiply_add<kElement>(a[m], b[0], b[1], sums[m][2 * column_pair]);
    if (2 * column_pair + 1 < kColumns) {
      multiply_add<kElement>(a[m], b[2], b[3], sums[m][2 * column_pair + 1]);
    }
  }
}

}  // namespace trireme::cuda

#endif  // TRIREME_KERNELS_CUDA_ATTENTION_TILES_HPP_
