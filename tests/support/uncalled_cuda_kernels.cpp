// tests/support/uncalled_cuda_kernels.cpp — what src/kernels/cuda/ defines, where there
// is no device: for programs that only count what would be launched. A launch is an
// error.
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/decode.hpp"

namespace trireme::cuda {

bool has_room_for_attention(const AttentionShape&) {
  return true;  // as without a device
}

namespace {

const char* refused() {
  return "a kernel was launched where launches are only counted";
}

}  // namespace

const char* make_box_maps(const DecodeLayersTask&, const DecodeLayer*, BoxMap*) {
  return refused();
}
int decode_blocks(Element, const DecodeLayersTask&, WeightCopies) {
  return 0;
}
const char* decode_layers(void*, Element, const DecodeLayersTask&) {
  return refused();
}
const char* attention_forward(void*, Element, const AttentionForwardTask&) {
  return refused();
}
const char* attention_delta(void*, Element, const AttentionBackwardTask&) {
  return refused();
}
const char* attention_backward(void*, Element, const AttentionBackwardTask&) {
  return refused();
}

}  // namespace trireme::cuda
