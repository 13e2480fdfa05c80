// comm/device_mpi.hpp — whether MPI is given pointers to a GPU's memory (GPU-aware MPI),
// asked for by TRIREME_MPI_DEVICE=1 where MPI is what carries device messages.
//
// Without it what MPI carries goes through pinned memory of the host, which works with
// every library. With it the library must be one that takes such pointers: one that does
// not reads them as the host's, and crashes in the first step, if it is lucky. So the
// library is asked first. Sums of 16-bit types go through the host in both cases, as MPI
// has no such types and our functions for them run there.
#ifndef TRIREME_COMM_DEVICE_MPI_HPP_
#define TRIREME_COMM_DEVICE_MPI_HPP_

#include <functional>
#include <optional>
#include <string>

#include "base/exec.hpp"
#include "comm/transport_kind.hpp"

namespace trireme::comm {

// What is known of the build, the run and the library.
struct MpiDeviceFacts {
  bool has_device = !kHostExecution;
  TransportKind transport = TransportKind::mpi;
  std::string library;  // as it describes itself (MPI_Get_library_version)
  // What MPIX_Query_cuda_support() says; nothing where the library has no such function.
  std::optional<bool> says_cuda;
};

// TRIREME_MPI_DEVICE=1|0 (asked of `get`, as the library's own variables are; std::getenv
// or a test's). InputError, with what to do, for another value, and for 1 where it cannot
// work: on host cores, beside NCCL, and with a library that does not take such pointers
// (Open MPI: in non-blocking collectives), or is not switched to it.
bool choose_device_mpi(const std::function<const char*(const char*)>& get,
                       const MpiDeviceFacts& facts);

// MPIX_Query_cuda_support() of the library of this program. MPI is up.
std::optional<bool> library_says_cuda();

}  // namespace trireme::comm

#endif  // TRIREME_COMM_DEVICE_MPI_HPP_
