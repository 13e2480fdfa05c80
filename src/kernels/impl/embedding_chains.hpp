// kernels/impl/embedding_chains.hpp — the gradient of a look-up where columns alone do
// not give enough parallel work (GPUs): rows with the same id are linked in order, and
// one team walks each chain. Works on every device; embedding.cpp chooses.
#ifndef TRIREME_KERNELS_IMPL_EMBEDDING_CHAINS_HPP_
#define TRIREME_KERNELS_IMPL_EMBEDDING_CHAINS_HPP_

#include "base/exec.hpp"
#include "kernels/accumulate.hpp"

namespace trireme::kernels {

// Computes what embedding_backward does; scratch: 2 * rows integers.
template <class T, class G = Accumulator<T>>
void embedding_backward_chains(const Exec& exec, View1<const std::int32_t> ids,
                               View2<const T> d_y, index_t row_begin,
                               View1<std::int32_t> scratch, Accumulate accumulate,
                               View2<G> d_table);

// The same with chains linked by one thread that goes through the rows once: for hosts.
// scratch: 2 * rows integers and one for each row of the table.
template <class T, class G = Accumulator<T>>
void embedding_backward_in_order(const Exec& exec, View1<const std::int32_t> ids,
                                 View2<const T> d_y, index_t row_begin,
                                 View1<std::int32_t> scratch, Accumulate accumulate,
                                 View2<G> d_table);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_EMBEDDING_CHAINS_HPP_
