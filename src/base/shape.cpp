// base/shape.cpp — see shape.hpp.
#include "base/shape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trireme {

index_t element_count(const Shape& shape) {
  index_t count = 1;
  for (const index_t extent : shape) count *= extent;
  return count;
}

std::string to_string(const Shape& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

}  // namespace trireme
