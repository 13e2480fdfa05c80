// kernels/attention.hpp — scaled dot-product attention with masks and dropout.
//
//   o = dropout(softmax(scale q k^T + bias + mask)) v,  per sample and head.
// q, k, v and o are slices of (s, b, .) activations: an element is addressed as
// data[s * sequence_stride + b * batch_stride + head * head_dim + d]. Saved for backward:
// o and lse = log sum exp of every row (b, a, s_q). Dropout masks are drawn again. Dao et
// al. 2022, arXiv:2205.14135; derivation: docs/math/attention.md
//
// On a host, tiles are computed by the widest vectors or by a CPU's own matrix tiles
// (kernels/impl/attention_host.hpp); both give the same bits for every number of threads,
// heads and samples.
#ifndef TRIREME_KERNELS_ATTENTION_HPP_
#define TRIREME_KERNELS_ATTENTION_HPP_

#include <array>
#include <string>

#include "base/exec.hpp"
#include "base/random.hpp"
#include "kernels/step_state.hpp"

namespace trireme::kernels {

// Which keys a query sees:
//   none      all of them (cross attention);
//   causal    those of positions up to its own, which is q + kv_length - q_length where
//             keys are cached;
//   padding   the first key_lengths[sample] ones, whatever the query. Where that is 0, o
//             is 0 and lse minus infinity, and no gradient comes of it;
//   document  of packed samples: those of positions from document_begins[q, sample],
//             where the query's document begins, up to its own. The begins of a sample do
//             not decrease and are not beyond the query;
//   segment   of packed samples, before and behind the query: those of positions from
//             document_begins[q, sample] up to, but not, document_ends[q, sample].
//             Neither decreases within a sample.
// With each of them queries from query_lengths[sample] on, where there are such lengths,
// see no keys, as padding without keys has it: whole tiles of them are passed over.
enum class MaskKind { none, causal, padding, document, segment };

// Whose kernels: Trireme's own; or cuDNN's, for the shapes that it has
// (impl/cudnn_attention.hpp), with gradients whose sums have one order, or any.
enum class AttentionLibrary : std::uint8_t { own, cudnn, cudnn_in_any_order };
// Whether this build can call cuDNN, whose library is looked for at the first call.
bool has_cudnn_attention();
// cuDNN's library on this machine: its version, "9.19.0", or why it cannot be loaded. It
// needs no GPU, and stays loaded.
struct CudnnLibrary {
  std::string version;  // empty: there is none
  std::string problem;
};
const CudnnLibrary& cudnn_library();
// Compute capabilities of GPUs of which one has shown, by the step `attention of cuDNN`
// of perf/gpu_suite, that cuDNN's deterministic attention gives the same bits twice and
// losses as Trireme's own, and by times of whole steps, that these are faster with it.
inline constexpr std::array kCudnnProvenOn = {90};
// Whether cuDNN has heads of this size.
constexpr bool has_cudnn_heads(index_t head_dim) {
  return head_dim % 8 == 0 && head_dim <= 128;
}

struct AttentionDesc {
  index_t batch = 1;      // b
  index_t q_length = 1;   // queries per sample
  index_t kv_length = 1;  // keys per sample
  index_t heads = 1;      // a_tp, query heads of this rank
  index_t kv_heads = 1;   // g_tp; heads % kv_heads == 0
  index_t head_dim = 1;   // d
  MaskKind mask = MaskKind::causal;
  bool has_bias = false;  // added to the scores: see attention_forward()
  const std::int32_t* key_lengths = nullptr;    // (b), of the padding mask
  const std::int32_t* query_lengths = nullptr;  // (b), of any mask
  // (s_q, b), of the document and segment masks, and of the latter.
  const std::int32_t* document_begins = nullptr;
  const std::int32_t* document_ends = nullptr;
  double scale = 1.0;
  double dropout = 0.0;
  // Coordinates of dropout (random::DropoutWords): row (head_begin + head) * mask_queries
  // + query_begin + query of a sample, of mask_keys keys. mask_queries and mask_keys are
  // the model's lengths of a full sample, not the batch's.
  index_t head_begin = 0;
  index_t query_begin = 0;
  index_t mask_queries = 1;
  index_t mask_keys = 1;
  std::uint16_t layer = 0;
  random::Site site = random::Site::attention_probabilities;
  AttentionLibrary library = AttentionLibrary::own;
};

template <class T>
struct HeadsView {
  T* data = nullptr;
  index_t sequence_stride = 0;
  index_t batch_stride = 0;

  KOKKOS_INLINE_FUNCTION T* row(index_t position, index_t sample, index_t head,
                                index_t head_dim) const {
    return data + position * sequence_stride + sample * batch_stride + head * head_dim;
  }
};

// bias (heads, q_length + kv_length - 1), where desc.has_bias: query q adds
// bias[head, q - k + kv_length - 1] to its score with key k, whatever the sample
// (kernels/relative_bias.hpp).
template <class T>
void attention_forward(const Exec& exec, const AttentionDesc& desc, StepStateView step,
                       HeadsView<const T> q, HeadsView<const T> k, HeadsView<const T> v,
                       HeadsView<T> o, View1<Accumulator<T>> lse,
                       View2<const Accumulator<T>> bias = {});

// Scratch for backward: row sums of d_o * o, per-thread tiles, and sums for the bias.
template <class T>
index_t attention_backward_scratch_elements(const AttentionDesc& desc);

// d_q, d_k, d_v are overwritten, and d_bias, which has the shape of the bias: the sum
// over the samples.
template <class T>
void attention_backward(const Exec& exec, const AttentionDesc& desc, StepStateView step,
                        HeadsView<const T> q, HeadsView<const T> k, HeadsView<const T> v,
                        HeadsView<const T> o, View1<const Accumulator<T>> lse,
                        HeadsView<const T> d_o, View1<Accumulator<T>> scratch,
                        HeadsView<T> d_q, HeadsView<T> d_k, HeadsView<T> d_v,
                        View2<const Accumulator<T>> bias = {},
                        View2<Accumulator<T>> d_bias = {});

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_ATTENTION_HPP_
