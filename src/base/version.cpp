// base/version.cpp — see version.hpp.in.
#include "base/version.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <Kokkos_Core.hpp>
#include <string_view>
#include <vector>

namespace trireme {

std::string program_version() {
  const std::string_view git = git_describe();
  return git == "unknown" ? kVersion : fmt::format("{} ({})", kVersion, git);
}

std::string kokkos_version() {
  std::vector<std::string> backends;
#ifdef KOKKOS_ENABLE_CUDA
  backends.push_back("CUDA");
#endif
#ifdef KOKKOS_ENABLE_HIP
  backends.push_back("HIP");
#endif
#ifdef KOKKOS_ENABLE_SYCL
  backends.push_back("SYCL");
#endif
#ifdef KOKKOS_ENABLE_OPENMP
  backends.push_back("OpenMP");
#endif
#ifdef KOKKOS_ENABLE_THREADS
  backends.push_back("Threads");
#endif
#ifdef KOKKOS_ENABLE_SERIAL
  backends.push_back("Serial");
#endif
  return fmt::format("{}.{}.{} ({})", KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100,
                     KOKKOS_VERSION % 100, fmt::join(backends, ", "));
}

}  // namespace trireme
