// base/host_name.cpp — see host_name.hpp.
#include "base/host_name.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>

namespace trireme {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string node_name() {
  const char* const name = std::getenv("SLURMD_NODENAME");
  return name != nullptr && *name != '\0' ? name : host_name();
}

}  // namespace trireme
