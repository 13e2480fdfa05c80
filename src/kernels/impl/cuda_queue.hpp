// kernels/impl/cuda_queue.hpp — what a vendor's library is told of an Exec: its stream
// and its device. All that these sources know of Kokkos' CUDA goes through here, so that
// they can be compiled, and run against a library that is made for tests, on a host.
#ifndef TRIREME_KERNELS_IMPL_CUDA_QUEUE_HPP_
#define TRIREME_KERNELS_IMPL_CUDA_QUEUE_HPP_

#include <cublasLt.h>

#include <cstddef>
#include <string>

#include "base/exec.hpp"

namespace trireme::kernels::impl {

struct CudaDevice {
  std::string name;        // "NVIDIA H100 80GB HBM3"
  std::string capability;  // "9.0"
  int multiprocessors = 0;
  std::size_t cache_bytes = 0;  // what all multiprocessors share
};

cudaStream_t stream_of(const Exec& exec);
CudaDevice device_of(const Exec& exec);

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_CUDA_QUEUE_HPP_
