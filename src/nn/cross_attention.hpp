// nn/cross_attention.hpp — attention of a decoder to what an encoder has made of the
// source, tensor-parallel over heads (Vaswani et al. 2017).
//
//   q = Wq x + bq;  [k; v] = Wkv memory + bkv;  o = attention(q, k, v);  y = Wo o
// (bo is left to the residual addition that follows.) x are rows of the context's stream,
// memory those of the form's key stream; both are local rows. Saves x, memory, q (rows,
// a_tp d), kv (source rows, 2 g_tp d), o and lse. Holds d_y, d_q and d_kv for the weight
// pass.
#ifndef TRIREME_NN_CROSS_ATTENTION_HPP_
#define TRIREME_NN_CROSS_ATTENTION_HPP_

#include <string>

#include "base/types.hpp"
#include "comm/group.hpp"
#include "kernels/accumulate.hpp"
#include "nn/attention.hpp"
#include "nn/layer_form.hpp"
#include "nn/linear.hpp"
#include "nn/weight_gradients.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

// Where the gradient of the memory goes: the last layer that reads it in a forward pass
// writes it, those before add to it.
template <class T>
struct MemoryGradient {
  View2<T> d_memory = {};  // (local source rows, h)
  kernels::Accumulate accumulate = kernels::Accumulate::no;
};

template <class T>
class CrossAttention {
 public:
  struct Saved {
    View2<const T> x, memory;   // (rows, h), (source rows, h)
    View2<T> q, kv, o;          // (rows, a_tp d), (source rows, 2 g_tp d), (rows, a_tp d)
    View1<Accumulator<T>> lse;  // (b, a_tp, s)
  };
  struct Held {
    View2<const T> d_y;  // (rows, h): all rows
    View2<T> d_q, d_kv;
  };
  // Sums over blocks of rows, for the gradients of biases; null where there are none.
  struct BiasSums {
    View2<Accumulator<T>> q, kv;
  };

  CrossAttention(const Builder<T>& builder, const std::string& name,
                 const AttentionForm& form);

  // memory must live until backward_weight, as x must.
  void forward(const Context& context, View2<const T> x, View2<const T> memory,
               View2<T> y, Saved& saved) const;
  // d_y must live until backward_weight; d_x is there after wait(), d_memory at once.
  comm::Request start_backward_input(const Context& context, View2<const T> d_y,
                                     const Saved& saved, View2<T> d_x,
                                     const MemoryGradient<T>& d_memory, Held& held) const;
  // The gradients of biases come with add_all() of `gradients`, until when `sums` must
  // live, which take_bias_sums() takes.
  void backward_weight(const Context& context, const Saved& saved, const Held& held,
                       const BiasSums& sums, PartialGradients<T>& gradients) const;
  BiasSums take_bias_sums(const Context& context, Arena& memory) const;

  // Generation. The keys and values of the source come to the cache, at the beginning of
  // the texts that are made from it; then new positions of these texts see them, as those
  // of Attention::forward_cached() do their own. All memory is of context.scratch.
  void begin_text(const Context& context, View2<const T> memory,
                  const KvCache<T>& cache) const;
  void forward_cached(const Context& context, View2<const T> x, View2<T> y,
                      const KvCache<T>& cache) const;

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
  Context source_of(const Context& context) const {
    return context.on_stream(form_.key_stream);
  }
  void backward_memory(const Context& source, const MemoryGradient<T>& d_memory,
                       View2<const T> d_kv) const;
  kernels::AttentionDesc describe(const Context& context) const {
    return describe_attention(context, form_, heads_);
  }
  // The first column of the values.
  index_t values_begin() const { return kv_columns(); }

  AttentionForm form_;
  HeadRange heads_;
  ColumnParallelLinear<T> q_, kv_;
  RowParallelLinear<T> projection_;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_CROSS_ATTENTION_HPP_
