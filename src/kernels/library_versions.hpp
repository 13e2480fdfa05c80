// kernels/library_versions.hpp — the libraries behind the matrix products of this build.
#ifndef TRIREME_KERNELS_LIBRARY_VERSIONS_HPP_
#define TRIREME_KERNELS_LIBRARY_VERSIONS_HPP_

#include <string>
#include <utility>
#include <vector>

namespace trireme::kernels {

// {"onednn", "2.7.3"}, {"blas", "OpenBLAS 0.3.21"} on the host; on a GPU the vendor's.
std::vector<std::pair<std::string, std::string>> library_versions();

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_LIBRARY_VERSIONS_HPP_
