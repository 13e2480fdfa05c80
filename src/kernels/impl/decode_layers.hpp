// kernels/impl/decode_layers.hpp — what a build has of DecodeLayers: a GPU's in
// decode_layers_cuda.cpp, a host's in decode_layers_none.cpp.
#ifndef TRIREME_KERNELS_IMPL_DECODE_LAYERS_HPP_
#define TRIREME_KERNELS_IMPL_DECODE_LAYERS_HPP_

#include "base/exec.hpp"
#include "base/types.hpp"
#include "kernels/cuda/decode.hpp"

namespace trireme::kernels::impl {

// Blocks of a launch on the Exec's device, or on a GPU that plans are made for. 0: there
// is no launch of this shape.
int decode_layer_blocks(const Exec& exec, DType type, const cuda::DecodeLayersTask& task,
                        cuda::WeightCopies copies);

// Of a task's layers, all in host memory. Error where there are none.
void make_box_maps(const cuda::DecodeLayersTask& task, const cuda::DecodeLayer* layers,
                   cuda::BoxMap* maps);

// A GPU's stream (a cudaStream_t), for sources that know no header of CUDA.
void* cuda_stream_of(const Exec& exec);

// On the Exec's queue. Error where the launch is refused.
void launch_decode_layers(const Exec& exec, const Kernel& kernel, DType type,
                          const cuda::DecodeLayersTask& task);

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_DECODE_LAYERS_HPP_
