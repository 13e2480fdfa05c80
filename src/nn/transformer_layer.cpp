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
  const kernels::DropoutDesc mlp_dropout = dropout(context, random::Site::mlp_output);
  if (mlp_dropout.probability == 0.0 && context.groups.tensor->size() == 1) {
    mlp_.forward_residual(context, as_const(middle_normed), as_const(middle), y,
                          saved.mlp);
    return;
  }
  mlp_.forward(context, as_const(middle_normed), branch, saved.mlp);
  kernels::bias_dropout_add_forward<T>(context.exec, mlp_dropout, context.step,
                                       as_const(branch), mlp_.output_bias(),
                                       as_const(middle), y);
}

// A weight pass that comes later has a copy of d_y, unless it has all rows gathered.
template <class T>
bool TransformerLayer<T>::keeps_copy(const Context& context,
                                     WeightPass weight_pass) const {
  return weight_pass == WeightPass::later && !context.sequence_parallel();
}

template <class T>
BranchGradient<T> TransformerLayer<T>::mlp_branch(const Context& context,
                                                  WeightPass weight_pass,
                                                  Arena& memory) const {
  const index_t rows = context.local_rows();
  const kernels::DropoutDesc desc = dropout(context, random::Site::mlp_output);
  const bool is_apart = desc.probability > 0.0 || keeps_copy(context, weight_pass);
  BranchGradient<T> branch{.dropout = desc};
  if (is_apart) branch.d_branch = memory.matrix<T>(Category::gradient, rows, hidden_);
  branch.bias_partials = memory.matrix<Accumulator<T>>(
      Category::gradient, kernels::partial_count(rows, hidden_), hidden_);
  return branch;
}

template <class T>
BranchGradient<T> TransformerLayer<T>::leave_branch_gradient(const Context& context,
                                                             Held& held,
                                                             WeightPass weight_pass,
                                                             Arena& memory) const {
  const bool drops = dropout(context, random::Site::mlp_output).probability > 0.0;
  held.has_mlp_branch = drops || !keeps_copy(context, weight_pass);
  if (!held.has_mlp_branch) return {};
  held.mlp_branch = mlp_branch(context, weight_pass, memory);
  return held.mlp_branch;
}

template <class T>
void TransformerLayer<T>::backward_input(const Context& context, View2<const T> d_y,
                                         const Saved& saved, View2<T> d_x, Held& held,
                                         WeightPass weight_pass,
                                         const BranchGradient<T>& before) const {
  const index_t rows = context.local_rows();
  const bool now = weight_pass == WeightPass::now;
  Arena& memory = context.held;
  // The gradient of attention's output is held for its weight pass; that of x1 as well
  // where nothing is dropped, as they are the same then.
  const auto d_attention = memory.matrix<T>(Category::gradient, rows, hidden_);
  BranchGradient<T>& attention_branch = held.attention_branch;
  attention_branch = {.dropout = dropout(context, random::Site::attention_output)};
  attention_branch.bias_partials = memory.matrix<Accumulator<T>>(
      Category::gradient, kernels::partial_count(rows, hidden_), hidden_);
  const bool drops = attention_branch.dropout.probability > 0.0;
  if (drops) attention_branch.d_branch = d_attention;
  if (context.recompute.selective) {
    held.mlp_norm = mlp_norm_.values_for(context, weight_pass);
    held.input_norm = input_norm_.values_for(context, weight_pass);
  }
  const ArenaScope scope(context.scratch);
  const auto d_middle =
      drops ? context.scratch.matrix<T>(Category::gradient, rows, hidden_) : d_attention;
  const auto d_normed = context.scratch.matrix<T>(Category::gradient, rows, hidden_);
  const auto qkv_bias =
      now ? attention_.take_bias_sums(context, context.scratch) : View2<Accumulator<T>>();
  PartialGradients<T> gradients;

  if (!held.has_mlp_branch) {
    held.mlp_branch = mlp_branch(context, weight_pass, memory);
    kernels::bias_dropout_add_backward<T>(context.exec, held.mlp_branch.dropout,
                                          context.step, d_y, held.mlp_branch.d_branch,
                                          held.mlp_branch.bias_partials);
  }
  held.has_mlp_branch = false;  // the next d_y may come without
  const bool is_apart = held.mlp_branch.d_branch.extent(0) > 0;
  const View2<const T> d_mlp = is_apart ? as_const(held.mlp_branch.d_branch) : d_y;
  comm::Request request =
      mlp_.start_backward_input(context, d_mlp, saved.mlp, d_normed, held.mlp);
  if (now) mlp_weight(context, saved, held, gradients);
  request.wait(context.exec);
  held.mlp_norm_sums = mlp_norm_.backward_residual(
      context, attention_branch, as_const(d_normed), saved.mlp_norm, d_y, d_middle);
  if (now) mlp_norm_.backward_weight(held.mlp_norm_sums, gradients);

  request = attention_.start_backward_input(context, as_const(d_attention),
                                            saved.attention, d_normed, held.attention);
  if (now) attention_weight(context, saved, held, qkv_bias, gradients);
  request.wait(context.exec);
  held.input_norm_sums =
      before ? input_norm_.backward_residual(context, before, as_const(d_normed),
                                             saved.input_norm, as_const(d_middle), d_x)
             : input_norm_.backward(context, as_const(d_normed), saved.input_norm,
                                    as_const(d_middle), d_x);
  if (!now) return;
  input_norm_.backward_weight(held.input_norm_sums, gradients);
  gradients.add_all(context.exec);
}

