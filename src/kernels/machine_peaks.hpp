// kernels/machine_peaks.hpp — what this machine can do, measured: the bounds that every
// kernel and every training step is compared with.
//
// Set-up code: allocates, fences, and takes less than half a second each.
#ifndef TRIREME_KERNELS_MACHINE_PEAKS_HPP_
#define TRIREME_KERNELS_MACHINE_PEAKS_HPP_

#include <functional>

#include "base/exec.hpp"

namespace trireme::kernels {

// Bytes per second of a[i] = b[i] + s c[i] on arrays far larger than any cache (STREAM's
// triad: three arrays counted), best of several.
double measured_memory_bandwidth(const Exec& exec);

// Measures the speed of kernels::gemm as often as wanted: 1024^3 on the host, 8192^3 on a
// GPU, of float32, float64, bfloat16 or float16. Has its memory (12 MB, 800 MB) as long
// as it lives.
class GemmProbe {
 public:
  explicit GemmProbe(const Exec& exec, DType type = DType::float32);
  // Floating-point operations per second of the fastest of as many products as fit into
  // this time (three at least). Waits for what was launched before.
  double best_within(const Exec& exec, double seconds) const;

 private:
  std::function<void(const Exec&)> product_;
};

// The peak of matrix products, measured within a quarter of a second.
double measured_gemm_peak(const Exec& exec, DType type = DType::float32);

// Floating-point operations per second that the products of a Transformer layer of this
// width reach together, forward and backward, on 1024 rows: the median of several.
double measured_layer_products(const Exec& exec, DType type, index_t width);
// Bytes per second of an update by AdamW of a model that computes in `type`: the median.
double measured_update(const Exec& exec, DType type);
// Seconds from one kernel with nothing to do to the next.
double measured_launch(const Exec& exec);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_MACHINE_PEAKS_HPP_
