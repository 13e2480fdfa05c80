// nn/pair_head.cpp — see pair_head.hpp.
#include "nn/pair_head.hpp"

#include "base/error.hpp"
#include "comm/group.hpp"
#include "kernels/activation.hpp"
#include "kernels/initialize.hpp"
#include "kernels/reductions.hpp"
#include "nn/dropout.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

namespace {

constexpr kernels::Activation kPooler = kernels::Activation::tanh;

// The rows of position 0, which are the first, of x or its gradient.
template <class T>
View2<T> first_position(const Context& context, const View2<T>& x) {
  return {x.data(), extent(context.samples()), x.extent(1)};
}

}  // namespace

template <class T>
PairHead<T>::PairHead(const Builder<T>& builder, const std::string& name,
                      const PairHeadForm& form, kernels::ObjectiveScale objective)
    : form_(form),
      objective_(objective),
      pooler_(builder, name + "/pooler", form.hidden, form.hidden, form.init_std),
      classifier_(builder, name + "/classifier", form.hidden, form.classes,
                  form.init_std) {}

template <class T>
void PairHead<T>::forward(const Context& context, View2<const T> x, const Fields& fields,
                          View1<double> totals, Saved& saved) const {
  using Acc = Accumulator<T>;
  const Exec& exec = context.exec;
  const index_t b = context.samples(), h = form_.hidden;
  TRIREME_REQUIRE(static_cast<index_t>(x.extent(0)) == context.local_rows() &&
                      static_cast<index_t>(x.extent(1)) == h,
                  "the head of pairs: x is {} x {}, and not {} x {}", x.extent(0),
                  x.extent(1), context.local_rows(), h);
  Arena& arena = *context.saved;
  saved.first = arena.matrix<T>(Category::hidden, b, h);
  saved.pre_activation = arena.matrix<T>(Category::hidden, b, h);
  saved.p = arena.matrix<T>(Category::hidden, b, h);
  saved.logits = arena.matrix<T>(Category::logits, b, form_.classes);
  saved.row_max = arena.vector<Acc>(Category::logits, b);
  saved.loss = arena.vector<Acc>(Category::logits, b);
  saved.sums = arena.matrix<Acc>(Category::logits, b, 2);

  copy(exec, saved.first, first_position(context, x));
  if (context.sequence_parallel()) {
    context.groups.tensor->broadcast(exec, comm::span_of(saved.first), 0,
                                     "first position of samples");
  }
  pooler_.forward_activated(context, as_const(saved.first), kPooler, saved.pre_activation,
                            saved.p);
  classifier_.forward(context, as_const(saved.p), saved.logits);
  kernels::cross_entropy_row_max_and_sums<T>(exec, range(), as_const(saved.logits),
                                             fields.labels, saved.row_max, saved.sums);
  kernels::cross_entropy_loss<T>(exec, as_const(saved.row_max), as_const(saved.sums),
                                 fields.mask, saved.loss, totals);
}

template <class T>
void PairHead<T>::backward_input(const Context& context, const Fields& fields,
                                 const Saved& saved, kernels::Accumulate accumulate,
                                 View2<T> d_x, Held& held) const {
  const Exec& exec = context.exec;
  const index_t b = context.samples(), h = form_.hidden;
  const auto sums = [&](index_t columns) {
    return context.held.matrix<Accumulator<T>>(
        Category::gradient, kernels::tiled_partial_count(b, columns), columns);
  };
  held.d_pre_activation = context.held.matrix<T>(Category::gradient, b, h);
  held.pooler_sums = sums(h);
  held.classifier_sums = sums(form_.classes);
  held.d_logits = saved.logits;
  kernels::cross_entropy_backward<T>(exec, range(), context.step, objective_,
                                     fields.labels, fields.mask, as_const(saved.row_max),
                                     as_const(saved.sums), held.d_logits);
  kernels::sum_row_blocks<T>(exec, as_const(held.d_logits), held.classifier_sums);
  classifier_.backward_input(context, as_const(held.d_logits), held.d_pre_activation);
  kernels::activation_backward<T>(exec, kPooler, as_const(held.d_pre_activation),
                                  as_const(saved.pre_activation), held.d_pre_activation,
                                  held.pooler_sums);
  if (accumulate == kernels::Accumulate::no) {
    kernels::fill(exec, View1<T>(d_x.data(), d_x.extent(0) * d_x.extent(1)), T{0});
  }
  if (context.sequence_begin() > 0) return;  // position 0 is another rank's
  const ArenaScope scope(context.scratch);
  const auto d_first = context.scratch.matrix<T>(Category::gradient, b, h);
  pooler_.backward_input(context, as_const(held.d_pre_activation), d_first);
  add_rows(context, as_const(d_first), first_position(context, d_x));
}

template <class T>
void PairHead<T>::backward_weight(const Context& context, const Saved& saved,
                                  const Held& held) const {
  classifier_.backward_weight(context, as_const(held.d_logits), as_const(saved.p));
  pooler_.backward_weight(context, as_const(held.d_pre_activation),
                          as_const(saved.first));
  PartialGradients<T> gradients;
  classifier_.backward_bias(as_const(held.classifier_sums), gradients);
  pooler_.backward_bias(as_const(held.pooler_sums), gradients);
  gradients.add_all(context.exec);
}

#define TRIREME_INSTANTIATE(T) template class PairHead<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
