// nn/post_norm_layer.cpp — see post_norm_layer.hpp.
//
// The gradients of a layer, from d_y back, with what each pass over rows reads and makes:
//
//   N2'    d_y                    -> d_s2, d_branch2 (where dropped), sums for b2 and N2
//   Mlp'   d_branch2              -> d_m
//   N1'    d_m + d_s2             -> d_s1, d_branch1, sums for bo and N1
//   Attn'  d_branch1              -> added to d_s1: d_x
// The last sum is taken by the product itself where no other tensor rank has a part of
// it, which adds to what N1' has left in d_x; else by a pass behind the message.
#include "nn/post_norm_layer.hpp"

#include "base/error.hpp"
#include "comm/group.hpp"
#include "kernels/reductions.hpp"

namespace trireme::nn {

template <class T>
PostNormLayer<T>::PostNormLayer(const Builder<T>& builder, const LayerForm& form)
    : hidden_(form.hidden),
      dropout_(form.dropout),
      layer_(form.layer),
      attention_(builder, form.name + "/attention", form.attention),
      attention_norm_(builder, form.name + "/attention_norm", form.hidden, form.norm),
      mlp_(builder, form.name + "/mlp", form.mlp),
      mlp_norm_(builder, form.name + "/mlp_norm", form.hidden, form.norm) {
  TRIREME_REQUIRE(form.norm.kind == kernels::NormKind::layernorm &&
                      form.attention.has_bias && form.mlp.has_bias && !form.cross,
                  "'{}': norms behind the sums are layer norms with biases, of layers "
                  "without cross attention",
                  form.name);
}

template <class T>
void PostNormLayer<T>::forward(const Context& context, View2<const T> x, View2<T> y,
                               Saved& saved) const {
  const index_t rows = context.local_rows();
  const ArenaScope scope(context.scratch);
  Arena& norms = context.recompute.selective ? context.scratch : *context.saved;
  const auto sum1 = context.saved->matrix<T>(Category::hidden, rows, hidden_);
  const auto x1 = norms.matrix<T>(Category::norm, rows, hidden_);
  const auto sum2 = context.saved->matrix<T>(Category::hidden, rows, hidden_);
  const auto branch = context.scratch.matrix<T>(Category::hidden, rows, hidden_);

  attention_.forward(context, x, branch, saved.attention);
  attention_norm_.forward_residual(
      context, dropout(context, random::Site::attention_output), as_const(branch),
      attention_.output_bias(), x, sum1, x1, saved.attention_norm);
  mlp_.forward(context, as_const(x1), branch, saved.mlp);
  mlp_norm_.forward_residual(context, dropout(context, random::Site::mlp_output),
                             as_const(branch), mlp_.output_bias(), as_const(x1), sum2, y,
                             saved.mlp_norm);
}

template <class T>
typename PostNormLayer<T>::SumGradient PostNormLayer<T>::take_sum_gradient(
    const Context& context, random::Site site, const View2<T>& d_sum) const {
  const index_t rows = context.local_rows();
  SumGradient sum;
  const auto d_branch = context.held.matrix<T>(Category::gradient, rows, hidden_);
  sum.branch.dropout = dropout(context, site);
  sum.branch.bias_partials = context.held.matrix<Accumulator<T>>(
      Category::gradient, kernels::partial_count(rows, hidden_), hidden_);
  const bool drops = sum.branch.dropout.probability > 0.0;
  if (drops) sum.branch.d_branch = d_branch;
  sum.d_branch = d_branch;
  sum.d_sum = drops ? d_sum : d_branch;
  return sum;
}

template <class T>
void PostNormLayer<T>::backward_input(const Context& context, View2<const T> d_y,
                                      const Saved& saved, View2<T> d_x, Held& held,
                                      WeightPass weight_pass) const {
  const bool now = weight_pass == WeightPass::now;
  const ArenaScope scope(context.scratch);
  const auto rows_of_scratch = [&] {
    return context.scratch.matrix<T>(Category::gradient, context.local_rows(), hidden_);
  };
  const SumGradient mlp_sum =
      take_sum_gradient(context, random::Site::mlp_output, rows_of_scratch());
  const bool is_alone = context.groups.tensor->size() == 1;
  const SumGradient attention_sum = take_sum_gradient(
      context, random::Site::attention_output, is_alone ? d_x : rows_of_scratch());
  held.mlp_branch = mlp_sum.branch;
  held.attention_branch = attention_sum.branch;
  if (context.recompute.selective) {
    held.attention_norm = attention_norm_.values_for(context, weight_pass);
  }
  const auto d_x1 = rows_of_scratch();
  const auto qkv_bias =
      now ? attention_.take_bias_sums(context, context.scratch) : View2<Accumulator<T>>();
  PartialGradients<T> gradients;

  held.mlp_norm_sums = mlp_norm_.backward_post(context, mlp_sum.branch, d_y, {},
                                               saved.mlp_norm, mlp_sum.d_sum);
  if (now) mlp_norm_.backward_weight(held.mlp_norm_sums, gradients);
  comm::Request request =
      mlp_.start_backward_input(context, mlp_sum.d_branch, saved.mlp, d_x1, held.mlp);
  if (now) mlp_weight(context, saved, held, gradients);
  request.wait(context.exec);
  held.attention_norm_sums = attention_norm_.backward_post(
      context, attention_sum.branch, as_const(d_x1), as_const(mlp_sum.d_sum),
      saved.attention_norm, attention_sum.d_sum);
  if (now) attention_norm_.backward_weight(held.attention_norm_sums, gradients);
  attention_input(context, saved, attention_sum, d_x, held, weight_pass, gradients,
                  qkv_bias);
  if (now) gradients.add_all(context.exec);
}

template <class T>
void PostNormLayer<T>::attention_input(const Context& context, const Saved& saved,
                                       const SumGradient& sum, View2<T> d_x, Held& held,
                                       WeightPass weight_pass,
                                       PartialGradients<T>& gradients,
                                       View2<Accumulator<T>> qkv_bias) const {
  const bool now = weight_pass == WeightPass::now;
  if (context.groups.tensor->size() == 1) {
    const bool is_there = sum.branch.dropout.probability > 0.0;
    if (!is_there) copy(context.exec, d_x, as_const(sum.d_sum));
    attention_.add_backward_input(context, sum.d_branch, saved.attention, d_x,
                                  held.attention);
    if (now) attention_weight(context, saved, held, qkv_bias, gradients);
    return;
  }
  comm::Request request = attention_.start_backward_input(
      context, sum.d_branch, saved.attention, d_x, held.attention);
  if (now) attention_weight(context, saved, held, qkv_bias, gradients);
  request.wait(context.exec);
  add_rows(context, as_const(sum.d_sum), d_x);
}

template <class T>
void PostNormLayer<T>::backward_weight(const Context& context, const Saved& saved,
                                       const Held& held) const {
  const ArenaScope scope(context.scratch);
  const auto qkv_bias = attention_.take_bias_sums(context, context.scratch);
  PartialGradients<T> gradients;
  mlp_norm_.backward_weight(held.mlp_norm_sums, gradients);
  mlp_weight(context, saved, held, gradients);
  attention_norm_.backward_weight(held.attention_norm_sums, gradients);
  attention_weight(context, saved, held, qkv_bias, gradients);
  gradients.add_all(context.exec);
}

template <class T>
void PostNormLayer<T>::attention_weight(const Context& context, const Saved& saved,
                                        const Held& held, View2<Accumulator<T>> qkv_bias,
                                        PartialGradients<T>& gradients) const {
  attention_.backward_weight(context, saved.attention, held.attention, qkv_bias,
                             gradients);
  attention_.backward_output_bias(as_const(held.attention_branch.bias_partials),
                                  gradients);
}

template <class T>
void PostNormLayer<T>::mlp_weight(const Context& context, const Saved& saved,
                                  const Held& held,
                                  PartialGradients<T>& gradients) const {
  const ArenaScope scope(context.scratch);
  typename Mlp<T>::Saved whole = saved.mlp;
  if (context.recompute.selective) {
    const auto x1 =
        context.scratch.matrix<T>(Category::norm, context.local_rows(), hidden_);
    Norm<T>::forward_again(context, held.attention_norm, saved.attention_norm, x1);
    whole.x = x1;
  }
  mlp_.backward_weight(context, whole, held.mlp, gradients);
  mlp_.backward_output_bias(as_const(held.mlp_branch.bias_partials), gradients);
}

#define TRIREME_INSTANTIATE(T) template class PostNormLayer<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
