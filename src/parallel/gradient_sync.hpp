// parallel/gradient_sync.hpp — making the ranks' gradients one before the optimizer step.
//
// Order matters: the two copies of a tied embedding (first and last stage) are summed
// first, then every gradient over the data group.
#ifndef TRIREME_PARALLEL_GRADIENT_SYNC_HPP_
#define TRIREME_PARALLEL_GRADIENT_SYNC_HPP_

#include "comm/rank_grid.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::parallel {

// `tied`: index of the embedding that first and last stage share (on both of them).
template <class T>
void synchronise_gradients(const Exec& exec, const comm::ProcessGroups& groups,
                           const ParamBuffer<T>& params, std::size_t tied);

}  // namespace trireme::parallel

#endif  // TRIREME_PARALLEL_GRADIENT_SYNC_HPP_
