// base/descriptor.hpp — the number of an open file, closed by whoever has it last.
#ifndef TRIREME_BASE_DESCRIPTOR_HPP_
#define TRIREME_BASE_DESCRIPTOR_HPP_

#include <unistd.h>

#include <utility>

namespace trireme {

class Descriptor {
 public:
  Descriptor() = default;  // of nothing
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  bool is_open() const { return number_ >= 0; }
  operator int() const { return number_; }
  // False where the system says so late what went wrong (errno), as network file systems
  // do of failed writes. Closed it is in any case.
  bool close() { return !is_open() || ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_ = -1;
};

}  // namespace trireme

#endif  // TRIREME_BASE_DESCRIPTOR_HPP_
