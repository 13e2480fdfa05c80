// nn/dropout.hpp — what layers do to their rows around dropout: which mask it is of, and
// the passes that are nothing but dropout, or nothing but a sum.
#ifndef TRIREME_NN_DROPOUT_HPP_
#define TRIREME_NN_DROPOUT_HPP_

#include <cstdint>

#include "base/random.hpp"
#include "kernels/dropout.hpp"
#include "nn/context.hpp"

namespace trireme::nn {

// Of this rank's rows of the context's stream; nothing is dropped but in training.
inline kernels::DropoutDesc dropout_of(const Context& context, double probability,
                                       std::uint16_t layer, random::Site site) {
  return {.probability = context.mode == Mode::training ? probability : 0.0,
          .batch = context.samples(),
          .sequence_begin = context.sequence_begin(),
          .layer = layer,
          .site = site};
}

// Whether the pass below changes anything.
inline bool changes_rows(const kernels::DropoutDesc& dropout) {
  return dropout.probability > 0.0 || dropout.factor != 1.0;
}

// x = factor dropout(x); no pass where that is x.
template <class T>
void drop_rows(const Context& context, const kernels::DropoutDesc& dropout, View2<T> x) {
  if (!changes_rows(dropout)) return;
  kernels::bias_dropout_add_forward<T>(context.exec, dropout, context.step, as_const(x),
                                       {}, {}, x);
}

// sum += more, of rows of all samples.
template <class T>
void add_rows(const Context& context, View2<const T> more, View2<T> sum) {
  kernels::bias_dropout_add_forward<T>(context.exec, {.batch = context.samples()},
                                       context.step, more, {}, as_const(sum), sum);
}

}  // namespace trireme::nn

#endif  // TRIREME_NN_DROPOUT_HPP_
