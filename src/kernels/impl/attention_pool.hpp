// kernels/impl/attention_pool.hpp — the tiles of a team of attention's reference, in
// elements, and what launches of them take where they do not lie in shared memory.
#ifndef TRIREME_KERNELS_IMPL_ATTENTION_POOL_HPP_
#define TRIREME_KERNELS_IMPL_ATTENTION_POOL_HPP_

#include <cstddef>

#include "base/exec.hpp"
#include "base/types.hpp"

namespace trireme::kernels::impl {

// Threads of a team on a GPU, and rows of queries, and of keys, of its tiles.
inline constexpr int kAttentionThreads = 128;
inline constexpr index_t kDeviceTileRows = 32;
// Shared memory that scratch_level() of a GPU takes.
inline constexpr std::size_t kMostShared = std::size_t{46} << 10;
static_assert(kHostExecution ||
              (scratch_level(kMostShared) == 0 && scratch_level(kMostShared + 1) == 1));

// Of tiles of `rows` rows and heads of size d.
KOKKOS_INLINE_FUNCTION constexpr index_t forward_team_elements(index_t d, index_t rows) {
  return rows * (5 * d) + rows * rows + 3 * rows;
}
KOKKOS_INLINE_FUNCTION constexpr index_t keys_team_elements(index_t d, index_t rows) {
  return rows * (8 * d) + 2 * rows * rows;
}
KOKKOS_INLINE_FUNCTION constexpr index_t queries_team_elements(index_t d, index_t rows) {
  return rows * (6 * d) + 2 * rows * rows;
}

// Bytes of a team's scratch for so many elements, which begin at a multiple of 64.
template <class Acc>
KOKKOS_INLINE_FUNCTION constexpr std::size_t team_bytes(index_t elements) {
  return static_cast<std::size_t>(elements) * sizeof(Acc) + 64;
}

// Of Kokkos' pool on a GPU with so many multiprocessors, for sums in Acc, at most: it has
// the scratch of as many teams as can run at a time (2048 threads on a multiprocessor).
template <class Acc>
constexpr std::size_t pool_bytes(index_t head_dim, int multiprocessors) {
  const std::size_t teams =
      static_cast<std::size_t>(multiprocessors) * (2048 / kAttentionThreads);
  // The keys' team has the largest tiles.
  const std::size_t bytes =
      team_bytes<Acc>(keys_team_elements(head_dim, kDeviceTileRows));
  return bytes > kMostShared ? bytes * teams : 0;
}

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_ATTENTION_POOL_HPP_
