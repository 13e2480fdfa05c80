// tests/support/warp_emulation.hpp — blocks of a GPU's threads on a host: defines what
// kernels/cuda/warp.hpp and boxes.hpp declare.
//
// A thread is a fiber. It runs until it waits for its warp (fragments, shuffles), its
// block, another block, or the end of the kernel; 32 that have come to the same
// instruction have it done at once. Some blocks are under way at a time.
//
// Made to show mistakes: copies to shared memory, of quads as of boxes, arrive when they
// are waited for, and not before (until then there are NaN); shared memory begins as NaN,
// and at no multiple of more than 16 bytes; what is stored for other blocks is seen when
// it is published, if its threads had passed a barrier by then; one order of warps lets
// each run as far as it can before the next one moves, the other begins with the last,
// and with the last blocks; which of the blocks under way goes on is drawn each time, the
// same in every run; and threads of a warp that come to different instructions, waits
// that nothing ends, copies that their barrier does not expect, addresses that are not
// multiples of what an instruction takes and places beyond shared memory are errors.
#ifndef TRIREME_TESTS_SUPPORT_WARP_EMULATION_HPP_
#define TRIREME_TESTS_SUPPORT_WARP_EMULATION_HPP_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/cuda/boxes.hpp"

namespace trireme::test {

// Of a block's warps, and in which blocks begin.
enum class WarpOrder { first_to_last, last_to_first };

struct EmulatedGrid {
  int blocks = 1;
  int threads = 32;  // of a block
  std::size_t shared_bytes = 0;
  WarpOrder order = WarpOrder::first_to_last;
  int blocks_under_way = 1;  // at most
};

// Runs `kernel` as every thread of the grid. Returns how many products of tensor cores
// (16 x 16 by 16 x 8 elements) its warps have asked for. Throws trireme::Error for a
// mistake as above, and what a thread throws.
std::int64_t run_emulated(const EmulatedGrid& grid, const std::function<void()>& kernel);

// What the driver of a GPU makes of a matrix (rows, columns) for copies of boxes.
cuda::BoxMap emulated_box_map(const std::uint16_t* begin, int rows, int columns);

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_WARP_EMULATION_HPP_
