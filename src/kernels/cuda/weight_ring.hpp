// kernels/cuda/weight_ring.hpp — weights on their way to a block's shared memory, for
// decode_layers.hpp: each warp has a ring of slots, and a chunk of its matrices' columns
// is copied to a slot as soon as the one before it there has been multiplied.
//
// There are two ways to copy a chunk. Quads are the way of every GPU: each lane asks for
// 16 bytes at a time, by the unit that its other loads go through, too; words of other
// blocks, which a warp looks for, then stand behind the weights that were asked for
// before them. Boxes are Hopper's: one lane asks for all of a chunk, and another unit
// brings it. Both leave a chunk in the same order, which has its quads where tensor
// cores' loads find those of eight rows in different banks: products are the same to the
// bit.
#ifndef TRIREME_KERNELS_CUDA_WEIGHT_RING_HPP_
#define TRIREME_KERNELS_CUDA_WEIGHT_RING_HPP_

#include <cstdint>

#include "kernels/cuda/boxes.hpp"
#include "kernels/cuda/decode.hpp"
#include "kernels/cuda/warp.hpp"

namespace trireme::cuda {

// Rows of a chunk and its columns, in pieces of 16 bytes.
inline constexpr int kChunkRows = 16, kChunkColumns = 64;
inline constexpr int kOfQuad = 8;  // elements
inline constexpr int kQuadsOfRow = kChunkColumns / kOfQuad;

// Where a warp's next chunks are: rows of a matrix, from a column on.
struct WeightRows {
  int first, count;     // at most kChunkRows
  int column, columns;  // the next one, and those of the matrix
};

// The slots of a block's warps. Lanes call ask(), wait() and quad_at() together; what was
// asked first is waited for first, and its slot is the next one that is asked for: all
// have read it by then.
template <WeightCopies kCopies, int kDepth, int kWarps>
class WeightRing;

template <int kDepth, int kWarps>
class WeightRing<WeightCopies::quads, kDepth, kWarps> {
  static constexpr int kRowsApart = kWarpLanes / kQuadsOfRow;  // of a lane's quads

 public:
  static constexpr int kAlignment = 16;    // of Slots
  static constexpr int kRowsTogether = 1;  // that are read whether wanted or not
  struct Slots {
    Quad quads[kDepth][kWarps][kChunkRows][kQuadsOfRow];
  };
  TRIREME_DEVICE static void begin(const DecodeLayersTask&, Slots&, int /*thread*/) {}

  // The chunks that are asked for from now on.
  TRIREME_DEVICE void aim(const DecodeLayersTask&, const DecodeLayer& layer,
                          int /*layer_index*/, int matrix, const WeightRows& at,
                          int lane) {
    rows = at.count - lane / kQuadsOfRow;
    column = at.column + lane % kQuadsOfRow * kOfQuad;
    columns = at.columns;
    from = layer.weights[matrix] +
           static_cast<std::int64_t>(at.first + lane / kQuadsOfRow) * at.columns + column;
  }
  TRIREME_DEVICE void aim_at_nothing() { rows = 0; }

  // Begins the copy of the next chunk: an empty one behind the last. Columns that there
  // are not are zero. `anywhere`: a valid address.
  TRIREME_DEVICE void ask(Slots& slots, int warp, int lane,
                          const std::uint16_t* anywhere) {
    const bool is_there = column < columns;
    const std::uint16_t* at = is_there ? from : anywhere;
    const int apart = is_there ? kRowsApart * columns : 0;
    TRIREME_UNROLL
    for (int i = 0; i < kChunkRows / kRowsApart; ++i) {
      if (i * kRowsApart < rows)
        copy_quad_async(own_quad(slots, warp, lane, i), at, is_there);
      at += apart;
    }
    commit_copies();
    slot = slot + 1 == kDepth ? 0 : slot + 1;
    from += kChunkColumns;
    column += kChunkColumns;
  }
  TRIREME_DEVICE void wait(Slots&, int /*warp*/) const { wait_for_copies<kDepth - 1>(); }
  TRIREME_DEVICE const Quad* quad_at(const Slots& slots, int warp, int row,
                                     int quad) const {
    return &slots.quads[slot][warp][row][quad_of_box(row, quad)];
  }

