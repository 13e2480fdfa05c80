// comm/narrow_reduce.hpp — inout = op(in, inout) on bfloat16 and float16 in host memory,
// which MPI has no types for: combined in float, rounded once.
#ifndef TRIREME_COMM_NARROW_REDUCE_HPP_
#define TRIREME_COMM_NARROW_REDUCE_HPP_

#include "base/types.hpp"
#include "comm/communicator.hpp"

namespace trireme::comm {

// T: bf16 or fp16.
template <class T>
void narrow_reduce(Op op, const T* in, T* inout, index_t count);

}  // namespace trireme::comm

#endif  // TRIREME_COMM_NARROW_REDUCE_HPP_
