// ckpt/build_identity.hpp — what the program is that trains or writes: its version and
// commit, how it was compiled, and the libraries it runs with. The same fields stand in
// `trireme --version`, in environment.json and in every checkpoint.
#ifndef TRIREME_CKPT_BUILD_IDENTITY_HPP_
#define TRIREME_CKPT_BUILD_IDENTITY_HPP_

#include <string>
#include <utility>
#include <vector>

namespace trireme::ckpt {

// Names and values, in the order in which people are shown them: trireme, git, compiler,
// build_type, flags, kokkos, mpi, hdf5, then the libraries of
// kernels::library_versions(). Needs neither MPI nor Kokkos to be up.
using BuildIdentity = std::vector<std::pair<std::string, std::string>>;
BuildIdentity build_identity();

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_BUILD_IDENTITY_HPP_
