// parallel/mappings.hpp — the collectives at the borders of tensor-parallel regions
// (Shoeybi et al. 2019, figure 3: f and g). Each is an identity one way and an all-reduce
// the other; only the all-reduce is a function here. Names as in Megatron-LM.
#ifndef TRIREME_PARALLEL_MAPPINGS_HPP_
#define TRIREME_PARALLEL_MAPPINGS_HPP_

#include "base/exec.hpp"
#include "comm/communicator.hpp"

namespace trireme::parallel {

// g forward: y (rows, h) = sum of the ranks' partial results, in place.
template <class T>
void reduce_from_tensor_parallel_region(const Exec& exec, comm::Communicator& tensor,
                                        View2<T> y);

// f backward: d_x (rows, h) = sum of the ranks' partial gradients, in place.
template <class T>
void copy_to_tensor_parallel_region_backward(const Exec& exec, comm::Communicator& tensor,
                                             View2<T> d_x);

}  // namespace trireme::parallel

#endif  // TRIREME_PARALLEL_MAPPINGS_HPP_
