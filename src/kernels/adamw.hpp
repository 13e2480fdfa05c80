// kernels/adamw.hpp — AdamW (Loshchilov & Hutter 2019, algorithm 2) over a flat slab.
//
//   g = gradient * step.gradient_scale
//   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
//   w = w - lr (m / bias_correction1) / (sqrt(v / bias_correction2) + eps) - lr wd w
#ifndef TRIREME_KERNELS_ADAMW_HPP_
#define TRIREME_KERNELS_ADAMW_HPP_

#include "base/exec.hpp"
#include "kernels/step_state.hpp"

namespace trireme::kernels {

struct AdamWDesc {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
};

// A run of the slab with one decay; chunks of at most kAdamWChunk elements, in order,
// covering what is to be updated.
struct AdamWChunk {
  index_t begin = 0;
  std::int32_t count = 0;
  std::int32_t decays = 0;
};
inline constexpr index_t kAdamWChunk = 16384;

// T: float or double. All slabs have the same length.
template <class T>
void adamw(const Exec& exec, const AdamWDesc& desc, StepStateView step,
           View1<const AdamWChunk> chunks, View1<const T> gradient, View1<T> weight,
           View1<T> exp_avg, View1<T> exp_avg_sq);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_ADAMW_HPP_
