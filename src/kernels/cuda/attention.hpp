// kernels/cuda/attention.hpp — attention of 16-bit elements on tensor cores, for
// kernels/attention.hpp: what is launched, in types that any compiler knows.
#ifndef TRIREME_KERNELS_CUDA_ATTENTION_HPP_
#define TRIREME_KERNELS_CUDA_ATTENTION_HPP_

#include <cstdint>

#include "kernels/cuda/warp.hpp"

namespace trireme::cuda {

// Rows of heads in (s, b, .) activations; distances in elements, multiples of 8, of 32
// bits, so that a row's address is one multiplication. The first one lies at a multiple
// of 16 bytes.
struct Heads {
  std::uint16_t* data = nullptr;
  std::int32_t sequence_stride = 0, batch_stride = 0;
};
struct ConstHeads {
  const std::uint16_t* data = nullptr;
  std::int32_t sequence_stride = 0, batch_stride = 0;
};

// Dropout of probabilities, by random::DropoutWords. Null pointers: threshold is 0.
struct AttentionDropout {
  std::uint32_t threshold = 0;  // words below it are dropped; 0: nothing is
  float keep_scale = 1;
  const std::uint64_t* seed = nullptr;         // in device memory,
  const std::uint64_t* sample_base = nullptr;  // of StepState
  std::uint32_t site = 0;                      // the fourth word of Philox's counter
  std::int64_t first_row = 0;                  // of head 0 and query 0 of every sample
  std::int64_t rows_per_head = 0, calls_per_row = 0;
};

struct AttentionShape {
  std::int32_t batch, q_length, kv_length, heads, kv_heads, head_dim;
  float scale;  // positive
  // A query sees the keys [begin, end): begin is document_begins[query, sample] or 0, end
  // the smallest of its own position and one more, of key_lengths[sample], of
  // document_ends[query, sample] and of kv_length, as far as they are given; none from
  // query_lengths[sample] on.
  bool is_causal;
  const std::int32_t* key_lengths;
  const std::int32_t* query_lengths;
  const std::int32_t* document_begins;
  const std::int32_t* document_ends;
  // Whether something is added to scores, by the distance of query and key: of query q
  // and key k what lies at q - k + kv_length - 1 of the head's row of bias.
  bool has_bias;
};

struct AttentionForwardTask {
  AttentionShape shape;
  AttentionDropout dropout;
  ConstHeads q, k, v;
  Heads o;
  float* lse;         // (b, a, s_q)
  const float* bias;  // (a, s_q + s_k - 1), of shape.has_bias
};

struct AttentionBackwardTask {
  AttentionShape shape;
  AttentionDropout dropout;
  ConstHeads q, k, v, o, d_o;
  const float* lse;  // (b, a, s_q)
  Heads d_q, d_k, d_v;
  float* delta;            // (b, a, s_q): sums over d of d_o * o
  FloatQuad* d_q_sums;     // of tiles of queries, in the order of their threads
  std::int32_t* counters;  // of those tiles: how many tiles of keys were added; a ticket
  const float* bias;       // (a, s_q + s_k - 1), of shape.has_bias
  float* bias_sums;        // of tiles of keys: windows of the bias's gradient
};

// Head sizes that there are kernels for.
constexpr bool is_head_dim(std::int64_t head_dim) {
  return head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128;
}
// Those of T5.
constexpr bool is_head_dim_with_bias(std::int64_t head_dim) {
  return head_dim == 64 || head_dim == 128;
}

// What d_q_sums and counters point to.
inline constexpr int kBackwardQueries = 64;  // of a tile
constexpr std::int64_t tiles_of_queries(const AttentionShape& shape) {
  const std::int64_t tiles = (shape.q_length + kBackwardQueries - 1) / kBackwardQueries;
  return tiles * shape.heads * shape.batch;
}
constexpr std::int64_t sum_quads_of_tile(std::int64_t head_dim) {
  return kBackwardQueries * head_dim / 4;
}
constexpr std::int64_t counters_of(const AttentionShape& shape) {
  return tiles_of_queries(shape) + 1;
}

// What bias_sums points to. Each tile of keys of a head of a sample has a window of sums,
// over all queries: of query q and key k of a tile the one at q - k + kBackwardKeys.
inline constexpr int kBackwardKeys = 128;  // of a tile
constexpr std::int64_t key_tiles_of(const AttentionShape& shape) {
  return (shape.kv_length + kBackwardKeys - 1) / kBackwardKeys;
}
constexpr std::int64_t window_of_bias(const AttentionShape& shape) {
  const std::int64_t tiles = (shape.q_length + kBackwardQueries - 1) / kBackwardQueries;
  return tiles * kBackwardQueries + kBackwardKeys;
}
constexpr std::int64_t bias_sums_of(const AttentionShape& shape) {
  const std::int64_t windows = key_tiles_of(shape) * shape.heads * shape.batch;
  return shape.has_bias ? windows * window_of_bias(shape) : 0;
}

// Whether blocks of this device may have the shared memory that the kernels want: those
// of sm_80 and sm_90 may, those of sm_86, sm_89 and sm_120 may not. True without a
// device, for plans.
bool has_room_for_attention(const AttentionShape& shape);

// Launched on `stream` (a cudaStream_t). Null, or what CUDA says against it.
const char* attention_forward(void* stream, Element element,
                              const AttentionForwardTask& task);
// delta and the counters, which attention_backward() goes by.
const char* attention_delta(void* stream, Element element,
                            const AttentionBackwardTask& task);
const char* attention_backward(void* stream, Element element,
                               const AttentionBackwardTask& task);

}  // namespace trireme::cuda

#endif  // TRIREME_KERNELS_CUDA_ATTENTION_HPP_
