// kernels/dropout.hpp — dropout by counter, fused with what stands beside it.
//
// Element j of sequence position s of sample n is kept when its 16-bit word is not below
// T = round(65536 p), and then scaled by 65536 / (65536 - T), its exact inverse rate. The
// word depends on global coordinates only (random::DropoutWords): generator (seed,
// sample, layer, site), row = global sequence position, row length h. The seed and the
// sample of column 0 are read from the StepState; nothing is saved for backward, the mask
// is drawn again.
#ifndef TRIREME_KERNELS_DROPOUT_HPP_
#define TRIREME_KERNELS_DROPOUT_HPP_

#include "base/exec.hpp"
#include "base/random.hpp"
#include "kernels/step_state.hpp"

namespace trireme::kernels {

// Which mask, and how it lies over a (s, b, h) activation flattened to (s * b, h): row r
// is position sequence_begin + r / batch of sample sample_base + r % batch.
struct DropoutDesc {
  double probability = 0.0;    // 0: everything is kept, no numbers are drawn
  index_t batch = 1;           // b, samples side by side
  index_t sequence_begin = 0;  // global position of row 0 (sequence-parallel shards)
  std::uint16_t layer = 0;
  random::Site site = random::Site::embedding;
  // What dropout(x) is multiplied with besides, in no pass of its own: T5's 1 / sqrt(h)
  // before its tied head. For bias_dropout_add_forward() and dropout_backward() alone.
  double factor = 1.0;
};

// y = residual + factor dropout(x + bias). bias may be a null View (none), residual too.
// y may alias x or residual. All (rows, h), bias (h); rows is a multiple of desc.batch.
template <class T>
void bias_dropout_add_forward(const Exec& exec, const DropoutDesc& desc,
                              StepStateView step, View2<const T> x, View1<const T> bias,
                              View2<const T> residual, View2<T> y);

// d_x = mask * d_y * 65536 / (65536 - T): the gradient of x; the residual's is d_y
// itself. Beside it sums of d_x over blocks of rows are left, the gradient of the bias:
// (partial_count(rows, h), h), for add_partials(). d_x may alias d_y. Where nothing is
// dropped it may be a null View: it is d_y then, which is read for the sums alone.
template <class T>
void bias_dropout_add_backward(const Exec& exec, const DropoutDesc& desc,
                               StepStateView step, View2<const T> d_y, View2<T> d_x,
                               View2<Accumulator<T>> bias_partials);

// d_x alone, times the factor. It may alias d_y.
template <class T>
void dropout_backward(const Exec& exec, const DropoutDesc& desc, StepStateView step,
                      View2<const T> d_y, View2<T> d_x);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_DROPOUT_HPP_
