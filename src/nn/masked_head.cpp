// nn/masked_head.cpp — see masked_head.hpp.
#include "nn/masked_head.hpp"

#include "base/error.hpp"
#include "comm/group.hpp"
#include "kernels/reductions.hpp"

namespace trireme::nn {

template <class T>
MaskedHead<T>::MaskedHead(const Builder<T>& builder, const std::string& name,
                          const MaskedHeadForm& form,
                          const VocabParallelEmbedding<T>& word,
                          kernels::ObjectiveScale objective)
    : form_(form),
      dense_(builder, name + "/dense", form.hidden, form.hidden, form.init_std),
      norm_(builder, name + "/norm", form.hidden, form.norm),
      words_(
          builder, word,
          {.objective = objective, .most_rows = form.most_rows, .bias = name + "/bias"}) {
  TRIREME_REQUIRE(!builder.is_split,
                  "'{}' is of a stream that is split along the sequence: its rows are to "
                  "be whole on every rank",
                  name);
}

template <class T>
View2<const T> MaskedHead<T>::transform(const Context& context, View2<const T> x,
                                        View1<const std::int32_t> positions, Arena& arena,
                                        Saved& saved) const {
  const index_t rows = context.rows(), h = form_.hidden;
  const index_t text_rows = context.on_stream(form_.text_stream).local_rows();
  TRIREME_REQUIRE(static_cast<index_t>(x.extent(0)) == text_rows &&
                      static_cast<index_t>(x.extent(1)) == h,
                  "the head of masked words: x is {} x {}, and not {} x {}", x.extent(0),
                  x.extent(1), text_rows, h);
  Arena& kept = *context.saved;
  saved.gathered = kept.matrix<T>(Category::hidden, rows, h);
  saved.pre_activation = kept.matrix<T>(Category::hidden, rows, h);
  saved.activation = kept.matrix<T>(Category::hidden, rows, h);
  kernels::gather_rows_forward<T>(context.exec, picked(context, positions), x,
                                  saved.gathered);
  if (context.on_stream(form_.text_stream).sequence_parallel()) {
    context.groups.tensor->all_reduce(context.exec, comm::span_of(saved.gathered),
                                      comm::Op::sum, "rows of masked words");
  }
  dense_.forward_activated(context, as_const(saved.gathered), form_.activation,
                           saved.pre_activation, saved.activation);
  const auto normed = arena.matrix<T>(Category::norm, rows, h);
  norm_.forward(context, as_const(saved.activation), normed, saved.norm);
  return normed;
}

template <class T>
void MaskedHead<T>::forward(const Context& context, View2<const T> x,
                            const Fields& fields, View1<double> totals,
                            Saved& saved) const {
  // Where gradients are taken, those of the norm's output are kept, and that is not.
  const ArenaScope scope(context.scratch);
  Arena& arena = context.takes_gradients() ? context.scratch : *context.saved;
  const auto normed = transform(context, x, fields.positions, arena, saved);
  words_.forward(context, normed, fields.labels, fields.mask, totals, saved.words);
}

template <class T>
void MaskedHead<T>::give_logits(const Context& context, View2<const T> x,
                                View1<const std::int32_t> positions, Saved& saved) const {
  const ArenaScope scope(context.scratch);
  words_.give_logits(context, transform(context, x, positions, context.scratch, saved));
}

template <class T>
void MaskedHead<T>::backward_input(const Context& context, const Fields& fields,
                                   const Saved& saved, kernels::Accumulate accumulate,
                                   View2<T> d_x, Held& held) const {
  const index_t rows = context.rows(), h = form_.hidden;
  const View2<T> d_z = context.held.matrix<T>(Category::gradient, rows, h);
  held.d_pre_activation = d_z;
  held.dense_sums = context.held.matrix<Accumulator<T>>(
      Category::gradient, kernels::tiled_partial_count(rows, h), h);
  held.norm_sums =
      norm_.backward(context, as_const(saved.words.d_x), saved.norm, {}, d_z);
  kernels::activation_backward<T>(context.exec, form_.activation, as_const(d_z),
                                  as_const(saved.pre_activation), d_z, held.dense_sums);
  const ArenaScope scope(context.scratch);
  const auto d_gathered = context.scratch.matrix<T>(Category::gradient, rows, h);
  dense_.backward_input(context, as_const(d_z), d_gathered);
  kernels::gather_rows_backward<T>(context.exec, picked(context, fields.positions),
                                   as_const(d_gathered), accumulate, d_x);
}

template <class T>
void MaskedHead<T>::backward_weight(const Context& context, const Saved& saved,
                                    const Held& held) const {
  dense_.backward_weight(context, as_const(held.d_pre_activation),
                         as_const(saved.gathered));
  PartialGradients<T> gradients;
  dense_.backward_bias(as_const(held.dense_sums), gradients);
  norm_.backward_weight(held.norm_sums, gradients);
  gradients.add_all(context.exec);
  words_.backward_weight(context, saved.words);
}

#define TRIREME_INSTANTIATE(T) template class MaskedHead<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
