// tests/layouts/narrow_tolerances.hpp — how far a layout that computes in 16 bits may be
// from one rank, of each kind of model.
#ifndef TRIREME_TESTS_LAYOUTS_NARROW_TOLERANCES_HPP_
#define TRIREME_TESTS_LAYOUTS_NARROW_TOLERANCES_HPP_

#include "layouts/layout_matrix.hpp"

namespace trireme::test {

struct NarrowTolerances {
  double loss, norm, gradient;  // relative, as in Tolerances
};

// What a kind's tolerances are in 16 bits, as multiples of GPT's, which Tolerances has.
// Rounding averages out over the terms of a loss and adds up on the way to them: these
// kinds have fewer terms, or a longer way. A norm was 1.7e-3 apart in fp16, where GPT's
// may be 1e-3; test_narrow_layouts.cpp and test_narrow_steps.cpp print how far each
// kind's are.
inline constexpr NarrowTolerances narrow_factors(Kind kind) {
  switch (kind) {
    case Kind::gpt:
    case Kind::encoder_decoder:
      break;
    case Kind::bert:  // of a sample 5 words, where GPT has 24, and one pair
      return {.loss = 4.0, .norm = 4.0, .gradient = 2.0};
    case Kind::bert_post:  // as few; gradients go through two norms of each layer
      return {.loss = 4.0, .norm = 4.0, .gradient = 2.0};
    case Kind::t5:  // 16 words; through the memory the way has both stacks
      return {.loss = 4.0, .norm = 4.0, .gradient = 2.0};
    case Kind::t5_own_head:  // the same
      return {.loss = 4.0, .norm = 4.0, .gradient = 2.0};
  }
  return {.loss = 1.0, .norm = 1.0, .gradient = 1.0};
}

template <class T>
NarrowTolerances narrow_tolerances(Kind kind) {
  const NarrowTolerances factors = narrow_factors(kind);
  return {.loss = factors.loss * Tolerances<T>::kLoss,
          .norm = factors.norm * Tolerances<T>::kNorm,
          .gradient = factors.gradient * Tolerances<T>::kGradient};
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_LAYOUTS_NARROW_TOLERANCES_HPP_
