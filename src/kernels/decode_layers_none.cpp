// kernels/decode_layers_none.cpp — a host has each layer's passes by themselves.
#include "base/error.hpp"
#include "kernels/impl/decode_layers.hpp"

namespace trireme::kernels::impl {

int decode_layer_blocks(const Exec&, DType, const cuda::DecodeLayersTask&,
                        cuda::WeightCopies) {
  return 0;
}

void make_box_maps(const cuda::DecodeLayersTask&, const cuda::DecodeLayer*,
                   cuda::BoxMap*) {
  TRIREME_REQUIRE(false, "kernels::decode_layers: this build copies no boxes");
}

void launch_decode_layers(const Exec&, const Kernel& kernel, DType,
                          const cuda::DecodeLayersTask&) {
  TRIREME_REQUIRE(false, "{}: this build has no such launch", kernel.label);
}

}  // namespace trireme::kernels::impl
