// tests/support/safetensors.hpp — tensors in memory, written to safetensors files and
// read as they stand there.
#ifndef TRIREME_TESTS_SUPPORT_SAFETENSORS_HPP_
#define TRIREME_TESTS_SUPPORT_SAFETENSORS_HPP_

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "io/safetensors.hpp"

namespace trireme::test {

// The memory must live until the writer writes.
inline io::SafetensorsWriter::Source from_memory(const void* data) {
  return [data](std::span<std::byte> buffer) {
    if (!buffer.empty()) std::memcpy(buffer.data(), data, buffer.size());
  };
}

// Its elements, whose type is T.
template <class T>
std::vector<T> elements(const io::SafeTensor& tensor) {
  std::vector<T> values(static_cast<std::size_t>(element_count(tensor.shape)));
  TRIREME_REQUIRE(tensor.bytes == values.size() * sizeof(T), "{} bytes for {} elements",
                  tensor.bytes, values.size());
  if (!values.empty()) std::memcpy(values.data(), tensor.data, tensor.bytes);
  return values;
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_SAFETENSORS_HPP_
