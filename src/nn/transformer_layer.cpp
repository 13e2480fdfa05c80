// nn/transformer_layer.cpp — see transformer_layer.hpp.
//
// The weight gradients of a part are computed while the messages of its input gradient
// are under way: start_backward_input begins them, the weight pass runs if it is to come
// now, and only then the request is waited for. Where the weight pass comes later, all
// that it reads lies in context.held, and backward_weight does the same for all parts at
// once. With selective recomputation the output of a norm is thrown away after the
// forward pass and is made again, from the norm's input, right before the
// weight gradient that reads it; both norms then share one matrix of scratch memory.
#include "nn/transformer_layer.hpp"

#include "base/types.hpp"
#include "comm/group.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

namespace {

std::string layer_name(index_t layer) {
  return fmt::format("layers/{}", layer);
}

}  // namespace

template <class T>
TransformerLayer<T>::TransformerLayer(const Builder<T>& builder,
                                      const config::ModelConfig& config, index_t layer)
    : hidden_(config.hidden),
      dropout_(config.dropout),
      layer_(static_cast<std::uint16_t>(layer)),
      input_norm_(builder, layer_name(layer) + "/input_norm", config.hidden),
      attention_(builder, layer_name(layer) + "/attention", config, layer),
      mlp_norm_(builder, layer_name(layer) + "/mlp_norm", config.hidden),
      mlp_(builder, layer_name(layer) + "/mlp", config) {}

template <class T>
kernels::DropoutDesc TransformerLayer<T>::dropout(const Context& context,
                                                  random::Site site) const {
  return {.probability = context.mode == Mode::training ? dropout_ : 0.0,
          .batch = context.samples(),
          .sequence_begin = context.sequence_begin(),
          .layer = layer_,
          .site = site};
}

template <class T>
void TransformerLayer<T>::forward(const Context& context, View2<const T> x, View2<T> y,
                                  Saved& saved) const {
  const index_t rows = context.local_rows();
  const ArenaScope scope(context.scratch);
  const bool is_selective = context.recompute.selective;
  Arena& norms = is_selective ? context.scratch : *context.saved;
  const auto normed = norms.matrix<T>(Category::norm, rows, hidden_);
  const auto middle = context.saved->matrix<T>(Category::hidden, rows, hidden_);  // x1
  const auto middle_normed =
      is_selective ? normed : norms.matrix<T>(Category::norm, rows, hidden_);
  const auto branch = context.scratch.matrix<T>(Category::hidden, rows, hidden_);

  input_norm_.forward(context, x, normed, saved.input_norm);
  attention_.forward(context, as_const(normed), branch, saved.attention);
  kernels::bias_dropout_add_forward<T>(
      context.exec, dropout(context, random::Site::attention_output), context.step,
      as_const(branch), attention_.output_bias(), x, middle);
  mlp_norm_.forward(context, as_const(middle), middle_normed, saved.mlp_norm);
  mlp_.forward(context, as_const(middle_normed), branch, saved.mlp);
  kernels::bias_dropout_add_forward<T>(
      context.exec, dropout(context, random::Site::mlp_output), context.step,
      as_const(branch), mlp_.output_bias(), as_const(middle), y);
}

