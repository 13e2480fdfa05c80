// kernels/gather_rows.hpp — rows of an activation picked by position, and means of them.
//
// An (s, b, h) activation is (s * b, h): position p of sample n is row p * b + n. Picked
// positions are (count, b), those of a sample in a column, -1 for none. A rank that has
// positions [begin, begin + rows / b) alone picks these, and has zeros for others: the
// sum over ranks, of which one has each, is exact.
#ifndef TRIREME_KERNELS_GATHER_ROWS_HPP_
#define TRIREME_KERNELS_GATHER_ROWS_HPP_

#include <cstdint>

#include "base/exec.hpp"
#include "kernels/accumulate.hpp"

namespace trireme::kernels {

struct PickedPositions {
  View1<const std::int32_t> positions;  // (count * b)
  index_t batch = 1;                    // b
  index_t begin = 0;                    // the position of row 0
};

// y[r] = x at positions[r], or zeros. x (rows, h), y (count * b, h).
template <class T>
void gather_rows_forward(const Exec& exec, const PickedPositions& picked,
                         View2<const T> x, View2<T> y);

// d_x[row] += or = the sum of d_y[r] over what was picked of it, in the order of r, by
// whoever has the row: it may be picked more than once. Where it does not accumulate,
// rows that were not picked become zeros.
template <class T>
void gather_rows_backward(const Exec& exec, const PickedPositions& picked,
                          View2<const T> d_y, Accumulate accumulate, View2<T> d_x);

// y[n] = the mean of x over the first lengths[n] positions of sample n, zeros where there
// are none. A null View: over all. lengths (b), x (rows, h), y (b, h).
template <class T>
void mean_rows(const Exec& exec, View1<const std::int32_t> lengths, View2<const T> x,
               View2<T> y);

// y = x, as numbers that leave the model. Rows of both may be further apart than they are
// long.
template <class T>
void copy_rows_as_float(const Exec& exec, View2<const T> x, View2<float> y);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_GATHER_ROWS_HPP_
