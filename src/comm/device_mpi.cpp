// comm/device_mpi.cpp — see device_mpi.hpp.
//
// MPI has no standard way to ask. MPICH and Open MPI have MPIX_Query_cuda_support(), the
// first in mpi.h and the second in a header of extensions; looked up by its name it needs
// neither. Cray MPICH is switched by a variable, and does not start where that is set and
// its library for GPUs is not linked. Open MPI answers for its blocking calls alone: its
// manual excepts the non-blocking collectives, which are what carries our messages.
#include "comm/device_mpi.hpp"

#include <dlfcn.h>

#include <string_view>

#include "base/error.hpp"

namespace trireme::comm {

namespace {

constexpr const char* kVariable = "TRIREME_MPI_DEVICE";
constexpr const char* kOtherwise =
    "; or unset it, and messages go through the host's memory";

bool is_set_to(const char* value, std::string_view expected) {
  return value != nullptr && value == expected;
}

// A switch of the library's own that must be on.
void require_switch(const std::function<const char*(const char*)>& get, const char* name,
                    const char* why) {
  TRIREME_REQUIRE_INPUT(is_set_to(get(name), "1"),
                        "{} is 1, and {} is not: {}. Set {}=1{}", kVariable, name, why,
                        name, kOtherwise);
}

void require_library(const std::function<const char*(const char*)>& get,
                     const MpiDeviceFacts& facts) {
  const auto is = [&](std::string_view name) {
    return facts.library.find(name) != std::string::npos;
  };
  if (is("CRAY")) {
    return require_switch(
        get, "MPICH_GPU_SUPPORT_ENABLED",
        "Cray MPICH takes pointers to a GPU's memory with it alone, and "
        "where the program was linked with craype-accel-nvidia80 or 90 "
        "loaded");
  }
  TRIREME_REQUIRE_INPUT(
      !is("Open MPI"),
      "{} is 1, and Open MPI takes pointers to a GPU's memory in blocking calls and in "
      "messages between two ranks, not in non-blocking collectives (MPI_Iallreduce and "
      "the like), which trireme calls: unset it, and messages go through the host's "
      "memory; or let NCCL carry them (TRIREME_TRANSPORT=nccl); or build with an MPICH "
      "that has CUDA",
      kVariable);
  TRIREME_REQUIRE_INPUT(
      facts.says_cuda.value_or(false),
      "{} is 1, and this MPI library {} take pointers to a GPU's memory: take a build of "
      "it that has CUDA (MPICH: configure --with-cuda){}",
      kVariable, facts.says_cuda ? "does not" : "does not say whether it can",
      kOtherwise);
  if (is("MVAPICH")) {
    return require_switch(get, "MV2_USE_CUDA",
                          "MVAPICH2 looks at pointers with it alone");
  }
  TRIREME_REQUIRE_INPUT(!is_set_to(get("MPIR_CVAR_ENABLE_GPU"), "0"),
                        "{} is 1, and MPIR_CVAR_ENABLE_GPU=0 switches MPICH's part of it "
                        "off: unset that{}",
                        kVariable, kOtherwise);
}

}  // namespace

bool choose_device_mpi(const std::function<const char*(const char*)>& get,
                       const MpiDeviceFacts& facts) {
  const char* const value = get(kVariable);
  const std::string_view given = value != nullptr ? value : "";
  TRIREME_REQUIRE_INPUT(given.empty() || given == "0" || given == "1",
                        "{} is '{}'; it may be 1 (MPI is given pointers to a GPU's "
                        "memory) or 0 (messages go through the host's)",
                        kVariable, given);
  if (given != "1") return false;
  TRIREME_REQUIRE_INPUT(facts.has_device,
                        "{} is 1, and this program was built for CPUs: unset it",
                        kVariable);
  TRIREME_REQUIRE_INPUT(facts.transport == TransportKind::mpi,
                        "{} is 1, and NCCL carries the messages between GPUs: set "
                        "TRIREME_TRANSPORT=mpi as well, or unset it",
                        kVariable);
  require_library(get, facts);
  return true;
}

std::optional<bool> library_says_cuda() {
  void* const query = ::dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
  if (query == nullptr) return {};
  return reinterpret_cast<int (*)()>(query)() != 0;
}

}  // namespace trireme::comm
