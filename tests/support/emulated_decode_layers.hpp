// tests/support/emulated_decode_layers.hpp — runs kernels/cuda/decode_layers.hpp by the
// fibers of warp_emulation.hpp, with weights by quads or by boxes as the task has maps.
#ifndef TRIREME_TESTS_SUPPORT_EMULATED_DECODE_LAYERS_HPP_
#define TRIREME_TESTS_SUPPORT_EMULATED_DECODE_LAYERS_HPP_

#include <cstddef>

#include "kernels/cuda/decode_layers.hpp"
#include "support/warp_emulation.hpp"

namespace trireme::test {

// Maps of a task's layers, as cuda::make_box_maps() makes them.
inline void make_emulated_box_maps(const cuda::DecodeLayersTask& task,
                                   const cuda::DecodeLayer* layers, cuda::BoxMap* maps) {
  for (int i = 0; i < task.layer_count * cuda::kMatricesOfLayer; ++i) {
    const int matrix = i % cuda::kMatricesOfLayer;
    const cuda::MatrixSize size = size_of(task, matrix);
    maps[i] = emulated_box_map(layers[i / cuda::kMatricesOfLayer].weights[matrix],
                               size.rows, size.columns);
  }
}

// `shared_bytes` of a multiprocessor decide how many copies are under way.
inline void emulate_decode_layers(cuda::Element element,
                                  const cuda::DecodeLayersTask& task, int shared_bytes,
                                  WarpOrder order = WarpOrder::first_to_last) {
  using cuda::WeightCopies;
  const auto run = [&](auto of) {
    using Block = typename decltype(of)::type;
    run_emulated({.blocks = task.blocks,
                  .threads = Block::kThreads,
                  .shared_bytes = static_cast<std::size_t>(Block::shared_bytes(task)),
                  .order = order,
                  .blocks_under_way = task.blocks},
                 [&] { Block::block(task); });
  };
  if (task.maps == nullptr) {
    cuda::with_block<WeightCopies::quads>(element, task, shared_bytes, run);
  } else {
    cuda::with_block<WeightCopies::boxes>(element, task, shared_bytes, run);
  }
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_EMULATED_DECODE_LAYERS_HPP_
