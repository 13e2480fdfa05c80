// ckpt/initial_values.hpp — the first values of a weight, on the host and without a
// launch: for who has a model to complete and no device.
#ifndef TRIREME_CKPT_INITIAL_VALUES_HPP_
#define TRIREME_CKPT_INITIAL_VALUES_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "base/shape.hpp"
#include "tensor/param_registry.hpp"

namespace trireme::ckpt {

// The bits that ParamBuffer::initialize() gives a parameter of this name.
std::vector<float> initial_values(const std::string& name, const Shape& shape,
                                  const Initializer& initializer, std::uint64_t seed);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_INITIAL_VALUES_HPP_
