// base/types.cpp — names and sizes of the element types.
#include "base/types.hpp"

#include "base/error.hpp"

#include <iterator>

namespace trireme {

namespace {

struct Known {
  std::string_view name;
  std::size_t bytes;
};
constexpr Known kKnown[] = {
    {"float32", 4}, {"float64", 8}, {"bfloat16", 2}, {"float16", 2}, {"int32", 4},
    {"int64", 8},   {"uint8", 1},   {"uint16", 2},   {"uint32", 4},  {"uint64", 8}};
static_assert(std::size(kKnown) == static_cast<std::size_t>(DType::uint64) + 1);

const Known& known(DType type) {
  const auto index = static_cast<std::size_t>(type);
  TRIREME_REQUIRE(index < std::size(kKnown), "{} is not a DType", index);
  return kKnown[index];
}

}  // namespace

std::size_t size_of(DType type) {
  return known(type).bytes;
}

std::string_view name_of(DType type) {
  return known(type).name;
}

}  // namespace trireme
