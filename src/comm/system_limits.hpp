// comm/system_limits.hpp — limits of the process and of the node that MPI cannot begin
// under, in words, before the library fails by them in its own.
#ifndef TRIREME_COMM_SYSTEM_LIMITS_HPP_
#define TRIREME_COMM_SYSTEM_LIMITS_HPP_

#include <cstdint>
#include <limits>
#include <string>

namespace trireme::comm {

// Bytes that a start with one thread takes. Libraries alone take 250 to 350 MiB; with
// less than this OpenBLAS may wait for memory for ever, with more what is missing is
// reported.
inline constexpr std::uint64_t kLeastAddressSpace = std::uint64_t{576} << 20;

struct SystemLimits {
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  // Soft limits in bytes, as getrlimit(2) has them.
  std::uint64_t address_space = kNone;  // ulimit -v
  std::uint64_t file_size = kNone;      // ulimit -f
  std::uint64_t open_files = kNone;     // ulimit -n
  std::uint64_t shared_size = kNone;    // of /dev/shm
  std::uint64_t shared_free = kNone;
  // UCX, below this MPI library, keeps what it shares with other ranks in files of
  // /dev/shm, even of a rank alone; UCX_TLS may say otherwise.
  bool shares_files = false;
  int threads = 1;     // of this process
  int node_ranks = 1;  // as far as the launcher says

  // Takes the size of /dev/shm as statvfs(3) gives it. A file system without a limit
  // (ramfs, or tmpfs of size=0) says that it has no blocks at all.
  void set_shared(std::uint64_t blocks, std::uint64_t free_blocks,
                  std::uint64_t block_size);
};

// `threads` are those that this process starts; 0: its share of the node's cores.
SystemLimits find_system_limits(int threads);

// The first limit that is too low: its name, its value, what is needed and what to do;
// empty: none is.
std::string limit_problem(const SystemLimits& limits);

// Whether this process is the one of its node's that should speak of that node, as far as
// the launcher says; there is no communicator yet.
bool is_first_of_node();

}  // namespace trireme::comm

#endif  // TRIREME_COMM_SYSTEM_LIMITS_HPP_
