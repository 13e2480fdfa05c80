// tests/support/emulated_decode_layers.cpp — the launch of
// src/kernels/cuda/decode_layers.cu on a host: a GPU of a few multiprocessors.
#include "support/emulated_decode_layers.hpp"

#include "base/exec.hpp"
#include "kernels/cuda/decode.hpp"
#include "kernels/impl/decode_layers.hpp"

namespace trireme::cuda {

namespace {

constexpr int kEmulatedMultiprocessors = 3;
constexpr int kEmulatedSharedBytes = 227 << 10;

}  // namespace

const char* make_box_maps(const DecodeLayersTask& task, const DecodeLayer* layers,
                          BoxMap* maps) {
  test::make_emulated_box_maps(task, layers, maps);
  return nullptr;
}

int decode_blocks(Element, const DecodeLayersTask& task, WeightCopies) {
  return most_blocks(task, kEmulatedMultiprocessors);
}

const char* decode_layers(void*, Element element, const DecodeLayersTask& task) {
  test::emulate_decode_layers(element, task, kEmulatedSharedBytes);
  return nullptr;
}

}  // namespace trireme::cuda

namespace trireme::kernels::impl {

void* cuda_stream_of(const Exec&) {
  return nullptr;
}

}  // namespace trireme::kernels::impl