template <class T>
void TransformerLayer<T>::backward_weight(const Context& context, const Saved& saved,
                                          const Held& held) const {
  const ArenaScope scope(context.scratch);
  const auto qkv_bias = attention_.take_bias_sums(context, context.scratch);
  PartialGradients<T> gradients;
  mlp_weight(context, saved, held, gradients);
  mlp_norm_.backward_weight(held.mlp_norm_sums, gradients);
  attention_weight(context, saved, held, qkv_bias, gradients);
  input_norm_.backward_weight(held.input_norm_sums, gradients);
  gradients.add_all(context.exec);
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
                                           const Held& held,
                                           View2<Accumulator<T>> qkv_bias,
                                           PartialGradients<T>& gradients) const {
  const ArenaScope scope(context.scratch);
  typename Attention<T>::Saved whole = saved.attention;
  whole.x = normed(context, held.input_norm, saved.input_norm, whole.x);
  attention_.backward_weight(context, whole, held.attention, qkv_bias, gradients);
  attention_.backward_output_bias(as_const(held.attention_branch.bias_partials),
                                  gradients);
}

template <class T>
void TransformerLayer<T>::mlp_weight(const Context& context, const Saved& saved,
                                     const Held& held,
                                     PartialGradients<T>& gradients) const {
  const ArenaScope scope(context.scratch);
  typename Mlp<T>::Saved whole = saved.mlp;
  whole.x = normed(context, held.mlp_norm, saved.mlp_norm, whole.x);
  mlp_.backward_weight(context, whole, held.mlp, gradients);
  mlp_.backward_output_bias(as_const(held.mlp_branch.bias_partials), gradients);
}

template <class T>
void TransformerLayer<T>::forward_cached(const Context& context, View2<const T> x,
                                         View2<T> y, KvCache<T>& cache) const {
  if (attention_.has_decode(context)) {
    decode(context, x, y, cache);
    return;
  }
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
  if (context.groups.tensor->size() == 1) {
    mlp_.forward_residual(context, as_const(normed), as_const(middle), y, mlp_unused);
    return;
  }
  mlp_.forward(context, as_const(normed), branch, mlp_unused);
  kernels::bias_dropout_add_forward<T>(
      context.exec, dropout(context, random::Site::mlp_output), context.step,
      as_const(branch), mlp_.output_bias(), as_const(middle), y);
}

template <class T>
void TransformerLayer<T>::decode(const Context& context, View2<const T> x, View2<T> y,
                                 const KvCache<T>& cache) const {
  const ArenaScope scope(context.scratch);
  const auto middle =
      context.scratch.matrix<T>(Category::hidden, context.rows(), hidden_);
  attention_.decode(context, input_norm_.decode_input(x), x, middle, cache);
  mlp_.decode(context, mlp_norm_.decode_input(as_const(middle)), as_const(middle), y);
}

#define TRIREME_INSTANTIATE(T) template class TransformerLayer<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
