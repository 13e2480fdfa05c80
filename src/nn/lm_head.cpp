// nn/lm_head.cpp — see lm_head.hpp.
#include "nn/lm_head.hpp"

#include "base/exec.hpp"
#include "kernels/decode_linear.hpp"
#include "kernels/dropout.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

template <class T>
LmHead<T>::LmHead(const Builder<T>& builder, const LmHeadForm& form,
                  const VocabParallelEmbedding<T>& word,
                  kernels::ObjectiveScale objective)
    : form_(form),
      norm_(builder, "final_norm", form.hidden, form.norm),
      words_(builder, word, {.objective = objective, .most_rows = form.most_rows}) {}

template <class T>
kernels::DropoutDesc LmHead<T>::dropout(const Context& context) const {
  kernels::DropoutDesc desc =
      dropout_of(context, form_.dropout, form_.layer, random::Site::embedding);
  desc.factor = form_.factor;
  return desc;
}

template <class T>
void LmHead<T>::forward(const Context& context, View2<const T> x,
                        View1<const std::int32_t> labels, View1<const float> mask,
                        View1<double> totals, Saved& saved) const {
  const ArenaScope scope(context.scratch);
  // Where gradients are taken, those of n are kept, and n is not.
  Arena& arena = context.takes_gradients() ? context.scratch : *context.saved;
  const auto normed = arena.matrix<T>(Category::norm, context.local_rows(), form_.hidden);
  norm_.forward(context, x, normed, saved.norm);
  drop_rows(context, dropout(context), normed);
  words_.forward(context, as_const(normed), labels, mask, totals, saved.words);
}

template <class T>
void LmHead<T>::backward_input(const Context& context, const Saved& saved, View2<T> d_x,
                               WeightPass weight_pass) const {
  const kernels::DropoutDesc desc = dropout(context);
  const View2<T>& d_n = saved.words.d_x;
  if (changes_rows(desc)) {
    kernels::dropout_backward<T>(context.exec, desc, context.step, as_const(d_n), d_n);
  }
  norm_.backward_input(context, as_const(d_n), saved.norm, {}, d_x);
  if (weight_pass == WeightPass::now) backward_weight(context, saved);
}

template <class T>
void LmHead<T>::backward_weight(const Context& context, const Saved& saved) const {
  norm_.backward_weight(context, as_const(saved.words.d_x), saved.norm);
  words_.backward_weight(context, saved.words);
}

template <class T>
void LmHead<T>::logits(const Context& context, View2<const T> x, View2<T> logits) const {
  const ArenaScope scope(context.scratch);
  const ArenaScope statistics(*context.saved);
  const auto rows = static_cast<index_t>(x.extent(0));
  const bool is_layer_norm = form_.norm.kind == kernels::NormKind::layernorm;
  kernels::DropoutDesc desc = dropout(context);
  desc.batch = 1;  // any number of rows, of which none is dropped
  if (is_layer_norm && !changes_rows(desc) &&
      kernels::has_decode_linear<T>(rows, form_.hidden)) {
    words_.decode(context, norm_.decode_input(x), logits);
    return;
  }
  const auto normed = context.scratch.matrix<T>(Category::norm, rows, form_.hidden);
  typename Norm<T>::Saved unused;
  norm_.forward(context, x, normed, unused);
  drop_rows(context, desc, normed);
  words_.logits(context, as_const(normed), logits);
}

#define TRIREME_INSTANTIATE(T) template class LmHead<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
