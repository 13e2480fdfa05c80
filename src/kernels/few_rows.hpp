// kernels/few_rows.hpp — products of few rows with a weight matrix on host cores, as
// generation makes them: bounded by the time that reading the weights takes.
//
//   y (m, out) = x (m, in) W^T,   m at most kFewRows.
// The weights are read once, by all threads, in the type that they have; sums are of
// Accumulator<T>. An element of y has the same bits whatever m is, and whichever other
// rows are there: a library's products do not promise that.
#ifndef TRIREME_KERNELS_FEW_ROWS_HPP_
#define TRIREME_KERNELS_FEW_ROWS_HPP_

#include "base/exec.hpp"

namespace trireme::kernels {

// Rows up to which these products are the faster. On a GPU they are a library's.
inline constexpr index_t kFewRows = kHostExecution ? 16 : 0;

template <class T>
void few_rows_product(const Exec& exec, View2<const T> x, View2<const T> weight,
                      View2<T> y);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_FEW_ROWS_HPP_
