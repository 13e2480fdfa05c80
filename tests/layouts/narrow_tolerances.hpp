// tests/layouts/narrow_tolerances.hpp — how far a layout that computes in 16 bits may be
// from one rank, of each kind of model.
#ifndef TRIREME_TESTS_LAYOUTS_NARROW_TOLERANCES_HPP_
#define TRIREME_TESTS_LAYOUTS_NARROW_TOLERANCES_HPP_

#include "layouts/layout_matrix.hpp"

namespace trireme::test {

struct NarrowTolerances {
  // Relative, as in Tolerances: of the loss that is trained, of each objective's, of the
  // norm of all gradients and of each gradient.
  double loss, objective, norm, gradient;
};

// What a kind's tolerances are in 16 bits, as multiples of GPT's, which Tolerances has:
// at least twice what test_narrow_layouts.cpp and test_narrow_steps.cpp print, and no
// derivation from fewer terms of a loss or from a longer way of a gradient. A pair's loss
// is a mean over one number of each sample, and was 1.2e-2 apart in bf16, 8e-4 in fp16;
// gradients behind two norms of each layer 8e-2 and 1e-2.
inline constexpr NarrowTolerances narrow_factors(Kind kind) {
  switch (kind) {
    case Kind::gpt:
    case Kind::encoder_decoder:
      break;
    case Kind::bert:
      return {.loss = 4.0, .objective = 25.0, .norm = 4.0, .gradient = 2.0};
    case Kind::bert_post:
      return {.loss = 4.0, .objective = 25.0, .norm = 4.0, .gradient = 4.0};
    case Kind::t5:
    case Kind::t5_own_head:
      return {.loss = 4.0, .objective = 4.0, .norm = 4.0, .gradient = 2.0};
  }
  return {.loss = 1.0, .objective = 1.0, .norm = 1.0, .gradient = 1.0};
}

template <class T>
NarrowTolerances narrow_tolerances(Kind kind) {
  const NarrowTolerances factors = narrow_factors(kind);
  return {.loss = factors.loss * Tolerances<T>::kLoss,
          .objective = factors.objective * Tolerances<T>::kLoss,
          .norm = factors.norm * Tolerances<T>::kNorm,
          .gradient = factors.gradient * Tolerances<T>::kGradient};
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_LAYOUTS_NARROW_TOLERANCES_HPP_
