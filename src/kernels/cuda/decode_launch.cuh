// kernels/cuda/decode_launch.cuh — launches decode_layers.hpp, whose kernels of each way
// to copy weights are in a file of their own. For nvcc alone.
#ifndef TRIREME_KERNELS_CUDA_DECODE_LAUNCH_CUH_
#define TRIREME_KERNELS_CUDA_DECODE_LAUNCH_CUH_

#include "kernels/cuda/decode_layers.hpp"
#include "kernels/cuda/launch.cuh"

namespace trireme::cuda {

namespace {

template <Element kElement, int kRows, int kDepth, int kHeadElements,
          WeightCopies kCopies>
__global__ void __launch_bounds__(kDecodeThreads, 1)
    decode_kernel(const __grid_constant__ DecodeLayersTask task) {
  DecodeLayers<kElement, kRows, kDepth, kHeadElements, kCopies>::block(task);
}

using DecodeKernel = void (*)(DecodeLayersTask);
template <Element kElement, int kRows, int kDepth, int kHeadElements,
          WeightCopies kCopies>
DecodeKernel kernel_of(
    std::type_identity<DecodeLayers<kElement, kRows, kDepth, kHeadElements, kCopies>>) {
  return decode_kernel<kElement, kRows, kDepth, kHeadElements, kCopies>;
}

// What a device has for a block of its own on each multiprocessor; nothing where blocks
// cannot be launched together.
struct Room {
  int multiprocessors = 0, shared_bytes = 0;
};
inline Room room() {
  Room room;
  int device = 0, can_launch = 0;
  const auto ask = [&](cudaDeviceAttr attribute, int& to) {
    return cudaDeviceGetAttribute(&to, attribute, device) == cudaSuccess;
  };
  if (cudaGetDevice(&device) != cudaSuccess ||
      !ask(cudaDevAttrCooperativeLaunch, can_launch) || can_launch == 0 ||
      !ask(cudaDevAttrMultiProcessorCount, room.multiprocessors) ||
      !ask(cudaDevAttrMaxSharedMemoryPerBlockOptin, room.shared_bytes)) {
    return {};
  }
  return room;
}

// What a task is launched by on this device.
struct Chosen {
  DecodeKernel kernel = nullptr;
  int shared_bytes = 0;
};
template <WeightCopies kCopies>
Chosen chosen_for(Element element, const DecodeLayersTask& task, const Room& here) {
  return with_block<kCopies>(element, task, here.shared_bytes, [&](auto block) {
    return Chosen{kernel_of(block), decltype(block)::type::shared_bytes(task)};
  });
}

// Whether a multiprocessor has room for a block of it.
inline bool fits(const Chosen& chosen, const Room& here) {
  int blocks = 0;
  return chosen.shared_bytes <= here.shared_bytes &&
         cudaFuncSetAttribute(chosen.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              chosen.shared_bytes) == cudaSuccess &&
         cudaOccupancyMaxActiveBlocksPerMultiprocessor(
             &blocks, chosen.kernel, kDecodeThreads,
             static_cast<std::size_t>(chosen.shared_bytes)) == cudaSuccess &&
         blocks > 0;
}

template <WeightCopies kCopies>
int blocks_by(Element element, const DecodeLayersTask& task) {
  const Room here = room();
  for (const int rows : {1, kDecodeRows}) {
    DecodeLayersTask of = task;
    of.rows = rows;
    if (!fits(chosen_for<kCopies>(element, of, here), here)) return 0;
  }
  return most_blocks(task, here.multiprocessors);
}

template <WeightCopies kCopies>
const char* launch_by(void* stream, Element element, const DecodeLayersTask& task) {
  const Chosen chosen = chosen_for<kCopies>(element, task, room());
  const cudaError_t status = cudaFuncSetAttribute(
      chosen.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, chosen.shared_bytes);
  if (status != cudaSuccess) return message_of(status);
  // Blocks wait for each other: refused, where they would not all run at once.
  cudaLaunchAttribute together = {};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(task.blocks));
  config.blockDim = dim3(kDecodeThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(chosen.shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &together;
  config.numAttrs = 1;
  return message_of(cudaLaunchKernelEx(&config, chosen.kernel, task));
}

}  // namespace
}  // namespace trireme::cuda

#endif  // TRIREME_KERNELS_CUDA_DECODE_LAUNCH_CUH_
