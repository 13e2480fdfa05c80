// comm/transport_kind.cpp — see transport_kind.hpp.
#include "comm/transport_kind.hpp"

#include "base/error.hpp"
#include "base/exec.hpp"
#include "comm/nccl_link.hpp"

namespace trireme::comm {

std::string_view name_of(TransportKind kind) {
  return kind == TransportKind::nccl ? "nccl" : "mpi";
}

TransportKind choose_transport(const char* override_value) {
  const std::string_view given = override_value != nullptr ? override_value : "";
  TRIREME_REQUIRE_INPUT(given.empty() || given == "mpi" || given == "nccl",
                        "TRIREME_TRANSPORT is '{}'; it may be mpi or nccl: what carries "
                        "the messages of kernels' memory",
                        given);
  TRIREME_REQUIRE_INPUT(
      given != "nccl" || has_nccl(),
      "TRIREME_TRANSPORT is nccl, and this build of trireme has no NCCL: unset it, or "
      "build for NVIDIA GPUs where CMake finds nccl.h (docs/developer/cuda.md)");
  if (given.empty()) {
    return has_nccl() && !kHostExecution ? TransportKind::nccl : TransportKind::mpi;
  }
  return given == "nccl" ? TransportKind::nccl : TransportKind::mpi;
}

}  // namespace trireme::comm
