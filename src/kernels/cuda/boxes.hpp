// kernels/cuda/boxes.hpp — copies of boxes of a matrix to shared memory, which Hopper
// makes by itself: one thread asks for all of a box by one instruction, and whoever needs
// it waits for a barrier in shared memory, which counts the bytes that have come.
//
// Beside warp.hpp's copies, for which each lane asks for its own 16 bytes, they leave a
// warp's loads nothing to stand behind: another unit makes them. For kernels of files
// *.sm90a.cu alone; tests/support/warp_emulation.cpp defines the same names for a host.
#ifndef TRIREME_KERNELS_CUDA_BOXES_HPP_
#define TRIREME_KERNELS_CUDA_BOXES_HPP_

#include <cstdint>

#include "kernels/cuda/warp.hpp"

namespace trireme::cuda {

// A box: so many rows of a matrix of 16-bit elements, and so many columns. What the
// matrix does not have of it comes as zeros.
inline constexpr int kBoxRows = 8, kBoxColumns = 64;
inline constexpr int kBoxBytes = 2 * kBoxRows * kBoxColumns;

// What the device knows of a matrix whose boxes are copied: the driver's words
// (CUtensorMap), or an emulation's. In the device's memory it lies at a multiple of its
// size, as arrays there do; a host copies words.
struct alignas(64) BoxMap {
  std::uint64_t word[16];
};

// Where the 16 bytes `quad` of a box's row lie: swizzled, so that those of eight rows lie
// in different banks (PTX ISA, "Swizzling modes", 128 bytes). The box begins at a
// multiple of kBoxBytes.
TRIREME_HOST_DEVICE constexpr int quad_of_box(int row, int quad) {
  return quad ^ (row % kBoxRows);
}

#if defined(__CUDACC__)

// By a thread of the block, before a sync_block() behind which boxes of this matrix are
// copied: the map was written by a copy from the host, which the unit that reads it does
// not see by itself ("Tensor map proxy", CUDA C++ Programming Guide).
TRIREME_DEVICE void take_map(const BoxMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map)
               : "memory");
}
// By one thread, before a sync_block() behind which the barrier is used: a phase of it
// ends when a thread has said what it expects, and that has come. Phases are even and odd
// in turn, the first one is even.
TRIREME_DEVICE void begin_barrier(std::uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier))
               : "memory");
  // Seen by the unit that copies, too.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// By one thread, once a phase: so many bytes are going to be copied.
TRIREME_DEVICE void expect_bytes(std::uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
// By the same thread: the box of a matrix that begins at this row and column.
TRIREME_DEVICE void copy_box_async(void* shared, const BoxMap* map, int row, int column,
                                   std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(shared)),
      "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}
// Until the barrier's phase is over that is even (0) or odd (1).
TRIREME_DEVICE void wait_for_phase(std::uint64_t* barrier, int parity) {
  unsigned is_over = 0;
  while (is_over == 0) {
    asm volatile(
        "{ .reg .pred over;"
        " mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;"
        " selp.u32 %0, 1, 0, over; }"
        : "=r"(is_over)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}
// Asks for a map to come to where copies find it sooner.
TRIREME_DEVICE void ask_for_map(const BoxMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

#else

void take_map(const BoxMap* map);
void begin_barrier(std::uint64_t* barrier);
void expect_bytes(std::uint64_t* barrier, int bytes);
void copy_box_async(void* shared, const BoxMap* map, int row, int column,
                    std::uint64_t* barrier);
void wait_for_phase(std::uint64_t* barrier, int parity);
inline void ask_for_map(const BoxMap*) {}

#endif

}  // namespace trireme::cuda

#endif  // TRIREME_KERNELS_CUDA_BOXES_HPP_
