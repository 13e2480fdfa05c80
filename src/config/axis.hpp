// config/axis.hpp — the axes of the process grid.
#ifndef TRIREME_CONFIG_AXIS_HPP_
#define TRIREME_CONFIG_AXIS_HPP_

#include <array>
#include <string_view>

namespace trireme::config {

enum class Axis { tensor, context, data, pipeline };

// Fastest first: neighbouring ranks share a tensor group.
using AxisOrder = std::array<Axis, 4>;
inline constexpr AxisOrder kDefaultAxisOrder = {Axis::tensor, Axis::context, Axis::data,
                                                Axis::pipeline};

std::string_view name_of(Axis axis);

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_AXIS_HPP_
