// base/host_name.hpp — what this node is called.
#ifndef TRIREME_BASE_HOST_NAME_HPP_
#define TRIREME_BASE_HOST_NAME_HPP_

#include <string>

namespace trireme {

// gethostname(); "unknown" where that fails.
std::string host_name();

// This node's name as SLURM has it (SLURMD_NODENAME), which need not be the host's name;
// the host's name where SLURM does not tell.
std::string node_name();

}  // namespace trireme

#endif  // TRIREME_BASE_HOST_NAME_HPP_
