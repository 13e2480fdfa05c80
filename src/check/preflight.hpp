// check/preflight.hpp — each node tried before a long run is trusted to it
// (run.preflight): can it write where the run will, has it the memory, does it compute,
// and does it exchange messages, as fast as the others?
//
// A node that cannot, or is much slower than the median, is named, and the list is
// printed as sbatch takes it: --exclude=node7,node9. Some seconds on any number of nodes.
#ifndef TRIREME_CHECK_PREFLIGHT_HPP_
#define TRIREME_CHECK_PREFLIGHT_HPP_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "io/files.hpp"

namespace trireme::check {

struct PreflightOptions {
  std::string host;  // the node this rank is on
  // What the batch system calls it; empty: as the host. Not believed where two hosts have
  // the same: mpiexec may have given all ranks the environment of its own node.
  std::string node = {};
  std::vector<io::Path> directories;  // to be written to; they need not exist yet
  std::size_t memory_bytes = 0;       // that this rank is going to take
  // For tests: called on each rank in the middle of each check ("write", "memory",
  // "compute", "exchange"). What it throws is a failure of the node, what it takes the
  // node's time.
  std::function<void(std::string_view check)> hook = {};
};

// Collective; Kokkos is up. What was found, in a line for the log. Throws on all ranks
// where a node is not fit: InputError where none can write, for that is the directory's
// fault; else Error with the nodes.
std::string preflight(comm::Communicator& world, const PreflightOptions& options);

}  // namespace trireme::check

#endif  // TRIREME_CHECK_PREFLIGHT_HPP_
