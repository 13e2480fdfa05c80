// io/faulty_write.cpp — see faulty_write.hpp.
#include "io/faulty_write.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace trireme::io {

ssize_t faulty_write(int descriptor, const void* data, std::size_t bytes, off_t offset,
                     Fault& fault) {
  bytes = std::min(bytes, kMaxCall);
  switch (fault) {
    case Fault::none:
    case Fault::overflow:  // is no matter of a write
      break;
    case Fault::no_space:
      errno = ENOSPC;
      return -1;
    case Fault::io_error:
      errno = EIO;
      return -1;
    case Fault::short_write:
      fault = Fault::none;
      if (::pwrite(descriptor, data, bytes / 2, offset) < 0) return -1;
      return static_cast<ssize_t>(bytes);
    case Fault::bit_flip: {
      fault = Fault::none;
      const auto* from = static_cast<const char*>(data);
      std::vector<char> changed(from, from + bytes);
      if (!changed.empty())
        changed[bytes / 2] = static_cast<char>(changed[bytes / 2] ^ 4);
      return ::pwrite(descriptor, changed.data(), bytes, offset);
    }
  }
  return ::pwrite(descriptor, data, bytes, offset);
}

}  // namespace trireme::io
