// base/host_cores.cpp — see host_cores.hpp.
#include "base/host_cores.hpp"

#include <sched.h>

#include <climits>
#include <fstream>

#include "base/words.hpp"

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

std::vector<int> cores_in_list(std::string_view text) {
  std::vector<int> cores;
  for (const std::string_view run : split(trimmed(text), ",")) {
    const std::size_t dash = run.find('-');
    const auto first = number_in<int>(run.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : number_in<int>(run.substr(dash + 1));
    if (!first || !last || *first < 0 || *last >= kMostHostCores) return {};
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
  }
  return cores;
}

std::vector<int> cores_near(const std::string& address) {
  std::ifstream file("/sys/bus/pci/devices/" + address + "/local_cpulist");
  std::string line;
  std::getline(file, line);  // none: the line stays empty
  return cores_in_list(line);
}

}  // namespace trireme
