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

#include <utility>

#include "base/error.hpp"
#include "base/types.hpp"
#include "comm/group.hpp"
#include "kernels/reductions.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

namespace {

// Parameters are registered in the order of the passes, those of cross attention between
// the others'.
template <class T>
std::optional<Norm<T>> cross_norm_of(const Builder<T>& builder, const LayerForm& form) {
  if (!form.cross) return {};
  return Norm<T>(builder, form.name + "/cross_norm", form.hidden, form.norm);
}
template <class T>
std::optional<CrossAttention<T>> cross_of(const Builder<T>& builder,
                                          const LayerForm& form) {
  if (!form.cross) return {};
  return CrossAttention<T>(builder, form.name + "/cross", *form.cross);
}

// Whether a layer is what kernels::DecodeLayers computes. Positions are no affair of such
// a layer: they come with the words.
bool is_plain(const LayerForm& form, bool has_relative_bias) {
  return form.norm.kind == kernels::NormKind::layernorm && !form.cross &&
         !has_relative_bias && form.attention.mask == kernels::MaskKind::causal &&
         form.attention.has_bias && !form.mlp.is_gated &&
         form.mlp.activation == kernels::Activation::gelu_tanh && form.mlp.has_bias;
}

}  // namespace

template <class T>
TransformerLayer<T>::TransformerLayer(const Builder<T>& builder, const LayerForm& form,
                                      std::optional<RelativeBias<T>> relative_bias)
    : hidden_(form.hidden),
      dropout_(form.dropout),
      layer_(form.layer),
      has_decode_(form.norm.kind == kernels::NormKind::layernorm && !form.cross),
      may_join_others_(is_plain(form, relative_bias.has_value())),
      input_norm_(builder, form.name + "/input_norm", form.hidden, form.norm),
      attention_(builder, form.name + "/attention", form.attention,
                 std::move(relative_bias)),
      cross_norm_(cross_norm_of(builder, form)),
      cross_(cross_of(builder, form)),
      mlp_norm_(builder, form.name + "/mlp_norm", form.hidden, form.norm),
      mlp_(builder, form.name + "/mlp", form.mlp) {}

template <class T>
void TransformerLayer<T>::forward(const Context& context, View2<const T> x, View2<T> y,
                                  Saved& saved, View2<const T> memory) const {
  const index_t rows = context.local_rows();
  const ArenaScope scope(context.scratch);
  const bool is_selective = context.recompute.selective;
  Arena& norms = is_selective ? context.scratch : *context.saved;
  const auto normed = norms.matrix<T>(Category::norm, rows, hidden_);
  View2<T> middle = context.saved->matrix<T>(Category::hidden, rows, hidden_);  // x1
  const auto next_normed = [&] {
    return is_selective ? normed : norms.matrix<T>(Category::norm, rows, hidden_);
  };
  View2<T> middle_normed = next_normed();
  const auto branch = context.scratch.matrix<T>(Category::hidden, rows, hidden_);

  input_norm_.forward(context, x, normed, saved.input_norm);
  attention_.forward(context, as_const(normed), branch, saved.attention);
  const Norm<T>& behind = cross_ ? *cross_norm_ : mlp_norm_;
  behind.forward_residual(context, dropout(context, random::Site::attention_output),
                          as_const(branch), attention_.output_bias(), x, middle,
                          middle_normed, cross_ ? saved.cross_norm : saved.mlp_norm);
  if (cross_) {
    cross_->forward(context, as_const(middle_normed), memory, branch, saved.cross);
    const View2<T> residual = middle;
    middle = context.saved->matrix<T>(Category::hidden, rows, hidden_);  // x2
    middle_normed = next_normed();
    mlp_norm_.forward_residual(
        context, dropout(context, random::Site::cross_attention_output), as_const(branch),
        cross_->output_bias(), as_const(residual), middle, middle_normed, saved.mlp_norm);
  }
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
  if (mlp_.has_bias()) {
    branch.bias_partials = memory.matrix<Accumulator<T>>(
        Category::gradient, kernels::partial_count(rows, hidden_), hidden_);
  }
  return branch;
}

