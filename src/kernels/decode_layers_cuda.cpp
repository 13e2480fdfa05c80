// kernels/decode_layers_cuda.cpp — DecodeLayers on NVIDIA GPUs (kernels/cuda/).
#include "base/error.hpp"
#include "kernels/impl/decode_layers.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels::impl {

int decode_layer_blocks(const Exec& exec, const cuda::DecodeLayersTask& task) {
  if (exec.is_shape_only()) {
    return cuda::most_blocks(task, static_cast<int>(kMultiprocessors));
  }
  return cuda::decode_blocks(task);
}

void launch_decode_layers(const Exec& exec, const Kernel& kernel, DType type,
                          const cuda::DecodeLayersTask& task) {
  const auto element =
      type == DType::bfloat16 ? cuda::Element::bf16 : cuda::Element::fp16;
  LibraryCall call(exec, kernel);
  const char* const message = cuda::decode_layers(cuda_stream_of(exec), element, task);
  TRIREME_REQUIRE(message == nullptr, "{}: {}", kernel.label, message);
  call.finish();
}

}  // namespace trireme::kernels::impl
