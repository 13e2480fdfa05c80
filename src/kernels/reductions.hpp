// kernels/reductions.hpp — sums with a fixed order (the same bits every time, whatever
// the number of threads).
#ifndef TRIREME_KERNELS_REDUCTIONS_HPP_
#define TRIREME_KERNELS_REDUCTIONS_HPP_

#include "base/exec.hpp"

namespace trireme::kernels {

// sums[j] += sum over rows of x[., j] (bias gradients). Rows are cut in a fixed number of
// blocks, whose partial sums lie in scratch: sum_rows_scratch_elements(columns) elements.
index_t sum_rows_scratch_elements(index_t columns);
template <class T>
void sum_rows(const Exec& exec, View2<const T> x, View1<Accumulator<T>> scratch,
              View1<Accumulator<T>> sums);

// count[0] += number of elements that are not finite.
template <class T>
void count_non_finite(const Exec& exec, View1<const T> x, View0<std::int64_t> count);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_REDUCTIONS_HPP_
