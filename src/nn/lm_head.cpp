// nn/lm_head.cpp — see lm_head.hpp.
#include "nn/lm_head.hpp"

#include "comm/group.hpp"
#include "kernels/gemm.hpp"

namespace trireme::nn {

template <class T>
LmHead<T>::LmHead(const Builder<T>& builder, index_t hidden,
                  const VocabParallelEmbedding<T>& word,
                  kernels::ObjectiveScale objective)
    : hidden_(hidden),
      norm_(builder, "final_norm", hidden),
      word_weight_(word.weight()),
      range_{word.begin(), word.valid_rows()},
      objective_(objective) {}

template <class T>
void LmHead<T>::forward(const Context& context, View2<const T> x,
                        View1<const std::int32_t> labels, View1<const float> mask,
                        View1<double> totals, Saved& saved) const {
  using Acc = Accumulator<T>;
  const index_t rows = context.rows();
  Arena& memory = *context.saved;
  saved.normed = memory.matrix<T>(Category::norm, context.local_rows(), hidden_);
  saved.logits = memory.matrix<T>(Category::logits, rows, vocabulary_tp());
  saved.cross_entropy.row_max = memory.vector<Acc>(Category::logits, rows);
  saved.cross_entropy.sums = memory.matrix<Acc>(Category::logits, rows, 2);
  saved.loss = memory.vector<Acc>(Category::logits, rows);

  norm_.forward(context, x, saved.normed, saved.norm);
  {
    const ArenaScope scope(context.scratch);
    const View2<const T> normed =
        gather_rows(context, as_const(saved.normed), context.scratch, "head input");
    kernels::linear_forward<T>(context.exec, normed, word_weight_.operand(),
                               saved.logits);
  }
  parallel::vocab_parallel_cross_entropy_forward<T>(
      context.exec, *context.groups.tensor, range_, as_const(saved.logits), labels, mask,
      saved.cross_entropy, saved.loss, totals);
}

template <class T>
void LmHead<T>::backward_input(const Context& context, View1<const std::int32_t> labels,
                               View1<const float> mask, const Saved& saved, View2<T> d_x,
                               Held& held, WeightPass weight_pass) const {
  held.d_normed =
      context.held.matrix<T>(Category::gradient, context.local_rows(), hidden_);
  kernels::cross_entropy_backward<T>(context.exec, range_, context.step, objective_,
                                     labels, mask, as_const(saved.cross_entropy.row_max),
                                     as_const(saved.cross_entropy.sums), saved.logits);
  const bool now = weight_pass == WeightPass::now;
  const ArenaScope scope(context.scratch);
  GatheredRows<T> normed;  // beside the product of the input gradient
  if (now) normed = start_normed(context, saved);
  comm::Request request =
      start_reduce_rows(context, held.d_normed, context.held, Category::gradient,
                        "head input gradient", [&](const View2<T>& d_normed) {
                          input_gradient(context.exec, as_const(saved.logits), d_normed);
                        });
  if (now) word_gradient(context, saved, std::move(normed));
  request.wait(context.exec);
  norm_.backward_input(context, as_const(held.d_normed), saved.norm, {}, d_x);
  if (now) norm_.backward_weight(context, as_const(held.d_normed), saved.norm);
}

// d_x = d_logits E. Words of padding add exact zeros to its sums. Tensor cores want them,
// for the size; a host does without, and sums in the order that it has without padding.
template <class T>
void LmHead<T>::input_gradient(const Exec& exec, View2<const T> d_logits,
                               View2<T> d_x) const {
  if (kHostExecution) d_logits = without_padding(d_logits);
  const auto words = word_weight_.operand().first_rows(d_logits.extent(1));
  kernels::linear_backward_input<T>(exec, d_logits, words, d_x);
}

template <class T>
GatheredRows<T> LmHead<T>::start_normed(const Context& context,
                                        const Saved& saved) const {
  return start_gather_rows(context, as_const(saved.normed), context.scratch,
                           "head input, for its weight");
}

template <class T>
void LmHead<T>::word_gradient(const Context& context, const Saved& saved,
                              GatheredRows<T> normed) const {
  normed.arrival.wait(context.exec);
  kernels::linear_backward_weight<T>(context.exec, as_const(saved.logits), normed.rows,
                                     word_weight_.begin_gradient(),
                                     word_weight_.matrix_gradient());
}

template <class T>
void LmHead<T>::backward_weight(const Context& context, const Saved& saved,
                                const Held& held) const {
  const ArenaScope scope(context.scratch);
  word_gradient(context, saved, start_normed(context, saved));
  norm_.backward_weight(context, as_const(held.d_normed), saved.norm);
}

template <class T>
void LmHead<T>::logits(const Context& context, View2<const T> x, View2<T> logits) const {
  const ArenaScope scope(context.scratch);
  const ArenaScope statistics(*context.saved);
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto normed = context.scratch.matrix<T>(Category::norm, rows, hidden_);
  typename LayerNorm<T>::Saved unused;
  norm_.forward(context, x, normed, unused);
  kernels::linear_forward<T>(context.exec, as_const(normed), word_weight_.operand(),
                             logits);
}

#define TRIREME_INSTANTIATE(T) template class LmHead<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
