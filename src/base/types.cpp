// base/types.cpp — names and sizes of the element types.
#include "base/types.hpp"

#include "base/error.hpp"

namespace trireme {

std::size_t size_of(DType type) {
  switch (type) {
    case DType::uint8:
      return 1;
    case DType::bfloat16:
    case DType::float16:
    case DType::uint16:
      return 2;
    case DType::float32:
    case DType::int32:
    case DType::uint32:
      return 4;
    case DType::float64:
    case DType::int64:
    case DType::uint64:
      return 8;
  }
  throw Error("size_of: not a DType");
}

std::string_view name_of(DType type) {
  switch (type) {
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float16:
      return "float16";
    case DType::int32:
      return "int32";
    case DType::int64:
      return "int64";
    case DType::uint8:
      return "uint8";
    case DType::uint16:
      return "uint16";
    case DType::uint32:
      return "uint32";
    case DType::uint64:
      return "uint64";
  }
  throw Error("name_of: not a DType");
}

}  // namespace trireme
