// nn/lm_head.cpp — see lm_head.hpp.
#include "nn/lm_head.hpp"

#include "base/exec.hpp"
#include "kernels/decode_linear.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

template <class T>
LmHead<T>::LmHead(const Builder<T>& builder, index_t hidden,
                  const VocabParallelEmbedding<T>& word,
                  kernels::ObjectiveScale objective, index_t most_rows)
    : hidden_(hidden),
      norm_(builder, "final_norm", hidden),
      words_(builder, word, {.objective = objective, .most_rows = most_rows}) {}

template <class T>
void LmHead<T>::forward(const Context& context, View2<const T> x,
                        View1<const std::int32_t> labels, View1<const float> mask,
                        View1<double> totals, Saved& saved) const {
  const ArenaScope scope(context.scratch);
  // Where gradients are taken, those of LN(x) are kept, and LN(x) is not.
  Arena& arena = context.takes_gradients() ? context.scratch : *context.saved;
  const auto normed = arena.matrix<T>(Category::norm, context.local_rows(), hidden_);
  norm_.forward(context, x, normed, saved.norm);
  words_.forward(context, as_const(normed), labels, mask, totals, saved.words);
}

template <class T>
void LmHead<T>::backward_input(const Context& context, const Saved& saved, View2<T> d_x,
                               WeightPass weight_pass) const {
  norm_.backward_input(context, as_const(saved.words.d_x), saved.norm, {}, d_x);
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
  if (kernels::has_decode_linear<T>(rows, hidden_)) {
    words_.decode(context, norm_.decode_input(x), logits);
    return;
  }
  const auto normed = context.scratch.matrix<T>(Category::norm, rows, hidden_);
  typename LayerNorm<T>::Saved unused;
  norm_.forward(context, x, normed, unused);
  words_.logits(context, as_const(normed), logits);
}

#define TRIREME_INSTANTIATE(T) template class LmHead<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
