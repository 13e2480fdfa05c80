// base/host_cores.hpp — which cores of the host the system lets a thread run on,
// and which are near a device.
#ifndef TRIREME_BASE_HOST_CORES_HPP_
#define TRIREME_BASE_HOST_CORES_HPP_

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

inline constexpr int kMostHostCores = 8192;

// The numbers of the cores that the calling thread may run on, ascending: those of its
// job, its cgroup or its binding. Empty where the system does not say.
std::vector<int> allowed_cores();

// The cores nearest to a device on the PCI bus ("0000:c1:00.0"): those of its NUMA
// domain. Empty where Linux does not tell.
std::vector<int> cores_near(const std::string& address);
// The numbers in a list as Linux writes it: "0-15,128-143". Empty where it is none.
std::vector<int> cores_in_list(std::string_view text);

}  // namespace trireme

#endif  // TRIREME_BASE_HOST_CORES_HPP_
