// tensor/param_use.hpp — who is told when the parameters of a unit come into use, and
// when they are done with: ZeRO gathers and frees them there, and reduces their
// gradients.
#ifndef TRIREME_TENSOR_PARAM_USE_HPP_
#define TRIREME_TENSOR_PARAM_USE_HPP_

#include <cstddef>

namespace trireme {

enum class Pass { forward, backward };

class ParamUse {
 public:
  virtual ~ParamUse() = default;

  // Before the first and after the last kernel of a pass that touches the unit (those of
  // units it borrows from, too).
  virtual void begin(std::size_t unit, Pass pass) = 0;
  virtual void end(std::size_t unit, Pass pass) = 0;
};

// From begin() to end(), where there is somebody to be told.
class ParamUseScope {
 public:
  ParamUseScope(ParamUse* use, std::size_t unit, Pass pass)
      : use_(use), unit_(unit), pass_(pass) {
    if (use_ != nullptr) use_->begin(unit_, pass_);
  }
  // Says that the kernels are launched; not a destructor, as it may throw.
  void end() {
    if (use_ != nullptr) use_->end(unit_, pass_);
  }

 private:
  ParamUse* use_;
  std::size_t unit_;
  Pass pass_;
};

}  // namespace trireme

#endif  // TRIREME_TENSOR_PARAM_USE_HPP_
