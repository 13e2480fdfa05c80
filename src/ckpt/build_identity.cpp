// ckpt/build_identity.cpp — see build_identity.hpp.
#include "ckpt/build_identity.hpp"

#include "base/version.hpp"
#include "comm/environment.hpp"
#include "io/hdf5.hpp"
#include "kernels/library_versions.hpp"

namespace trireme::ckpt {

BuildIdentity build_identity() {
  BuildIdentity identity = {{"trireme", kVersion},
                            {"git", git_describe()},
                            {"compiler", kCompiler},
                            {"build_type", kBuildType},
                            {"flags", kBuildFlags},
                            {"kokkos", kokkos_version()},
                            {"mpi", comm::library_version()},
                            {"hdf5", io::library_version()}};
  for (auto& library : kernels::library_versions()) {
    identity.push_back(std::move(library));
  }
  return identity;
}

}  // namespace trireme::ckpt
