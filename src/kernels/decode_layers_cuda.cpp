// kernels/decode_layers_cuda.cpp — DecodeLayers on NVIDIA GPUs (kernels/cuda/).
#include "base/error.hpp"
#include "kernels/cuda/decode_layers.hpp"
#include "kernels/impl/decode_layers.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels::impl {

namespace {

// Of the GPU that the build is for, as kMultiprocessors.
constexpr bool kHasBoxes = kMultiprocessors != 108;
constexpr int kBlockSharedBytes = kHasBoxes ? 227 << 10 : 163 << 10;

cuda::Element element_for(DType type) {
  return type == DType::bfloat16 ? cuda::Element::bf16 : cuda::Element::fp16;
}

}  // namespace

int decode_layer_blocks(const Exec& exec, DType type, const cuda::DecodeLayersTask& task,
                        cuda::WeightCopies copies) {
  if (!exec.is_shape_only()) return cuda::decode_blocks(element_for(type), task, copies);
  const bool by_boxes = copies == cuda::WeightCopies::boxes;
  if (by_boxes && !kHasBoxes) return 0;
  const int least = by_boxes ? cuda::least_shared_bytes<cuda::WeightCopies::boxes>(task)
                             : cuda::least_shared_bytes<cuda::WeightCopies::quads>(task);
  return least <= kBlockSharedBytes
             ? cuda::most_blocks(task, static_cast<int>(kMultiprocessors))
             : 0;
}

void make_box_maps(const cuda::DecodeLayersTask& task, const cuda::DecodeLayer* layers,
                   cuda::BoxMap* maps) {
  const char* const message = cuda::make_box_maps(task, layers, maps);
  TRIREME_REQUIRE(message == nullptr, "kernels::decode_layers: {}", message);
}

void launch_decode_layers(const Exec& exec, const Kernel& kernel, DType type,
                          const cuda::DecodeLayersTask& task) {
  LibraryCall call(exec, kernel);
  const char* const message =
      cuda::decode_layers(cuda_stream_of(exec), element_for(type), task);
  TRIREME_REQUIRE(message == nullptr, "{}: {}", kernel.label, message);
  call.finish();
}

}  // namespace trireme::kernels::impl
