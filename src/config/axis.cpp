// config/axis.cpp — see axis.hpp.
#include "config/axis.hpp"

#include "base/error.hpp"

namespace trireme::config {

std::string_view name_of(Axis axis) {
  switch (axis) {
    case Axis::tensor:
      return "tensor";
    case Axis::context:
      return "context";
    case Axis::data:
      return "data";
    case Axis::pipeline:
      return "pipeline";
  }
  throw Error("name_of: not an Axis");
}

}  // namespace trireme::config
