// nn/attention.hpp — self-attention, tensor-parallel over heads.
//
//   [q; k; v] = Wqkv x + bqkv;  o = attention(q, k, v);  y = Wo o
// (bo is left to the residual addition that follows). Which keys a query sees, and what
// is added to their scores, the form says. Saves x, qkv (rows, (a + 2 g)_tp d), o and
// lse. Holds d_y and d_qkv for the weight pass, and the gradient of a relative bias.
#ifndef TRIREME_NN_ATTENTION_HPP_
#define TRIREME_NN_ATTENTION_HPP_

#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/types.hpp"
#include "comm/group.hpp"
#include "kernels/attention.hpp"
#include "kernels/decode_attention.hpp"
#include "kernels/decode_layers.hpp"
#include "kernels/decode_linear.hpp"
#include "nn/layer_form.hpp"
#include "nn/linear.hpp"
#include "nn/relative_bias.hpp"
#include "nn/weight_gradients.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

// Keys and values of the positions already generated, for one layer: rows as
// kernels/decode_attention.hpp has them.
template <class T>
struct KvCache {
  View2<T> k, v;  // (places * capacity, g_tp * d)
  // The texts of the call, with the positions that it adds.
  kernels::CachedTexts texts = {};
  // The same of what each text is made from, where there is such: its keys and values
  // stand in the text's place, and all of its positions are there from the beginning.
  View2<T> source_k = {}, source_v = {};
  kernels::CachedTexts sources = {};
};

// What a kernel is told of attention, here: of heads [head_begin, head_begin + heads) of
// the model, queries of context.stream and keys of the stream `keys`.
struct HeadRange {
  index_t begin = 0, heads = 1, kv_heads = 1;
};
// Those of this rank; Error where a tensor group cannot share the form's heads.
template <class T>
HeadRange heads_of_rank(const Builder<T>& builder, const std::string& name,
                        const AttentionForm& form) {
  const int size = builder.tensor_size();
  TRIREME_REQUIRE(form.heads % size == 0 && form.kv_heads % size == 0,
                  "{}: {} and {} key heads over {}", name,
                  format_plural(form.heads, "head"), form.kv_heads,
                  format_plural(size, "rank"));
  const index_t heads = form.heads / size;
  return {heads * builder.tensor_rank(), heads, form.kv_heads / size};
}
kernels::AttentionDesc describe_attention(const Context& context,
                                          const AttentionForm& form,
                                          const HeadRange& range);

// Columns of `matrix` from `column` on, as those of heads.
template <class U>
kernels::HeadsView<U> heads_of(const Context& context, View2<U> matrix,
                               index_t column = 0) {
  const auto width = static_cast<index_t>(matrix.extent(1));
  // A shape-only pass has no memory to point into.
  U* const data = matrix.data() == nullptr ? nullptr : matrix.data() + column;
  return {data, context.samples() * width, width};
}

// Keys and values of texts in a cache, (places * capacity, g_tp * d), and what is added
// to scores: the bias of queries that are the last of texts.longest positions.
template <class T>
struct CachedKeys {
  const kernels::CachedTexts& texts;
  View2<const T> k, v;
  View2<const Accumulator<T>> bias = {};
};
// o (rows, a_tp * d) of the queries in the first columns of `q` (rows, .): a position of
// each text, or several of texts of one length in neighbouring places, as `desc` has it.
template <class T>
void attend_cached(const Context& context, kernels::AttentionDesc desc, View2<const T> q,
                   const CachedKeys<T>& keys, View2<T> o);

// Initial values of stacked matrices, each of which has rows of its own.
struct StackedRows {
  index_t rows = 0;
  double std = 0.0;
};
Initializer stacked_init(std::initializer_list<StackedRows> matrices);

template <class T>
class Attention {
 public:
  struct Saved {
    View2<const T> x;           // (rows, h)
    View2<T> qkv;               // (rows, (a + 2 g)_tp * d)
    View2<T> o;                 // (rows, a_tp * d)
    View1<Accumulator<T>> lse;  // (b, a_tp, s)
  };
  struct Held {
    View2<const T> d_y;            // (rows, h): all rows
    View2<T> d_qkv;                // (rows, (a + 2 g)_tp * d)
    View2<Accumulator<T>> d_bias;  // of a relative bias
  };

