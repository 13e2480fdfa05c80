// tests/support/emulated_decode_layers.cpp — the launch of
// src/kernels/cuda/decode_layers.cu on a host, by the fibers of warp_emulation.hpp: a GPU
// of a few multiprocessors.
#include <algorithm>
#include <cstddef>

#include "base/exec.hpp"
#include "kernels/cuda/decode.hpp"
#include "kernels/cuda/decode_layers.hpp"
#include "kernels/impl/decode_layers.hpp"
#include "support/warp_emulation.hpp"

namespace trireme::cuda {

namespace {

constexpr int kMultiprocessors = 3;
constexpr int kDepth = 2;

template <Element kElement, int kRows, int kHeadElements>
void emulate(const DecodeLayersTask& task) {
  using Block = DecodeLayers<kElement, kRows, kDepth, kHeadElements>;
  test::run_emulated({.blocks = task.blocks,
                      .threads = Block::kThreads,
                      .shared_bytes = static_cast<std::size_t>(Block::shared_bytes(task)),
                      .blocks_under_way = task.blocks},
                     [&] { Block::block(task); });
}

template <Element kElement>
void emulate(const DecodeLayersTask& task) {
  constexpr int kHalf = kDecodeHeadElements / 2;
  const bool is_narrow = task.head_dim <= kHalf;
  if (task.rows == 1) {
    is_narrow ? emulate<kElement, 1, kHalf>(task)
              : emulate<kElement, 1, kDecodeHeadElements>(task);
  } else {
    is_narrow ? emulate<kElement, kDecodeRows, kHalf>(task)
              : emulate<kElement, kDecodeRows, kDecodeHeadElements>(task);
  }
}

}  // namespace

int decode_blocks(const DecodeLayersTask& task) {
  return most_blocks(task, kMultiprocessors);
}

const char* decode_layers(void*, Element element, const DecodeLayersTask& task) {
  element == Element::bf16 ? emulate<Element::bf16>(task) : emulate<Element::fp16>(task);
  return nullptr;
}

}  // namespace trireme::cuda

namespace trireme::kernels::impl {

void* cuda_stream_of(const Exec&) {
  return nullptr;
}

}  // namespace trireme::kernels::impl
