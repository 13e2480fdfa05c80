// tests/support/emulated_decode_layers.cpp — the launch of
// src/kernels/cuda/decode_layers.cu on a host, by the fibers of warp_emulation.hpp: a GPU
// of a few multiprocessors.
#include <cstddef>

#include "base/exec.hpp"
#include "kernels/cuda/decode.hpp"
#include "kernels/cuda/decode_layers.hpp"
#include "kernels/impl/decode_layers.hpp"
#include "support/warp_emulation.hpp"

namespace trireme::cuda {

namespace {

constexpr int kEmulatedMultiprocessors = 3;
constexpr int kEmulatedSharedBytes = 227 << 10;

}  // namespace

bool has_box_copies() {
  return true;
}
const char* make_box_maps(const DecodeLayersTask& task, const DecodeLayer* layers,
                          BoxMap* maps) {
  for (int i = 0; i < task.layer_count * kMatricesOfLayer; ++i) {
    const int matrix = i % kMatricesOfLayer;
    const MatrixSize size = size_of(task, matrix);
    maps[i] = test::emulated_box_map(layers[i / kMatricesOfLayer].weights[matrix],
                                     size.rows, size.columns);
  }
  return nullptr;
}

int decode_blocks(Element, const DecodeLayersTask& task, WeightCopies) {
  return most_blocks(task, kEmulatedMultiprocessors);
}

const char* decode_layers(void*, Element element, const DecodeLayersTask& task) {
  const auto run = [&](auto of) {
    using Block = typename decltype(of)::type;
    test::run_emulated(
        {.blocks = task.blocks,
         .threads = Block::kThreads,
         .shared_bytes = static_cast<std::size_t>(Block::shared_bytes(task)),
         .blocks_under_way = task.blocks},
        [&] { Block::block(task); });
  };
  if (task.maps == nullptr) {
    with_block<WeightCopies::quads>(element, task, kEmulatedSharedBytes, run);
  } else {
    with_block<WeightCopies::boxes>(element, task, kEmulatedSharedBytes, run);
  }
  return nullptr;
}

}  // namespace trireme::cuda

namespace trireme::kernels::impl {

void* cuda_stream_of(const Exec&) {
  return nullptr;
}

}  // namespace trireme::kernels::impl