  Attention(const Builder<T>& builder, const std::string& name, const AttentionForm& form,
            std::optional<RelativeBias<T>> relative_bias = {});

  void forward(const Context& context, View2<const T> x, View2<T> y, Saved& saved) const;
  // d_y must live until backward_weight; d_x is there after wait().
  comm::Request start_backward_input(const Context& context, View2<const T> d_y,
                                     const Saved& saved, View2<T> d_x, Held& held) const;
  // The same, added to what is in d_x.
  void add_backward_input(const Context& context, View2<const T> d_y, const Saved& saved,
                          View2<T> d_x, Held& held) const;
  // The bias's gradient comes with add_all() of `gradients`, until when its sums over
  // blocks of rows must live: qkv_bias (blocks, columns of qkv), which take_bias_sums()
  // takes.
  void backward_weight(const Context& context, const Saved& saved, const Held& held,
                       View2<Accumulator<T>> qkv_bias,
                       PartialGradients<T>& gradients) const;
  View2<Accumulator<T>> take_bias_sums(const Context& context, Arena& memory) const;

  // Generation: context.sequence new positions of each text, the last of those that
  // cache.texts has, come to the cache. Several at a time are those of texts of one
  // length in neighbouring places. All memory is taken from context.scratch.
  void forward_cached(const Context& context, View2<const T> x, View2<T> y,
                      const KvCache<T>& cache) const;

  // The same of one position of each text with what stands beside it, y = residual +
  // attention of `input` + bo, where has_decode().
  void decode(const Context& context, const kernels::DecodeInput<T>& input,
              View2<const T> residual, View2<T> y, const KvCache<T>& cache) const;
  // Whether a layer's step is of the rows of this context, and of sizes, that are done in
  // as few launches as a GPU wants.
  bool has_decode(const Context& context) const;
  // What of a layer's step in one launch is attention's.
  void add_to(kernels::DecodeLayer<T>& layer, const KvCache<T>& cache) const;

  // The output bias's gradient, from what the residual addition's backward pass leaves.
  void backward_output_bias(View2<const Accumulator<T>> partials,
                            PartialGradients<T>& gradients) const {
    projection_.backward_bias(partials, gradients);
  }

  View1<const T> output_bias() const { return projection_.bias(); }
  bool has_bias() const { return projection_.has_bias(); }
  // Columns of a KvCache view: g_tp * d.
  index_t kv_columns() const { return heads_.kv_heads * form_.head_size; }

 private:
  kernels::AttentionDesc describe(const Context& context) const {
    kernels::AttentionDesc desc = describe_attention(context, form_, heads_);
    desc.has_bias = relative_bias_.has_value();
    return desc;
  }
  kernels::CachedHeads cached_heads() const {
    return {heads_.heads, heads_.kv_heads, form_.head_size, form_.scale};
  }
  // The gradients of q, k and v.
  void backward_heads(const Context& context, View2<const T> d_y, const Saved& saved,
                      Held& held) const;
  void require_room(const Context& context, const kernels::CachedTexts& texts) const;
  template <class U>
  struct Parts {
    kernels::HeadsView<U> q, k, v;
  };
  // Of the three parts of qkv, or its gradients.
  template <class U>
  Parts<U> parts_of(const Context& context, View2<U> qkv) const {
    const index_t d = form_.head_size;
    return {heads_of(context, qkv), heads_of(context, qkv, heads_.heads * d),
            heads_of(context, qkv, (heads_.heads + heads_.kv_heads) * d)};
  }

  AttentionForm form_;
  HeadRange heads_;
  std::optional<RelativeBias<T>> relative_bias_;
  ColumnParallelLinear<T> qkv_;
  RowParallelLinear<T> projection_;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_ATTENTION_HPP_
