// io/faulty_write.hpp — private to src/io: pwrite(2), and what it can be made to suffer.
#ifndef TRIREME_IO_FAULTY_WRITE_HPP_
#define TRIREME_IO_FAULTY_WRITE_HPP_

#include <sys/types.h>

#include <cstddef>

#include "base/fault.hpp"

namespace trireme::io {

// Linux moves at most 0x7ffff000 bytes per call.
inline constexpr std::size_t kMaxCall = std::size_t{1} << 30;

// Writes as pwrite(2) does, at most kMaxCall bytes. A fault that nothing tells of happens
// once and is `none` afterwards; a full disk stays full.
ssize_t faulty_write(int descriptor, const void* data, std::size_t bytes, off_t offset,
                     Fault& fault);

}  // namespace trireme::io

#endif  // TRIREME_IO_FAULTY_WRITE_HPP_
