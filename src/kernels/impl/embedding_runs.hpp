// kernels/impl/embedding_runs.hpp — the gradient of a look-up where columns alone do not
// give enough parallel work (GPUs): rows are sorted by id, and one team adds up those of
// each id, which lie side by side. Works on every device; embedding.cpp chooses.
#ifndef TRIREME_KERNELS_IMPL_EMBEDDING_RUNS_HPP_
#define TRIREME_KERNELS_IMPL_EMBEDDING_RUNS_HPP_

#include "base/exec.hpp"
#include "kernels/accumulate.hpp"

namespace trireme::kernels {

// Computes what embedding_backward does; scratch: 2 * rows integers.
template <class T, class G = Accumulator<T>>
void embedding_backward_runs(const Exec& exec, View1<const std::int32_t> ids,
                             View2<const T> d_y, index_t row_begin,
                             View1<std::int32_t> scratch, Accumulate accumulate,
                             View2<G> d_table);

// The same with rows sorted by one thread that goes through them twice: for hosts.
// scratch: 2 * rows integers and one for each row of the table.
template <class T, class G = Accumulator<T>>
void embedding_backward_in_order(const Exec& exec, View1<const std::int32_t> ids,
                                 View2<const T> d_y, index_t row_begin,
                                 View1<std::int32_t> scratch, Accumulate accumulate,
                                 View2<G> d_table);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_EMBEDDING_RUNS_HPP_
