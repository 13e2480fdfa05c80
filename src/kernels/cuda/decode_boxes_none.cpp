// kernels/cuda/decode_boxes_none.cpp — builds for other GPUs than Hopper, or by a toolkit
// that is too old, have no copies of boxes (decode_boxes.sm90a.cu).
#include "kernels/cuda/decode.hpp"

namespace trireme::cuda {

const char* make_box_maps(const DecodeLayersTask&, const DecodeLayer*, BoxMap*) {
  return "this build copies no boxes";
}

int decode_blocks_by_boxes(Element, const DecodeLayersTask&) {
  return 0;
}

const char* decode_layers_by_boxes(void*, Element, const DecodeLayersTask&) {
  return "this build copies no boxes";
}

}  // namespace trireme::cuda
