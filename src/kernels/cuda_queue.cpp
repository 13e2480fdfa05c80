// kernels/cuda_queue.cpp — see impl/cuda_queue.hpp.
#include "kernels/impl/cuda_queue.hpp"

#include <fmt/format.h>

#include "base/exec.hpp"
#include "kernels/impl/decode_layers.hpp"

namespace trireme::kernels::impl {

cudaStream_t stream_of(const Exec& exec) {
  return exec.space().cuda_stream();
}

void* cuda_stream_of(const Exec& exec) {
  return stream_of(exec);
}

CudaDevice device_of(const Exec& exec) {
  const cudaDeviceProp& device = exec.space().cuda_device_prop();
  return {.name = device.name,
          .capability = fmt::format("{}.{}", device.major, device.minor),
          .multiprocessors = device.multiProcessorCount,
          .cache_bytes = static_cast<std::size_t>(device.l2CacheSize)};
}

}  // namespace trireme::kernels::impl
