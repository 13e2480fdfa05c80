// comm/system_limits.cpp — see system_limits.hpp.
#include "comm/system_limits.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>

#include "base/host_cores.hpp"
#include "base/plural.hpp"

namespace trireme::comm {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

// Measured with MPICH 4.0.2 on UCX 1.13, as the least that a start comes through with.
constexpr std::uint64_t kSharedFile = 4352 * kKiB;  // 4212 KiB are written by each rank
// MPI begins with 20, a run of one rank and one corpus takes 30, each corpus and each
// peer on another node one more: few enough that no system sets less by itself.
constexpr std::uint64_t kOpenFiles = 64;
constexpr std::uint64_t kAddressSpaceOfThread = 64 * kMiB;  // its stack, malloc()'s arena
constexpr std::uint64_t kAddressSpace = kLeastAddressSpace - kAddressSpaceOfThread;

std::uint64_t soft_limit(int resource) {
  struct rlimit limit = {};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY) {
    return SystemLimits::kNone;
  }
  return limit.rlim_cur;
}

int number_of(const char* variable, int otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : std::clamp(std::atoi(value), 1, 1 << 16);
}

std::string megabytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB",
                     static_cast<double>(bytes) / static_cast<double>(kMiB));
}

}  // namespace

void SystemLimits::set_shared(std::uint64_t blocks, std::uint64_t free_blocks,
                              std::uint64_t block_size) {
  shared_size = blocks == 0 ? kNone : blocks * block_size;
  shared_free = blocks == 0 ? kNone : free_blocks * block_size;
}

SystemLimits find_system_limits(int threads) {
  SystemLimits limits;
  limits.address_space = soft_limit(RLIMIT_AS);
  limits.file_size = soft_limit(RLIMIT_FSIZE);
  limits.open_files = soft_limit(RLIMIT_NOFILE);
  limits.shares_files = ::dlsym(RTLD_DEFAULT, "ucp_init_version") != nullptr &&
                        std::getenv("UCX_TLS") == nullptr;
  struct statvfs shared = {};
  if (::statvfs("/dev/shm", &shared) == 0) {
    limits.set_shared(shared.f_blocks, shared.f_bavail, shared.f_frsize);
  }
  limits.node_ranks =
      number_of("MPI_LOCALNRANKS", number_of("OMPI_COMM_WORLD_LOCAL_SIZE", 1));
  const int cores = static_cast<int>(allowed_cores().size());
  limits.threads = threads > 0 ? threads : std::max(1, cores / limits.node_ranks);
  return limits;
}

bool is_first_of_node() {
  for (const char* name :
       {"MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && std::atoi(value) != 0) return false;
  }
  return true;
}

std::string limit_problem(const SystemLimits& limits) {
  const std::uint64_t address_space =
      kAddressSpace + kAddressSpaceOfThread * static_cast<std::uint64_t>(limits.threads);
  if (limits.address_space < address_space) {
    const bool fewer_would_do = limits.address_space >= kLeastAddressSpace;
    return fmt::format(
        "the address space of this process is limited to {} KiB (ulimit -v), and a start "
        "with {} needs {} at least, the model apart: raise the limit (ulimit -v "
        "unlimited){}",
        limits.address_space / kKiB, format_plural(limits.threads, "thread"),
        address_space / kKiB,
        fewer_would_do ? ", or start fewer threads (OMP_NUM_THREADS)" : "");
  }
  if (limits.open_files < kOpenFiles) {
    return fmt::format(
        "this process may have {} open (ulimit -n), and a start needs {} at least: "
        "raise the limit (ulimit -n 1024)",
        format_plural(static_cast<std::int64_t>(limits.open_files), "file"), kOpenFiles);
  }
  if (!limits.shares_files) return {};
  if (limits.file_size < kSharedFile) {
    return fmt::format(
        "files of this process are limited to {} KiB (ulimit -f), and MPI needs one of "
        "{} "
        "KiB for its messages: raise the limit (ulimit -f unlimited). One rank alone "
        "needs "
        "none with UCX_TLS=self",
        limits.file_size / kKiB, kSharedFile / kKiB);
  }
  const std::uint64_t shared =
      kSharedFile * static_cast<std::uint64_t>(limits.node_ranks);
  if (limits.shared_size < shared || limits.shared_free < kSharedFile) {
    return fmt::format(
        "/dev/shm has {}, {} of them free, and MPI keeps the messages between ranks "
        "there: {} for {}. Enlarge it (docker run --shm-size=1g, mount -o "
        "remount,size=1g /dev/shm) or remove what lies there. One rank alone needs none "
        "with UCX_TLS=self",
        megabytes(limits.shared_size), megabytes(limits.shared_free), megabytes(shared),
        limits.node_ranks == 1 ? std::string("a rank")
                               : format_plural(limits.node_ranks, "rank"));
  }
  return {};
}

}  // namespace trireme::comm
