// kernels/cuda/attention_forward.cu — launches attention_forward.hpp.
#include "kernels/cuda/attention_forward.hpp"

#include "kernels/cuda/launch.cuh"

namespace trireme::cuda {
namespace {

template <Element kElement, int kHeadDim, bool kDrops, bool kHasBias>
__global__ void __launch_bounds__(
    AttentionForward<kElement, kHeadDim, kDrops, kHasBias>::kThreads)
    forward_kernel(const __grid_constant__ AttentionForwardTask task) {
  AttentionForward<kElement, kHeadDim, kDrops, kHasBias>::block(task);
}

template <Element kElement, int kHeadDim, bool kDrops, bool kHasBias>
struct Forward {
  static const char* launch(void* stream, const AttentionForwardTask& task) {
    using Block = AttentionForward<kElement, kHeadDim, kDrops, kHasBias>;
    return launch_blocks(forward_kernel<kElement, kHeadDim, kDrops, kHasBias>,
                         Block::blocks(task.shape), Block::kThreads, Block::kSharedBytes,
                         stream, task);
  }
};

}  // namespace

const char* attention_forward(void* stream, Element element,
                              const AttentionForwardTask& task) {
  return dispatch<Forward>(stream, element, task);
}

}  // namespace trireme::cuda
