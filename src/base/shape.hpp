// base/shape.hpp — the extents of a tensor, outermost first.
#ifndef TRIREME_BASE_SHAPE_HPP_
#define TRIREME_BASE_SHAPE_HPP_

#include <string>
#include <vector>

#include "base/types.hpp"

namespace trireme {

using Shape = std::vector<index_t>;

// Number of elements; 1 for a scalar (empty shape).
index_t element_count(const Shape& shape);
// "(2304, 768)"
std::string to_string(const Shape& shape);

}  // namespace trireme

#endif  // TRIREME_BASE_SHAPE_HPP_