// Where whoever wrote d_y has not made it.
template <class T>
void TransformerLayer<T>::make_mlp_branch(const Context& context, View2<const T> d_y,
                                          Held& held, WeightPass weight_pass) const {
  const bool is_made = held.has_mlp_branch;
  held.has_mlp_branch = false;  // the next d_y may come without
  if (is_made) return;
  held.mlp_branch = mlp_branch(context, weight_pass, context.held);
  const BranchGradient<T>& branch = held.mlp_branch;
  if (mlp_.has_bias()) {
    kernels::bias_dropout_add_backward<T>(context.exec, branch.dropout, context.step, d_y,
                                          branch.d_branch, branch.bias_partials);
  } else if (branch.dropout.probability > 0.0) {
    kernels::dropout_backward<T>(context.exec, branch.dropout, context.step, d_y,
                                 branch.d_branch);
  } else if (branch) {
    copy(context.exec, branch.d_branch, d_y);
  }
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
BranchGradient<T> TransformerLayer<T>::attention_branch(const Context& context,
                                                        random::Site site, bool has_bias,
                                                        const View2<T>& d_output) const {
  BranchGradient<T> branch{.dropout = dropout(context, site)};
  if (has_bias) {
    branch.bias_partials = context.held.matrix<Accumulator<T>>(
        Category::gradient, kernels::partial_count(context.local_rows(), hidden_),
        hidden_);
  }
  if (branch.dropout.probability > 0.0) branch.d_branch = d_output;
  return branch;
}

// d_x1 and d_x2 are gradients of sums that are normed. Each is held for a weight pass
// where nothing is dropped, as it is then the gradient of an output of attention.
template <class T>
void TransformerLayer<T>::backward_input(const Context& context, View2<const T> d_y,
                                         const Saved& saved, View2<T> d_x, Held& held,
                                         WeightPass weight_pass,
                                         const BranchGradient<T>& before,
                                         const MemoryGradient<T>& d_memory) const {
  const index_t rows = context.local_rows();
  const bool now = weight_pass == WeightPass::now;
  const auto d_attention = context.held.matrix<T>(Category::gradient, rows, hidden_);
  held.attention_branch = attention_branch(context, random::Site::attention_output,
                                           attention_.has_bias(), d_attention);
  const bool drops = held.attention_branch.dropout.probability > 0.0;
  View2<T> d_cross;
  if (cross_) {
    d_cross = context.held.matrix<T>(Category::gradient, rows, hidden_);
    held.cross_branch = attention_branch(context, random::Site::cross_attention_output,
                                         cross_->has_bias(), d_cross);
  }
  if (context.recompute.selective) {
    held.mlp_norm = mlp_norm_.values_for(context, weight_pass);
    if (cross_) held.cross_norm = cross_norm_->values_for(context, weight_pass);
    held.input_norm = input_norm_.values_for(context, weight_pass);
  }
  const ArenaScope scope(context.scratch);
  const auto d_middle =
      drops ? context.scratch.matrix<T>(Category::gradient, rows, hidden_) : d_attention;
  const View2<T> d_second = drops || !cross_ ? d_middle : d_cross;  // d_x2
  const auto d_normed = context.scratch.matrix<T>(Category::gradient, rows, hidden_);
  const BiasSums bias_sums = now ? take_bias_sums(context) : BiasSums{};
  PartialGradients<T> gradients;

  make_mlp_branch(context, d_y, held, weight_pass);
  const bool is_apart = held.mlp_branch.d_branch.extent(0) > 0;
  const View2<const T> d_mlp = is_apart ? as_const(held.mlp_branch.d_branch) : d_y;
  comm::Request request =
      mlp_.start_backward_input(context, d_mlp, saved.mlp, d_normed, held.mlp);
  if (now) mlp_weight(context, saved, held, gradients);
  request.wait(context.exec);
  held.mlp_norm_sums = mlp_norm_.backward_branch(
      context, cross_ ? held.cross_branch : held.attention_branch, as_const(d_normed),
      saved.mlp_norm, d_y, d_second);
  if (now) mlp_norm_.backward_weight(held.mlp_norm_sums, gradients);

  if (cross_) {
    cross_input(context, saved, d_second, d_memory, d_normed, d_middle, held,
                {weight_pass, bias_sums, gradients});
  }

  request = attention_.start_backward_input(context, as_const(d_attention),
                                            saved.attention, d_normed, held.attention);
  if (now) attention_weight(context, saved, held, bias_sums, gradients);
  request.wait(context.exec);
  held.input_norm_sums = input_norm_.backward_branch(
      context, before, as_const(d_normed), saved.input_norm, as_const(d_middle), d_x);
  if (!now) return;
  input_norm_.backward_weight(held.input_norm_sums, gradients);
  gradients.add_all(context.exec);
}

// d_x2 -> d_x1, with cross attention and the norm before it.
template <class T>
void TransformerLayer<T>::cross_input(const Context& context, const Saved& saved,
                                      View2<T> d_x2, const MemoryGradient<T>& d_memory,
                                      View2<T> d_normed, View2<T> d_x1, Held& held,
                                      const WeightSums& sums) const {
  const bool now = sums.weight_pass == WeightPass::now;
  const View2<T>& d_branch = held.cross_branch.d_branch;
  const View2<T>& d_cross = d_branch.extent(0) > 0 ? d_branch : d_x2;
  comm::Request request = cross_->start_backward_input(
      context, as_const(d_cross), saved.cross, d_normed, d_memory, held.cross);
  if (now) cross_weight(context, saved, held, sums.biases, sums.gradients);
  request.wait(context.exec);
  held.cross_norm_sums =
      cross_norm_->backward_branch(context, held.attention_branch, as_const(d_normed),
                                   saved.cross_norm, as_const(d_x2), d_x1);
  if (now) cross_norm_->backward_weight(held.cross_norm_sums, sums.gradients);
}

template <class T>
typename TransformerLayer<T>::BiasSums TransformerLayer<T>::take_bias_sums(
    const Context& context) const {
  BiasSums sums;
  sums.qkv = attention_.take_bias_sums(context, context.scratch);
  if (cross_) sums.cross = cross_->take_bias_sums(context, context.scratch);
  return sums;
}

template <class T>
void TransformerLayer<T>::backward_weight(const Context& context, const Saved& saved,
                                          const Held& held) const {
  const ArenaScope scope(context.scratch);
  const BiasSums bias_sums = take_bias_sums(context);
  PartialGradients<T> gradients;
  mlp_weight(context, saved, held, gradients);
  mlp_norm_.backward_weight(held.mlp_norm_sums, gradients);
  if (cross_) {
    cross_weight(context, saved, held, bias_sums, gradients);
    cross_norm_->backward_weight(held.cross_norm_sums, gradients);
  }
  attention_weight(context, saved, held, bias_sums, gradients);
  input_norm_.backward_weight(held.input_norm_sums, gradients);
  gradients.add_all(context.exec);
}

template <class T>
View2<const T> TransformerLayer<T>::normed(const Context& context,
                                           const typename Norm<T>::Values& norm,
                                           const typename Norm<T>::Saved& saved,
                                           View2<const T> kept) const {
  if (!context.recompute.selective) return kept;
  const auto y = context.scratch.matrix<T>(Category::norm, context.local_rows(), hidden_);
  Norm<T>::forward_again(context, norm, saved, y);
  return y;
}

template <class T>
void TransformerLayer<T>::attention_weight(const Context& context, const Saved& saved,
                                           const Held& held, const BiasSums& sums,
                                           PartialGradients<T>& gradients) const {
  const ArenaScope scope(context.scratch);
  typename Attention<T>::Saved whole = saved.attention;
  whole.x = normed(context, held.input_norm, saved.input_norm, whole.x);
  attention_.backward_weight(context, whole, held.attention, sums.qkv, gradients);
  attention_.backward_output_bias(as_const(held.attention_branch.bias_partials),
                                  gradients);
}

template <class T>
void TransformerLayer<T>::cross_weight(const Context& context, const Saved& saved,
                                       const Held& held, const BiasSums& sums,
                                       PartialGradients<T>& gradients) const {
  const ArenaScope scope(context.scratch);
  typename CrossAttention<T>::Saved whole = saved.cross;
  whole.x = normed(context, held.cross_norm, saved.cross_norm, whole.x);
  cross_->backward_weight(context, whole, held.cross, sums.cross, gradients);
  cross_->backward_output_bias(as_const(held.cross_branch.bias_partials), gradients);
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
void TransformerLayer<T>::begin_text(const Context& context, View2<const T> memory,
                                     const KvCache<T>& cache) const {
  TRIREME_REQUIRE(cross_.has_value(), "a layer without cross attention reads no source");
  cross_->begin_text(context, memory, cache);
}

template <class T>
void TransformerLayer<T>::forward_cached(const Context& context, View2<const T> x,
                                         View2<T> y, KvCache<T>& cache) const {
  if (has_decode_ && mlp_.has_decode() && attention_.has_decode(context)) {
    decode(context, x, y, cache);
    return;
  }
  const index_t rows = context.rows();
  const ArenaScope scope(context.scratch);
  const ArenaScope statistics(*context.saved);
  const auto normed = context.scratch.matrix<T>(Category::norm, rows, hidden_);
  const auto branch = context.scratch.matrix<T>(Category::hidden, rows, hidden_);
  View2<T> middle = context.scratch.matrix<T>(Category::hidden, rows, hidden_);
  typename Norm<T>::Saved unused;
  typename Mlp<T>::Saved mlp_unused;

  input_norm_.forward(context, x, normed, unused);
  attention_.forward_cached(context, as_const(normed), branch, cache);
  const Norm<T>& behind = cross_ ? *cross_norm_ : mlp_norm_;
  behind.forward_residual(context, dropout(context, random::Site::attention_output),
                          as_const(branch), attention_.output_bias(), x, middle, normed,
                          unused);
  if (cross_) {
    cross_->forward_cached(context, as_const(normed), branch, cache);
    const View2<const T> residual = middle;
    middle = context.scratch.matrix<T>(Category::hidden, rows, hidden_);
    mlp_norm_.forward_residual(
        context, dropout(context, random::Site::cross_attention_output), as_const(branch),
        cross_->output_bias(), residual, middle, normed, unused);
  }
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

template <class T>
std::optional<kernels::DecodeLayer<T>> TransformerLayer<T>::decode_layer(
    const KvCache<T>& cache) const {
  if (!may_join_others_) return {};
  kernels::DecodeLayer<T> layer;
  layer.epsilon = input_norm_.epsilon();
  layer.attention_gamma = input_norm_.weight();
  layer.attention_beta = input_norm_.own_bias();
  layer.mlp_gamma = mlp_norm_.weight();
  layer.mlp_beta = mlp_norm_.own_bias();
  attention_.add_to(layer, cache);
  mlp_.add_to(layer);
  return layer;
}

#define TRIREME_INSTANTIATE(T) template class TransformerLayer<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
