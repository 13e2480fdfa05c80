// kernels/machine_peaks.hpp — what this machine can do, measured: the bounds that every
// kernel and every training step is compared with.
//
// Set-up code: allocates, fences, and takes less than half a second each.
#ifndef TRIREME_KERNELS_MACHINE_PEAKS_HPP_
#define TRIREME_KERNELS_MACHINE_PEAKS_HPP_

#include "base/exec.hpp"

namespace trireme::kernels {

// Bytes per second of a[i] = b[i] + s c[i] on arrays far larger than any cache (STREAM's
// triad: three arrays counted), best of several.
double measured_memory_bandwidth(const Exec& exec);

// Floating-point operations per second of kernels::gemm, best of several. float32,
// float64, bfloat16 or float16. 1024^3 on the host, 8192^3 on a GPU.
double measured_gemm_peak(const Exec& exec, DType type = DType::float32);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_MACHINE_PEAKS_HPP_