template <class T>
void TransformerLayer<T>::backward_input(const Context& context, View2<const T> d_y,
                                         const Saved& saved, View2<T> d_x, Held& held,
                                         WeightPass weight_pass) const {
  const index_t rows = context.local_rows();
  const bool now = weight_pass == WeightPass::now;
  Arena& memory = context.held;
  const auto d_mlp = memory.matrix<T>(Category::gradient, rows, hidden_);
  const auto d_attention = memory.matrix<T>(Category::gradient, rows, hidden_);
  held.d_mlp_norm = memory.matrix<T>(Category::gradient, rows, hidden_);
  held.d_input_norm = memory.matrix<T>(Category::gradient, rows, hidden_);
  if (context.recompute.selective) {
    held.mlp_norm = mlp_norm_.values_for(context, weight_pass);
    held.input_norm = input_norm_.values_for(context, weight_pass);
  }
  const ArenaScope scope(context.scratch);
  const auto d_middle = context.scratch.matrix<T>(Category::gradient, rows, hidden_);

  kernels::dropout_backward<T>(context.exec, dropout(context, random::Site::mlp_output),
                               context.step, d_y, d_mlp);
  comm::Request request = mlp_.start_backward_input(context, as_const(d_mlp), saved.mlp,
                                                    held.d_mlp_norm, held.mlp);
  if (now) mlp_weight(context, saved, held);
  request.wait(context.exec);
  mlp_norm_.backward_input(context, as_const(held.d_mlp_norm), saved.mlp_norm, d_y,
                           d_middle);
  if (now) mlp_norm_.backward_weight(context, as_const(held.d_mlp_norm), saved.mlp_norm);

  kernels::dropout_backward<T>(context.exec,
                               dropout(context, random::Site::attention_output),
                               context.step, as_const(d_middle), d_attention);
  request = attention_.start_backward_input(
      context, as_const(d_attention), saved.attention, held.d_input_norm, held.attention);
  if (now) attention_weight(context, saved, held);
  request.wait(context.exec);
  input_norm_.backward_input(context, as_const(held.d_input_norm), saved.input_norm,
                             as_const(d_middle), d_x);
  if (now) {
    input_norm_.backward_weight(context, as_const(held.d_input_norm), saved.input_norm);
  }
}

template <class T>
void TransformerLayer<T>::backward_weight(const Context& context, const Saved& saved,
                                          const Held& held) const {
  mlp_weight(context, saved, held);
  mlp_norm_.backward_weight(context, as_const(held.d_mlp_norm), saved.mlp_norm);
  attention_weight(context, saved, held);
  input_norm_.backward_weight(context, as_const(held.d_input_norm), saved.input_norm);
}

template <class T>
View2<const T> TransformerLayer<T>::normed(const Context& context,
                                           const typename LayerNorm<T>::Values& norm,
                                           const typename LayerNorm<T>::Saved& saved,
                                           View2<const T> kept) const {
  if (!context.recompute.selective) return kept;
  const auto y = context.scratch.matrix<T>(Category::norm, context.local_rows(), hidden_);
  LayerNorm<T>::forward_again(context, norm, saved, y);
  return y;
}

template <class T>
void TransformerLayer<T>::attention_weight(const Context& context, const Saved& saved,
                                           const Held& held) const {
  const ArenaScope scope(context.scratch);
  typename Attention<T>::Saved whole = saved.attention;
  whole.x = normed(context, held.input_norm, saved.input_norm, whole.x);
  attention_.backward_weight(context, whole, held.attention);
}

template <class T>
void TransformerLayer<T>::mlp_weight(const Context& context, const Saved& saved,
                                     const Held& held) const {
  const ArenaScope scope(context.scratch);
  typename Mlp<T>::Saved whole = saved.mlp;
  whole.x = normed(context, held.mlp_norm, saved.mlp_norm, whole.x);
  mlp_.backward_weight(context, whole, held.mlp);
}

template <class T>
void TransformerLayer<T>::forward_cached(const Context& context, View2<const T> x,
                                         View2<T> y, KvCache<T>& cache) const {
  const index_t rows = context.rows();
  const ArenaScope scope(context.scratch);
  const ArenaScope statistics(*context.saved);
  const auto normed = context.scratch.matrix<T>(Category::norm, rows, hidden_);
  const auto branch = context.scratch.matrix<T>(Category::hidden, rows, hidden_);
  const auto middle = context.scratch.matrix<T>(Category::hidden, rows, hidden_);
  typename LayerNorm<T>::Saved unused;
  typename Mlp<T>::Saved mlp_unused;

  input_norm_.forward(context, x, normed, unused);
  attention_.forward_cached(context, as_const(normed), branch, cache);
  kernels::bias_dropout_add_forward<T>(
      context.exec, dropout(context, random::Site::attention_output), context.step,
      as_const(branch), attention_.output_bias(), x, middle);
  mlp_norm_.forward(context, as_const(middle), normed, unused);
  mlp_.forward(context, as_const(normed), branch, mlp_unused);
  kernels::bias_dropout_add_forward<T>(
      context.exec, dropout(context, random::Site::mlp_output), context.step,
      as_const(branch), mlp_.output_bias(), as_const(middle), y);
}

#define TRIREME_INSTANTIATE(T) template class TransformerLayer<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
