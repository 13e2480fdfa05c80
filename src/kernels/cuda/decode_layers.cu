// kernels/cuda/decode_layers.cu — launches decode_layers.hpp.
#include "kernels/cuda/decode_layers.hpp"

#include "kernels/cuda/launch.cuh"

namespace trireme::cuda {
namespace {

template <Element kElement, int kRows, int kDepth, int kHeadElements>
__global__ void __launch_bounds__(kDecodeThreads, 1)
    decode_kernel(const __grid_constant__ DecodeLayersTask task) {
  DecodeLayers<kElement, kRows, kDepth, kHeadElements>::block(task);
}

// What a device has for a block of its own on each multiprocessor.
struct Room {
  int multiprocessors = 0, shared_bytes = 0;
};
Room room() {
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

// Copies of a warp that are under way: fewer where rows leave no room for more.
constexpr int kFew = 2, kSome = 3, kMany = 4;

template <class Launch>
auto with_depth(const DecodeLayersTask& task, int depth, const Launch& launch) {
  using One = std::integral_constant<int, 1>;
  using Several = std::integral_constant<int, kDecodeRows>;
  using Few = std::integral_constant<int, kFew>;
  using Some = std::integral_constant<int, kSome>;
  using Many = std::integral_constant<int, kMany>;
  if (task.rows == 1) {
    return depth == kMany   ? launch(One(), Many())
           : depth == kSome ? launch(One(), Some())
                            : launch(One(), Few());
  }
  return depth == kSome ? launch(Several(), Some()) : launch(Several(), Few());
}

// The most copies that there is room for; 0: none.
int depth_for(const DecodeLayersTask& task, int shared_bytes) {
  for (const int depth : {kMany, kSome, kFew}) {
    if (task.rows > 1 && depth == kMany) continue;
    const int bytes = with_depth(task, depth, [&](auto rows, auto of_depth) {
      using Block = DecodeLayers<Element::bf16, decltype(rows)::value,
                                 decltype(of_depth)::value, kDecodeHeadElements>;
      return Block::shared_bytes(task);
    });
    if (bytes <= shared_bytes) return depth;
  }
  return 0;
}

template <Element kElement, int kRows, int kDepth, int kHeadElements>
const char* launch(void* stream, const DecodeLayersTask& task) {
  auto* const kernel = decode_kernel<kElement, kRows, kDepth, kHeadElements>;
  using Block = DecodeLayers<kElement, kRows, kDepth, kHeadElements>;
  const int bytes = Block::shared_bytes(task);
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return message_of(status);
  // Blocks wait for each other: refused, where they would not all run at once.
  cudaLaunchAttribute together = {};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(task.blocks));
  config.blockDim = dim3(kDecodeThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &together;
  config.numAttrs = 1;
  return message_of(cudaLaunchKernelEx(&config, kernel, task));
}

template <Element kElement>
const char* launch(void* stream, const DecodeLayersTask& task, int depth) {
  return with_depth(task, depth, [&](auto rows, auto of_depth) {
    constexpr int kRows = decltype(rows)::value, kOfDepth = decltype(of_depth)::value;
    constexpr int kHalf = kDecodeHeadElements / 2;
    return task.head_dim <= kHalf
               ? launch<kElement, kRows, kOfDepth, kHalf>(stream, task)
               : launch<kElement, kRows, kOfDepth, kDecodeHeadElements>(stream, task);
  });
}

}  // namespace

int decode_blocks(const DecodeLayersTask& task) {
  const Room here = room();
  const bool fits = depth_for(task, here.shared_bytes) > 0;
  return fits ? most_blocks(task, here.multiprocessors) : 0;
}

const char* decode_layers(void* stream, Element element, const DecodeLayersTask& task) {
  const int depth = depth_for(task, room().shared_bytes);
  if (depth == 0) return "the rows do not fit a multiprocessor's shared memory";
  return element == Element::bf16 ? launch<Element::bf16>(stream, task, depth)
                                  : launch<Element::fp16>(stream, task, depth);
}

}  // namespace trireme::cuda
