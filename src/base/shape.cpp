// base/shape.cpp — see shape.hpp.
#include "base/shape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.hpp"
#include "base/error.hpp"

namespace trireme {

std::optional<index_t> counted_elements(const Shape& shape) {
  bool is_empty = false;
  std::optional<index_t> count = 1;
  for (const index_t extent : shape) {
    if (extent < 0) return {};
    is_empty |= extent == 0;
    if (count && extent > 0) count = checked_multiply(*count, extent);
  }
  return is_empty ? 0 : count;
}

index_t element_count(const Shape& shape) {
  const auto count = counted_elements(shape);
  TRIREME_REQUIRE_INPUT(count.has_value(),
                        "a tensor of shape {} has more elements than can be counted, or "
                        "a negative extent",
                        to_string(shape));
  return *count;
}

std::string to_string(const Shape& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

}  // namespace trireme
