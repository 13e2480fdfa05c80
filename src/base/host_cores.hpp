// base/host_cores.hpp — which cores of the host the system lets a thread run on.
#ifndef TRIREME_BASE_HOST_CORES_HPP_
#define TRIREME_BASE_HOST_CORES_HPP_

#include <vector>

namespace trireme {

inline constexpr int kMostHostCores = 8192;

// The numbers of the cores that the calling thread may run on, ascending: those of its
// job, its cgroup or its binding. Empty where the system does not say.
std::vector<int> allowed_cores();

}  // namespace trireme

#endif  // TRIREME_BASE_HOST_CORES_HPP_