 private:
  // quad_at() of the lane's quad of its rows, which are kRowsApart apart: half of what
  // quads are exchanged over.
  TRIREME_DEVICE Quad* own_quad(Slots& slots, int warp, int lane, int i) const {
    static_assert(2 * kRowsApart == kQuadsOfRow);
    Quad* const quads = &slots.quads[slot][warp][0][0];
    const int first = lane ^ (lane / kQuadsOfRow);
    return quads + ((first + i * kRowsApart * kQuadsOfRow) ^ (i % 2 * kRowsApart));
  }

  // Of this lane: the first of its rows' next quads.
  const std::uint16_t* from = nullptr;
  int rows = 0;  // from its first on
  int column = 0, columns = 0;
  int slot = 0;
};

template <int kDepth, int kWarps>
class WeightRing<WeightCopies::boxes, kDepth, kWarps> {
  static_assert(kChunkRows == 2 * kBoxRows && kChunkColumns == kBoxColumns);

 public:
  static constexpr int kAlignment = kBoxBytes;
  static constexpr int kRowsTogether = kBoxRows;
  struct Slots {
    alignas(kBoxBytes) Quad quads[kDepth][kWarps][kChunkRows][kQuadsOfRow];
    std::uint64_t barriers[kDepth][kWarps];
  };
  // By all threads, before a barrier of the block.
  TRIREME_DEVICE static void begin(const DecodeLayersTask& task, Slots& slots,
                                   int thread) {
    constexpr int kThreads = kWarps * kWarpLanes;
    static_assert(kDepth <= kWarpLanes);
    if (thread < kDepth * kWarps) begin_barrier(&slots.barriers[0][0] + thread);
    TRIREME_ONE_BY_ONE
    for (int i = thread; i < task.layer_count * kMatricesOfLayer; i += kThreads) {
      take_map(task.maps + i);
    }
  }

  TRIREME_DEVICE void aim(const DecodeLayersTask& task, const DecodeLayer&,
                          int layer_index, int matrix, const WeightRows& at, int lane) {
    map = task.maps + (layer_index * kMatricesOfLayer + matrix);
    row = at.first;
    column = at.column;
    boxes = at.count > kBoxRows ? 2 : 1;
    if (lane == 0 && layer_index + 1 < task.layer_count) {
      ask_for_map(map + kMatricesOfLayer);
    }
  }
  TRIREME_DEVICE void aim_at_nothing() { boxes = 0; }

  // What was in the slot has been read by all lanes, which have met since: their products
  // needed it. So the copy, by another unit, comes behind their reads.
  TRIREME_DEVICE void ask(Slots& slots, int warp, int lane, const std::uint16_t*) {
    if (lane == 0) {
      std::uint64_t* const barrier = &slots.barriers[slot][warp];
      expect_bytes(barrier, boxes * kBoxBytes);
      TRIREME_ONE_BY_ONE
      for (int i = 0; i < boxes; ++i) {
        copy_box_async(&slots.quads[slot][warp][i * kBoxRows][0], map, row + i * kBoxRows,
                       column, barrier);
      }
    }
    turn ^= slot + 1 == kDepth ? 1 : 0;
    slot = slot + 1 == kDepth ? 0 : slot + 1;
    column += kChunkColumns;
  }
  // The slot that is next was asked for a turn ago.
  TRIREME_DEVICE void wait(Slots& slots, int warp) const {
    wait_for_phase(&slots.barriers[slot][warp], turn ^ 1);
  }
  TRIREME_DEVICE const Quad* quad_at(const Slots& slots, int warp, int row_of_chunk,
                                     int quad) const {
    return &slots.quads[slot][warp][row_of_chunk][quad_of_box(row_of_chunk, quad)];
  }

 private:
  const BoxMap* map = nullptr;
  int row = 0, column = 0;
  int boxes = 0;
  int slot = 0, turn = 0;  // even and odd turns of the ring
};

}  // namespace trireme::cuda

#endif  // TRIREME_KERNELS_CUDA_WEIGHT_RING_HPP_
