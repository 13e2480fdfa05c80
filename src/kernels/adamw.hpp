// kernels/adamw.hpp — AdamW (Loshchilov & Hutter 2019, algorithm 2) over flat slabs, and
// the sum of squares that clipping needs before it: two passes over the gradients, one
// over all else.
//
//   g = gradient * step.gradient_scale
//   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
//   w = w - lr (m / bias_correction1) / (sqrt(v / bias_correction2) + eps) - lr wd w
//   compute = w, rounded to the type that passes compute in
#ifndef TRIREME_KERNELS_ADAMW_HPP_
#define TRIREME_KERNELS_ADAMW_HPP_

#include <type_traits>

#include "base/exec.hpp"
#include "kernels/step_state.hpp"

namespace trireme::kernels {

struct AdamWDesc {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
};

// A run of elements with one decay, and where each array has its first (slabs that are
// sharded begin elsewhere); chunks of at most kAdamWChunk elements, covering what is to
// be updated.
struct AdamWChunk {
  index_t weight = 0;
  index_t gradient = 0;
  index_t moment = 0;
  std::int32_t count = 0;
  std::int16_t decays = 0;
  std::int16_t in_norm = 1;  // 0: counted by another rank that has the same
  index_t compute = 0;       // 0 where there is no compute copy
};
inline constexpr index_t kAdamWChunk = 16384;

// Of the gradients of those chunks that are in the norm: totals[0] += sum of squares, in
// double and in a fixed order; totals[1] += how many are not finite. partial: two numbers
// for each chunk. elements: what the chunks read here have together, for a Tally; the
// chunks themselves lie on the device.
template <class T>
void square_sum_of_chunks(const Exec& exec, View1<const AdamWChunk> chunks,
                          index_t elements, View1<const T> gradient,
                          View1<double> partial, View1<double> totals);

// T: what passes compute in. Where that is narrower than the master weights, `compute` is
// the copy that they read, else an empty View. G: type of the gradients. Nothing is
// written in a step whose state says so (StepState::skips_update). elements: of all
// chunks together.
template <class T, class G = Accumulator<T>>
void adamw(const Exec& exec, const AdamWDesc& desc, StepStateView step,
           View1<const AdamWChunk> chunks, index_t elements,
           std::type_identity_t<View1<const G>> gradient, View1<Accumulator<T>> weight,
           View1<Accumulator<T>> exp_avg, View1<Accumulator<T>> exp_avg_sq,
           View1<T> compute);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_ADAMW_HPP_
