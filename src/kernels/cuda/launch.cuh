// kernels/cuda/launch.cuh — launching what the headers of this directory describe as the
// work of a block. For nvcc alone.
#ifndef TRIREME_KERNELS_CUDA_LAUNCH_CUH_
#define TRIREME_KERNELS_CUDA_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/warp.hpp"

namespace trireme::cuda {

// What CUDA says against it, or null.
inline const char* message_of(cudaError_t status) {
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

// Launches a kernel of blocks with so much shared memory; more than 48 KiB has to be
// asked for.
template <class... Arguments>
const char* launch_blocks(void (*kernel)(Arguments...), int blocks, int threads,
                          int shared_bytes, void* stream,
                          const std::type_identity_t<Arguments>&... arguments) {
  constexpr int kWithoutAsking = 48 << 10;
  if (shared_bytes > kWithoutAsking) {
    const cudaError_t status = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (status != cudaSuccess) return message_of(status);
  }
  // Not by <<<>>>, which tells a failure only as the thread's last error: that may be one
  // of another call.
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  return message_of(cudaLaunchKernelEx(&config, kernel, arguments...));
}

// launch(Kernel<kElement, kHeadDim, kDrops, kHasBias>) for what a task asks for.
template <template <Element, int, bool, bool> class Launcher, class Task>
const char* dispatch(void* stream, Element element, const Task& task) {
  const bool drops = task.dropout.threshold != 0;
  const auto of = [&](auto head_dim, auto has_bias) {
    constexpr int kHeadDim = decltype(head_dim)::value;
    constexpr bool kHasBias = decltype(has_bias)::value;
    if (element == Element::bf16) {
      return drops
                 ? Launcher<Element::bf16, kHeadDim, true, kHasBias>::launch(stream, task)
                 : Launcher<Element::bf16, kHeadDim, false, kHasBias>::launch(stream,
                                                                              task);
    }
    return drops
               ? Launcher<Element::fp16, kHeadDim, true, kHasBias>::launch(stream, task)
               : Launcher<Element::fp16, kHeadDim, false, kHasBias>::launch(stream, task);
  };
  if (task.shape.has_bias) {
    switch (task.shape.head_dim) {
      case 64:
        return of(std::integral_constant<int, 64>(), std::true_type());
      case 128:
        return of(std::integral_constant<int, 128>(), std::true_type());
      default:
        return "there is no kernel of this head size with a bias";
    }
  }
  const auto of_head_dim = [&](auto head_dim) { return of(head_dim, std::false_type()); };
  switch (task.shape.head_dim) {
    case 64:
      return of_head_dim(std::integral_constant<int, 64>());
    case 80:
      return of_head_dim(std::integral_constant<int, 80>());
    case 96:
      return of_head_dim(std::integral_constant<int, 96>());
    case 128:
      return of_head_dim(std::integral_constant<int, 128>());
    default:
      return "there is no kernel of this head size";
  }
}

}  // namespace trireme::cuda

#endif  // TRIREME_KERNELS_CUDA_LAUNCH_CUH_
