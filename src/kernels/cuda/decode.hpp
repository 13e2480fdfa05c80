// kernels/cuda/decode.hpp — the layers of a step of generation in one launch, for
// kernels/decode_layers.hpp: what is launched, in types that any compiler knows.
#ifndef TRIREME_KERNELS_CUDA_DECODE_HPP_
#define TRIREME_KERNELS_CUDA_DECODE_HPP_

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/boxes.hpp"
#include "kernels/cuda/warp.hpp"

namespace trireme::cuda {

inline constexpr int kDecodeThreads = 512;
inline constexpr int kDecodeRows = 4;            // at most
inline constexpr int kDecodeHeadElements = 128;  // at most
inline constexpr int kDecodeOutRows = 256;       // of a matrix in a block, at most
inline constexpr int kDecodeKeys = 256;          // of a head in a block, at a time

inline constexpr int kMatricesOfLayer = 4;
// How a launch brings weights to its multiprocessors (weight_ring.hpp): by the loads of
// all lanes, as every GPU does, or by boxes, as Hopper can.
enum class WeightCopies { quads, boxes };

// A layer's parameters: matrices (out, in) with rows one behind the other, vectors, and
// its keys and values. All begin at multiples of 16 bytes.
struct alignas(16) DecodeLayer {
  // Of the products in their order: qkv ((a + 2 g) d, h), the projection, fc1, fc2.
  const std::uint16_t *weights[kMatricesOfLayer], *biases[kMatricesOfLayer];
  const std::uint16_t *gammas[2], *betas[2];  // of the norms before qkv and fc1
  std::uint16_t *k, *v;                       // (places * capacity, g d)
};

// hidden, ffn and head_dim are multiples of 8.
struct DecodeLayersTask {
  const DecodeLayer* layers = nullptr;  // in device memory
  // Of each layer's matrices in their order, in device memory, where weights come by
  // boxes; else null.
  const BoxMap* maps = nullptr;
  std::int32_t layer_count = 0;
  std::int32_t rows = 1;  // one of each text
  std::int32_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
  float scale = 1, epsilon = 0, per_column = 0;  // the last: 1 / hidden
  // As kernels::CachedTexts.
  const std::int32_t* places = nullptr;
  const std::int32_t* lengths = nullptr;
  std::int32_t first_place = 0, capacity = 1, longest = 1;
  const std::uint16_t* x = nullptr;
  std::uint16_t* y = nullptr;
  std::int64_t x_leading = 0, y_leading = 0;
  // Two sets of words, which are zero at first; and which of them is next.
  std::uint32_t* words = nullptr;
  std::int32_t* turn = nullptr;
  std::int32_t blocks = 0;  // all on the device at once, as launched
  // What is read behind these layers, from its beginning: so many lines of memory are
  // asked for while the last layer waits for its numbers.
  const std::uint16_t* next = nullptr;
  std::int32_t next_lines = 0;
};

// Of a layer's matrix (out, in), by its place in DecodeLayer.
struct MatrixSize {
  int rows, columns;
};
TRIREME_HOST_DEVICE constexpr MatrixSize size_of(const DecodeLayersTask& task,
                                                 int matrix) {
  const int attended = task.heads * task.head_dim;
  const int rows = matrix == 0   ? attended + 2 * task.kv_heads * task.head_dim
                   : matrix == 2 ? task.ffn
                                 : task.hidden;
  const int columns = matrix == 1 ? attended : matrix == 3 ? task.ffn : task.hidden;
  return {rows, columns};
}

// What blocks hand on to each other in a step, of the most texts that a launch has and of
// the most positions: launches of fewer have the same sets.
TRIREME_HOST_DEVICE constexpr std::int64_t words_of_set(const DecodeLayersTask& task) {
  const std::int64_t groups = (task.capacity + kDecodeKeys - 1) / kDecodeKeys;
  const std::int64_t of_row =
      std::int64_t{task.heads + 2 * task.kv_heads} * task.head_dim + 2 * task.hidden +
      task.ffn + task.heads * groups * (task.head_dim + 2) * 2;
  return kDecodeRows * of_row;
}

// As many blocks as there are multiprocessors, but for matrices of few rows: each block
// has some of each. Somewhat fewer, where all of them then have as many rows of the
// hidden size, eights of them: nobody waits for the one that has more (an H100's 132
// multiprocessors took 2 to 3 % longer than 96 blocks, of both 768 and 1536). 0: a block
// would have more rows than it can.
constexpr int most_blocks(const DecodeLayersTask& task, int multiprocessors) {
  constexpr int kRowsTogether = 8;
  const int qkv = (task.heads + 2 * task.kv_heads) * task.head_dim;
  const int all = std::min({task.hidden, task.ffn, qkv, multiprocessors});
  const int most = std::max({task.hidden, task.ffn, qkv});
  const auto has_room = [most](int blocks) {
    return blocks > 0 && (most + blocks - 1) / blocks <= kDecodeOutRows;
  };
  for (int blocks = all; 3 * blocks >= 2 * all && has_room(blocks); --blocks) {
    if (task.hidden % (kRowsTogether * blocks) == 0) return blocks;
  }
  return has_room(all) ? all : 0;
}

// The maps of a task's layers, which lie in host memory, as `layers` does. Null, or what
// the driver says against it.
const char* make_box_maps(const DecodeLayersTask& task, const DecodeLayer* layers,
                          BoxMap* maps);

// What steps of one text and of several are launched with on this device. 0: it has not
// the shared memory, or cannot have a block on each multiprocessor for as long as a
// launch takes, or there is none.
int decode_blocks(Element element, const DecodeLayersTask& task, WeightCopies copies);

// Launched on `stream` (a cudaStream_t). Null, or what CUDA says against it.
const char* decode_layers(void* stream, Element element, const DecodeLayersTask& task);

// What these two are by boxes: in a source of its own, as not every build has them.
int decode_blocks_by_boxes(Element element, const DecodeLayersTask& task);
const char* decode_layers_by_boxes(void* stream, Element element,
                                   const DecodeLayersTask& task);

}  // namespace trireme::cuda

#endif  // TRIREME_KERNELS_CUDA_DECODE_HPP_
