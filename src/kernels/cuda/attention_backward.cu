// kernels/cuda/attention_backward.cu — launches attention_backward.hpp.
#include "kernels/cuda/attention_backward.hpp"

#include "kernels/cuda/launch.cuh"

namespace trireme::cuda {
namespace {

template <Element kElement, int kHeadDim>
__global__ void __launch_bounds__(AttentionDelta<kElement, kHeadDim>::kThreads)
    delta_kernel(const __grid_constant__ AttentionBackwardTask task) {
  AttentionDelta<kElement, kHeadDim>::block(task);
}

template <Element kElement, int kHeadDim, bool kDrops, bool kHasBias>
__global__ void __launch_bounds__(
    AttentionBackward<kElement, kHeadDim, kDrops, kHasBias>::kThreads)
    backward_kernel(const __grid_constant__ AttentionBackwardTask task,
                    const KeyTiles of_block) {
  AttentionBackward<kElement, kHeadDim, kDrops, kHasBias>::block(task, of_block);
}

// What the device of this process has of something; 0 where there is none.
int attribute_of_device(cudaDeviceAttr attribute) {
  int device = 0, found = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&found, attribute, device) != cudaSuccess) {
    return 0;
  }
  return found;
}
int multiprocessors() {
  static const int count = attribute_of_device(cudaDevAttrMultiProcessorCount);
  return count;
}

// The same kernel whatever is dropped or added.
template <Element kElement, int kHeadDim, bool kDrops, bool kHasBias>
struct Delta {
  static const char* launch(void* stream, const AttentionBackwardTask& task) {
    using Block = AttentionDelta<kElement, kHeadDim>;
    return launch_blocks(delta_kernel<kElement, kHeadDim>, Block::blocks(task.shape),
                         Block::kThreads, 0, stream, task);
  }
};

template <Element kElement, int kHeadDim, bool kDrops, bool kHasBias>
struct Backward {
  static const char* launch(void* stream, const AttentionBackwardTask& task) {
    using Block = AttentionBackward<kElement, kHeadDim, kDrops, kHasBias>;
    constexpr int kRounds = 16;  // of blocks, so that the last one matters little
    const bool fills =
        task.shape.batch * task.shape.kv_heads >= kRounds * multiprocessors();
    const KeyTiles of_block = fills ? KeyTiles::all : KeyTiles::one;
    return launch_blocks(backward_kernel<kElement, kHeadDim, kDrops, kHasBias>,
                         Block::blocks(task.shape, of_block), Block::kThreads,
                         Block::kSharedBytes, stream, task, of_block);
  }
};

}  // namespace

bool has_room_for_attention(const AttentionShape& shape) {
  static const int room = attribute_of_device(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const bool is_small = shape.head_dim <= 64;
  const int plain = is_small ? AttentionBackward<Element::bf16, 64, false>::kSharedBytes
                             : AttentionBackward<Element::bf16, 128, false>::kSharedBytes;
  const int biased =
      is_small ? AttentionBackward<Element::bf16, 64, false, true>::kSharedBytes
               : AttentionBackward<Element::bf16, 128, false, true>::kSharedBytes;
  const int wanted = shape.has_bias ? biased : plain;
  return room == 0 || wanted <= room;
}

const char* attention_delta(void* stream, Element element,
                            const AttentionBackwardTask& task) {
  return dispatch<Delta>(stream, element, task);
}
const char* attention_backward(void* stream, Element element,
                               const AttentionBackwardTask& task) {
  return dispatch<Backward>(stream, element, task);
}

}  // namespace trireme::cuda
