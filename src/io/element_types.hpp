// io/element_types.hpp — the types of numbers that files hold.
#ifndef TRIREME_IO_ELEMENT_TYPES_HPP_
#define TRIREME_IO_ELEMENT_TYPES_HPP_

#include <cstdint>

#include "base/types.hpp"

// Expands X(T) for each of them.
#define TRIREME_FOR_EACH_STORED(X) \
  TRIREME_FOR_EACH_REAL(X)         \
  X(std::int32_t)                  \
  X(std::int64_t)                  \
  X(std::uint8_t)                  \
  X(std::uint16_t)                 \
  X(std::uint32_t)                 \
  X(std::uint64_t)

namespace trireme::io {

// Calls use() with a zero of the floating-point type that `dtype` names; false where it
// names none.
template <class Use>
bool with_real(DType dtype, const Use& use) {
  const auto is_used = [&](auto zero) {
    const bool is_it = dtype == dtype_of<decltype(zero)>;
    if (is_it) use(zero);
    return is_it;
  };
  return is_used(float()) || is_used(double()) || is_used(bf16()) || is_used(fp16());
}
inline bool is_real(DType dtype) {
  return with_real(dtype, [](auto) {});
}

}  // namespace trireme::io

#endif  // TRIREME_IO_ELEMENT_TYPES_HPP_
