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
#include "kernels/reductions.hpp"
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
  mlp_norm_.forward_residual(context, dropout(context, random::Site::attention_output),
                             as_const(branch), attention_.output_bias(), x, middle,
                             middle_normed, saved.mlp_norm);
  mlp_.forward(context, as_const(middle_normed), branch, saved.mlp);
  kernels::bias_dropout_add_forward<T>(
      context.exec, dropout(context, random::Site::mlp_output), context.step,
      as_const(branch), mlp_.output_bias(), as_const(middle), y);
}

// The gradient of the MLP's output, and sums for its bias. Where nothing is dropped it is
// d_y itself; a weight pass that comes later has a copy, unless it has all rows gathered.
template <class T>
View2<const T> TransformerLayer<T>::branch_gradient(const Context& context,
                                                    View2<const T> d_y, Held& held,
                                                    WeightPass weight_pass) const {
  const index_t rows = context.local_rows();
  const kernels::DropoutDesc dropout = this->dropout(context, random::Site::mlp_output);
  const bool is_copied = dropout.probability > 0.0 ||
                         (weight_pass == WeightPass::later && !context.sequence_parallel);
  const auto d_mlp =
      is_copied ? context.held.matrix<T>(Category::gradient, rows, hidden_) : View2<T>();
  held.mlp_bias = context.held.matrix<Accumulator<T>>(
      Category::gradient, kernels::partial_count(rows), hidden_);
  kernels::bias_dropout_add_backward<T>(context.exec, dropout, context.step, d_y, d_mlp,
                                        held.mlp_bias);
  return is_copied ? as_const(d_mlp) : d_y;
}

template <class T>
void TransformerLayer<T>::backward_input(const Context& context, View2<const T> d_y,
                                         const Saved& saved, View2<T> d_x, Held& held,
                                         WeightPass weight_pass) const {
  const index_t rows = context.local_rows();
  const bool now = weight_pass == WeightPass::now;
  Arena& memory = context.held;
  const auto dropout = this->dropout(context, random::Site::attention_output);
  const bool drops = dropout.probability > 0.0;
  // The gradient of attention's output is held for its weight pass; that of x1 as well
  // where nothing is dropped, as they are the same then.
  const auto d_attention = memory.matrix<T>(Category::gradient, rows, hidden_);
  held.attention_bias = memory.matrix<Accumulator<T>>(
      Category::gradient, kernels::partial_count(rows), hidden_);
  if (context.recompute.selective) {
    held.mlp_norm = mlp_norm_.values_for(context, weight_pass);
    held.input_norm = input_norm_.values_for(context, weight_pass);
  }
  const ArenaScope scope(context.scratch);
  const auto d_middle =
      drops ? context.scratch.matrix<T>(Category::gradient, rows, hidden_) : d_attention;
  const auto d_normed = context.scratch.matrix<T>(Category::gradient, rows, hidden_);

  const View2<const T> d_mlp = branch_gradient(context, d_y, held, weight_pass);
  comm::Request request =
      mlp_.start_backward_input(context, d_mlp, saved.mlp, d_normed, held.mlp);
  if (now) mlp_weight(context, saved, held);
  request.wait(context.exec);
  held.mlp_norm_sums = mlp_norm_.backward_residual(
      context, dropout, as_const(d_normed), saved.mlp_norm, d_y, d_middle,
      drops ? d_attention : View2<T>(), held.attention_bias);
  if (now) mlp_norm_.backward_weight(context, held.mlp_norm_sums);

  request = attention_.start_backward_input(context, as_const(d_attention),
                                            saved.attention, d_normed, held.attention);
  if (now) attention_weight(context, saved, held);
  request.wait(context.exec);
  held.input_norm_sums = input_norm_.backward(context, as_const(d_normed),
                                              saved.input_norm, as_const(d_middle), d_x);
  if (now) input_norm_.backward_weight(context, held.input_norm_sums);
}

template <class T>
void TransformerLayer<T>::backward_weight(const Context& context, const Saved& saved,
                                          const Held& held) const {
  mlp_weight(context, saved, held);
  mlp_norm_.backward_weight(context, held.mlp_norm_sums);
  attention_weight(context, saved, held);
  input_norm_.backward_weight(context, held.input_norm_sums);
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
  attention_.backward_output_bias(context, as_const(held.attention_bias));
}

template <class T>
void TransformerLayer<T>::mlp_weight(const Context& context, const Saved& saved,
                                     const Held& held) const {
  const ArenaScope scope(context.scratch);
  typename Mlp<T>::Saved whole = saved.mlp;
  whole.x = normed(context, held.mlp_norm, saved.mlp_norm, whole.x);
  mlp_.backward_weight(context, whole, held.mlp);
  mlp_.backward_output_bias(context, as_const(held.mlp_bias));
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
  mlp_norm_.forward_residual(context, dropout(context, random::Site::attention_output),
                             as_const(branch), attention_.output_bias(), x, middle,
                             normed, unused);
  mlp_.forward(context, as_const(normed), branch, mlp_unused);
  kernels::bias_dropout_add_forward<T>(
      context.exec, dropout(context, random::Site::mlp_output), context.step,
      as_const(branch), mlp_.output_bias(), as_const(middle), y);
}

#define TRIREME_INSTANTIATE(T) template class TransformerLayer<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
