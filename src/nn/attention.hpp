// nn/attention.hpp — causal self-attention, tensor-parallel over heads.
//
//   [q; k; v] = Wqkv x + bqkv;  o = attention(q, k, v);  y = Wo o
// (bo is left to the residual addition that follows). Saves x, qkv (rows, (a + 2 g)_tp
// d), o and lse. Holds d_y and d_qkv for the weight pass.
#ifndef TRIREME_NN_ATTENTION_HPP_
#define TRIREME_NN_ATTENTION_HPP_

#include <string>

#include "base/types.hpp"
#include "comm/group.hpp"
#include "config/deck.hpp"
#include "kernels/attention.hpp"
#include "kernels/decode_attention.hpp"
#include "kernels/decode_linear.hpp"
#include "nn/linear.hpp"
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
    View2<const T> d_y;  // (rows, h): all rows
    View2<T> d_qkv;      // (rows, (a + 2 g)_tp * d)
  };

  // `layer`: the global number, for the dropout mask.
  Attention(const Builder<T>& builder, const std::string& name,
            const config::ModelConfig& config, index_t layer);

  void forward(const Context& context, View2<const T> x, View2<T> y, Saved& saved) const;
  // d_y must live until backward_weight; d_x is there after wait().
  comm::Request start_backward_input(const Context& context, View2<const T> d_y,
                                     const Saved& saved, View2<T> d_x, Held& held) const;
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

  // The output bias's gradient, from what the residual addition's backward pass leaves.
  void backward_output_bias(View2<const Accumulator<T>> partials,
                            PartialGradients<T>& gradients) const {
    projection_.backward_bias(partials, gradients);
  }

  View1<const T> output_bias() const { return projection_.bias(); }
  // Columns of a KvCache view: g_tp * d.
  index_t kv_columns() const { return kv_heads_tp_ * config_.head_elements(); }

 private:
  kernels::AttentionDesc describe(const Context& context) const;
  void require_room(const Context& context, const kernels::CachedTexts& texts) const;
  kernels::CachedHeads cached_heads(const Context& context) const {
    return {heads_tp_, kv_heads_tp_, config_.head_elements(), describe(context).scale};
  }
  void attend_cached(const Context& context, View2<const T> qkv, const KvCache<T>& cache,
                     View2<T> o) const;
  template <class U>
  struct Parts {
    kernels::HeadsView<U> q, k, v;
  };
  // Columns of `matrix` from `column` on; of the three parts of qkv, or its gradients.
  template <class U>
  kernels::HeadsView<U> heads(const Context& context, View2<U> matrix,
                              index_t column = 0) const;
  template <class U>
  Parts<U> parts_of(const Context& context, View2<U> qkv) const {
    const index_t d = config_.head_elements();
    return {heads(context, qkv), heads(context, qkv, heads_tp_ * d),
            heads(context, qkv, (heads_tp_ + kv_heads_tp_) * d)};
  }

  config::ModelConfig config_;
  std::uint16_t layer_;
  index_t heads_tp_, kv_heads_tp_, head_begin_;
  ColumnParallelLinear<T> qkv_;
  RowParallelLinear<T> projection_;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_ATTENTION_HPP_
