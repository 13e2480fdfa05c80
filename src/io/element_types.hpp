// io/element_types.hpp — private to src/io: the types of numbers that files hold.
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

#endif  // TRIREME_IO_ELEMENT_TYPES_HPP_
