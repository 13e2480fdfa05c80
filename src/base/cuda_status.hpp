// base/cuda_status.hpp — what the CUDA runtime answers, as an error where it is one. Only
// for sources of a CUDA build.
#ifndef TRIREME_BASE_CUDA_STATUS_HPP_
#define TRIREME_BASE_CUDA_STATUS_HPP_

#include <cuda_runtime.h>

#include "base/error.hpp"

namespace trireme {

// `what` names the call, or says what its failure means.
inline void require_cuda(cudaError_t status, const char* what) {
  TRIREME_REQUIRE(status == cudaSuccess, "{}: {}", what, cudaGetErrorString(status));
}

// Whether a queue or an event that was asked is not there yet. The answer is no failure,
// but the runtime keeps it as the thread's last error, which the next launch would take
// for its own: it is forgotten here.
inline bool is_not_ready(cudaError_t status) {
  if (status != cudaErrorNotReady) return false;
  (void)cudaGetLastError();
  return true;
}

}  // namespace trireme

#endif  // TRIREME_BASE_CUDA_STATUS_HPP_
