// base/shape.hpp — the extents of a tensor, outermost first.
#ifndef TRIREME_BASE_SHAPE_HPP_
#define TRIREME_BASE_SHAPE_HPP_

#include <optional>
#include <string>
#include <vector>

#include "base/types.hpp"

namespace trireme {

using Shape = std::vector<index_t>;

// Number of elements; 1 for a scalar (empty shape). None where an extent is negative or
// the product is no index_t: for shapes that were read from a file.
std::optional<index_t> counted_elements(const Shape& shape);
// The number of elements; InputError where it is no index_t.
index_t element_count(const Shape& shape);
// "(2304, 768)"
std::string to_string(const Shape& shape);

}  // namespace trireme

#endif  // TRIREME_BASE_SHAPE_HPP_
