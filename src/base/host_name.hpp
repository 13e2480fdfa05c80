// base/host_name.hpp — what this node is called.
#ifndef TRIREME_BASE_HOST_NAME_HPP_
#define TRIREME_BASE_HOST_NAME_HPP_

#include <string>

namespace trireme {

// gethostname(); "unknown" where that fails.
std::string host_name();

}  // namespace trireme

#endif  // TRIREME_BASE_HOST_NAME_HPP_
