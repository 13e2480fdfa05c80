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

int decode_blocks(Element, const DecodeLayersTask& task) {
  return most_blocks(task, kEmulatedMultiprocessors);
}

const char* decode_layers(void*, Element element, const DecodeLayersTask& task) {
  with_block(element, task, kEmulatedSharedBytes, [&](auto of) {
    using Block = typename decltype(of)::type;
    test::run_emulated(
        {.blocks = task.blocks,
         .threads = Block::kThreads,
         .shared_bytes = static_cast<std::size_t>(Block::shared_bytes(task)),
         .blocks_under_way = task.blocks},
        [&] { Block::block(task); });
  });
  return nullptr;
}

}  // namespace trireme::cuda

namespace trireme::kernels::impl {

void* cuda_stream_of(const Exec&) {
  return nullptr;
}

}  // namespace trireme::kernels::impl
