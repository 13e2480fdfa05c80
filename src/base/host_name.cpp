// base/host_name.cpp — see host_name.hpp.
#include "base/host_name.hpp"

#include <unistd.h>

#include <array>

namespace trireme {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

}  // namespace trireme
