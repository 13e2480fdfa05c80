// tensor/param_use.hpp — who is told when the parameters of a unit come into use, and
// when they are done with: ZeRO gathers and frees them there, and reduces their
// gradients.
//
// What a pass does with them: a forward pass reads weights, a backward pass reads them
// and adds to their gradients. Where a schedule splits it (zero_bubble) the input pass
// reads weights alone, and the weight pass, which may come much later, adds to gradients
// alone. The forward pass of a block that makes an objective may take gradients with it
// (BlockSpec::gradients_in_forward): those of the table that its unit borrows, while the
// gradients of its own unit come in the backward pass, as all units' do.
#ifndef TRIREME_TENSOR_PARAM_USE_HPP_
#define TRIREME_TENSOR_PARAM_USE_HPP_

#include <cstddef>

namespace trireme {

enum class Pass {
  forward,
  backward,
  backward_input,
  backward_weight,
  forward_with_gradients
};

inline bool reads_weights(Pass pass) {
  return pass != Pass::backward_weight;
}
inline bool adds_to_gradients(Pass pass) {
  return pass == Pass::backward || pass == Pass::backward_weight;
}
// Whether a pass adds to gradients of the unit that its own unit borrows from.
inline bool adds_to_borrowed_gradients(Pass pass) {
  return adds_to_gradients(pass) || pass == Pass::forward_with_gradients;
}
// Whether a pass goes from the first unit to the last.
inline bool goes_forward(Pass pass) {
  return pass == Pass::forward || pass == Pass::forward_with_gradients;
}

// The units whose weights a pass reads: from the first on in a forward pass, from the
// last one down in a backward pass.
struct PassUnits {
  std::size_t begin = 0, end = 0;
  Pass pass = Pass::forward;

  bool empty() const { return begin == end; }
};

class ParamUse {
 public:
  virtual ~ParamUse() = default;

  // Called before the first and after the last kernel of a pass that touches the unit
  // (those of units it borrows from, too).
  virtual void begin(std::size_t unit, Pass pass) = 0;
  virtual void end(std::size_t unit, Pass pass) = 0;
};

}  // namespace trireme

#endif  // TRIREME_TENSOR_PARAM_USE_HPP_
