// parallel/mappings.hpp — the collectives at the borders of tensor-parallel regions,
// under the names of Megatron-LM.
//
// Without sequence parallelism (Shoeybi et al. 2019, figure 3: f and g) activations
// between the regions are whole on every rank, and each border is an identity one way and
// an all-reduce the other; only the all-reduce is a function here. With it (Korthikanti
// et al. 2022, figure 5: g and g-bar) every rank has its part of the sequence between the
// regions; going in gathers, coming out is a reduce-scatter, and each is the other's
// backward. Activations are (s, b, h), so that a part of the sequence is a run of rows.
#ifndef TRIREME_PARALLEL_MAPPINGS_HPP_
#define TRIREME_PARALLEL_MAPPINGS_HPP_

#include "base/exec.hpp"
#include "comm/group.hpp"

namespace trireme::parallel {

// g forward, f backward: x (rows, h) = sum of the ranks' partial results, in place.
template <class T>
comm::Request start_reduce_from_tensor_parallel_region(const Exec& exec,
                                                       comm::Group& tensor, View2<T> x,
                                                       comm::Site site);
template <class T>
void reduce_from_tensor_parallel_region(const Exec& exec, comm::Group& tensor, View2<T> x,
                                        comm::Site site) {
  start_reduce_from_tensor_parallel_region<T>(exec, tensor, x, site).wait(exec);
}

// x (rows, h) = the parts (rows / t, h) of all ranks.
template <class T>
comm::Request start_gather_from_sequence_parallel_region(const Exec& exec,
                                                         comm::Group& tensor,
                                                         View2<const T> part, View2<T> x,
                                                         comm::Site site);
template <class T>
void gather_from_sequence_parallel_region(const Exec& exec, comm::Group& tensor,
                                          View2<const T> part, View2<T> x,
                                          comm::Site site) {
  start_gather_from_sequence_parallel_region<T>(exec, tensor, part, x, site).wait(exec);
}

// part (rows / t, h) = this rank's rows of the sum of the ranks' partial (rows, h), which
// must stay until the Request's wait().
template <class T>
comm::Request start_reduce_scatter_to_sequence_parallel_region(const Exec& exec,
                                                               comm::Group& tensor,
                                                               View2<const T> partial,
                                                               View2<T> part,
                                                               comm::Site site);
template <class T>
void reduce_scatter_to_sequence_parallel_region(const Exec& exec, comm::Group& tensor,
                                                View2<const T> partial, View2<T> part,
                                                comm::Site site) {
  start_reduce_scatter_to_sequence_parallel_region<T>(exec, tensor, partial, part, site)
      .wait(exec);
}

}  // namespace trireme::parallel

#endif  // TRIREME_PARALLEL_MAPPINGS_HPP_
