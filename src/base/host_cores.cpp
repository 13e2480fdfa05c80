// base/host_cores.cpp — see host_cores.hpp.
#include "base/host_cores.hpp"

#include <sched.h>

#include <climits>

namespace trireme {

std::vector<int> allowed_cores() {
  // cpu_set_t ends at 1024 cores; the kernel takes any length.
  constexpr int kWordBits = CHAR_BIT * static_cast<int>(sizeof(unsigned long));
  unsigned long words[kMostHostCores / kWordBits] = {};
  if (::sched_getaffinity(0, sizeof words, reinterpret_cast<cpu_set_t*>(words)) != 0) {
    return {};
  }
  std::vector<int> cores;
  for (int core = 0; core < kMostHostCores; ++core) {
    if ((words[core / kWordBits] >> (core % kWordBits) & 1ul) != 0) cores.push_back(core);
  }
  return cores;
}

}  // namespace trireme
