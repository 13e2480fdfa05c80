// kernels/reductions.hpp — sums with a fixed order (the same bits every time, whatever
// the number of threads).
#ifndef TRIREME_KERNELS_REDUCTIONS_HPP_
#define TRIREME_KERNELS_REDUCTIONS_HPP_

#include <cstddef>
#include <span>

#include "base/exec.hpp"
#include "kernels/accumulate.hpp"

namespace trireme::kernels {

// Sums over rows are taken in two steps: rows are cut in blocks, by the shape alone, and
// each block's sum goes to a row of `partials`; later the blocks are added in order.
// Kernels that read the rows anyway leave such partials beside their own output (fused
// backward passes, for the gradients of biases and norms), so that the pass that knows
// where the sums go needs no further pass over the rows.
// There are partial_count() of them where a GPU's team has whole rows (norms, dropout),
// tiled_partial_count() where it has a part of each (GeLU, sums by themselves).
index_t partial_count(index_t rows, index_t columns);
index_t tiled_partial_count(index_t rows, index_t columns);
// sums[j] = or += sum over i of partials[i, j], rounded once where G is narrower.
template <class A, class G = A>
struct PartialSum {
  View2<const A> partials;
  Accumulate accumulate = Accumulate::no;
  View1<G> sums;
};
// Several of them are made in one launch.
inline constexpr std::size_t kMostPartialSums = 8;
template <class A, class G = A>
void add_partials(const Exec& exec, std::span<const PartialSum<A, G>> all);
template <class A, class G = A>
void add_partials(const Exec& exec, View2<const A> partials, Accumulate accumulate,
                  View1<G> sums) {
  const PartialSum<A, G> one{partials, accumulate, sums};
  add_partials<A, G>(exec, {&one, 1});
}

// Such partials of x (rows, columns), by a pass for them alone:
// (tiled_partial_count(rows, columns), columns).
template <class T>
void sum_row_blocks(const Exec& exec, View2<const T> x, View2<Accumulator<T>> partials);
// sums[j] = or += sum over rows of x[., j] (bias gradients), by partials in scratch:
// sum_rows_scratch_elements(columns) elements.
index_t sum_rows_scratch_elements(index_t columns);
template <class T, class G = Accumulator<T>>
void sum_rows(const Exec& exec, View2<const T> x, View1<Accumulator<T>> scratch,
              Accumulate accumulate, View1<G> sums);

// count[0] += number of elements that are not finite.
template <class T>
void count_non_finite(const Exec& exec, View1<const T> x, View0<std::int64_t> count);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_REDUCTIONS_HPP_
