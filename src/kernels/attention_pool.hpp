// kernels/attention_pool.hpp — memory of a GPU that attention takes beside its arguments:
// where a team's tiles are more than the shared memory of a block has room for, Kokkos
// keeps them in a pool in the device's memory, with tiles for all teams that can run at a
// time. So it is for types of 32 and 64 bits from a head size of about 40 on.
#ifndef TRIREME_KERNELS_ATTENTION_POOL_HPP_
#define TRIREME_KERNELS_ATTENTION_POOL_HPP_

#include <cstddef>

#include "base/types.hpp"

namespace trireme::kernels {

// Of a training step with heads of this size, at most, on this process' GPU; on an H100
// where there is none. 0 on a host, and where tensor cores compute the tiles.
std::size_t attention_pool_bytes(DType type, index_t head_dim);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_ATTENTION_POOL_HPP_
