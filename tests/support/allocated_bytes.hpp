// support/allocated_bytes.hpp — what Kokkos allocates while an object of this kind lives,
// by label.
#ifndef TRIREME_TESTS_SUPPORT_ALLOCATED_BYTES_HPP_
#define TRIREME_TESTS_SUPPORT_ALLOCATED_BYTES_HPP_

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <map>
#include <string>

namespace trireme::test {

class AllocatedBytes {
 public:
  AllocatedBytes() : before_(Kokkos::Tools::Experimental::get_callbacks()) {
    current_ = this;
    Kokkos::Tools::Experimental::set_allocate_data_callback(
        [](Kokkos::Tools::SpaceHandle, const char* label, const void*,
           std::uint64_t size) {
          current_->bytes[label] += size;
          ++current_->count;
        });
  }
  ~AllocatedBytes() { Kokkos::Tools::Experimental::set_callbacks(before_); }
  AllocatedBytes(const AllocatedBytes&) = delete;
  AllocatedBytes& operator=(const AllocatedBytes&) = delete;

  std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const auto& [label, size] : bytes) sum += size;
    return sum;
  }

  std::map<std::string, std::uint64_t> bytes;
  std::uint64_t count = 0;

 private:
  static inline AllocatedBytes* current_ = nullptr;
  Kokkos::Tools::Experimental::EventSet before_;
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_ALLOCATED_BYTES_HPP_
