// tests/layouts/narrow_tolerances.hpp — how far a layout that computes in 16 bits may be
// from one rank, of each kind of model.
#ifndef TRIREME_TESTS_LAYOUTS_NARROW_TOLERANCES_HPP_
#define TRIREME_TESTS_LAYOUTS_NARROW_TOLERANCES_HPP_

#include <algorithm>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {

struct NarrowTolerances {
  // Relative, as in Tolerances: of losses but that of pairs, of that one, of the norm of
  // all gradients and of each gradient.
  double loss, pairs, norm, gradient;
};

// What a kind's tolerances are in 16 bits, as multiples of GPT's, which Tolerances has.
// They are measured, at least twice what test_narrow_layouts.cpp, test_narrow_steps.cpp
// and test_narrow_kinds.cpp print, and not derived: what is lost by less than that is
// seen in fp32. The loss of pairs, a mean over one number of each sample, was 1.2e-2
// apart in bf16, 8e-4 in fp16; gradients behind two norms of each layer 8e-2 and 1e-2.
inline constexpr NarrowTolerances narrow_factors(Kind kind) {
  switch (kind) {
    case Kind::gpt:
    case Kind::encoder_decoder:
      break;
    case Kind::bert:
      return {.loss = 4.0, .pairs = 25.0, .norm = 4.0, .gradient = 2.0};
    case Kind::bert_post:
      return {.loss = 4.0, .pairs = 25.0, .norm = 4.0, .gradient = 4.0};
    case Kind::t5:
    case Kind::t5_own_head:
      return {.loss = 4.0, .pairs = 4.0, .norm = 4.0, .gradient = 2.0};
  }
  return {.loss = 1.0, .pairs = 1.0, .norm = 1.0, .gradient = 1.0};
}

// Where an activation has a corner, rounding takes some units of each step across it, and
// gradients behind them come from other units: more the fewer bits there are, by the root
// of their number. They were 9.3e-2 apart in bf16 and 5.1e-2 in fp16, norms 4e-3.
template <class T>
NarrowTolerances narrow_tolerances(const MatrixSize& size) {
  const NarrowTolerances factors = narrow_factors(size.kind);
  NarrowTolerances most{.loss = factors.loss * Tolerances<T>::kLoss,
                        .pairs = factors.pairs * Tolerances<T>::kLoss,
                        .norm = factors.norm * Tolerances<T>::kNorm,
                        .gradient = factors.gradient * Tolerances<T>::kGradient};
  if (size.has_corner()) {
    most.norm = std::max(most.norm, 8e-3);
    most.gradient = Tolerances<T>::kGradientAtCorners;
  }
  return most;
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_LAYOUTS_NARROW_TOLERANCES_HPP_
