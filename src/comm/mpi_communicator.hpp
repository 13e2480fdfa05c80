// comm/mpi_communicator.hpp — the world of ranks over MPI, and how its groups wait.
//
// Everything is built on non-blocking MPI calls that are polled here, because MPI
// libraries wait by spinning: with more ranks than cores a 4 KB all-reduce then takes
// tens of milliseconds (it takes 0.5 ms with naps between polls). WaitPolicy::spin
// polls without a pause and is right where each rank has a core.
//
// Order of reductions. MPI does not promise one, it recommends it: "the same result be
// obtained whenever the function is applied on the same arguments, appearing in the same
// order". MPICH and its descendants choose an algorithm by message size, number of ranks
// and their placement on nodes, never by arrival: the same layout gives the same bits,
// and since partners combine the same two partial results every rank has the same bits.
// Different placements or sizes may differ in rounding. With Open MPI set
// OMPI_MCA_coll=^hcoll,ucc where bitwise repeatability matters (network-offloaded
// reductions combine on arrival). bfloat16 and float16 are added in float and rounded at
// each combination.
#ifndef TRIREME_COMM_MPI_COMMUNICATOR_HPP_
#define TRIREME_COMM_MPI_COMMUNICATOR_HPP_

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "base/exec.hpp"
#include "comm/communicator.hpp"
#include "comm/transport.hpp"
#include "comm/transport_kind.hpp"

namespace trireme::comm {

// Between polls for a message: no pause; a nap; or a nap only while others use the core
// (adaptive_wait.hpp).
enum class WaitPolicy { spin, yield, adaptive };
std::string_view name_of(WaitPolicy policy);

// This rank's node: who is on it, and the cores that they may run on together.
struct NodeInfo {
  int ranks = 1;
  int cores = 1;
  int first = 0;    // the lowest rank of the world that is there, which names the node
  int threads = 1;  // of each rank, where its environment says so
};

// yield where the threads of the ranks outnumber cores, else adaptive;
// TRIREME_WAIT=adaptive|spin|yield (argument: its value or null) overrides. Throws
// InputError for another value.
WaitPolicy choose_wait_policy(const NodeInfo& node, const char* override_value);

struct MpiOptions {
  std::optional<WaitPolicy> wait;  // else choose_wait_policy
  // What carries device messages; all ranks give the same. Else choose_transport.
  std::optional<TransportKind> transport = {};
  // Elements per MPI call: MPI counts are 32-bit.
  index_t max_count = index_t{1} << 30;
  // Send from and receive into host copies: needed where device memory is not the host's.
  bool stage_through_host = !kHostExecution;
  // Whether the host may read what a device pointer points to. Where it may not,
  // reductions of types that MPI does not know go through host copies even if MPI takes
  // such pointers.
  bool host_reads_device = kHostExecution;
  // Before each call that all ranks of a group must make they compare what they call, and
  // throw on every rank, naming all, where it differs. Starting an operation then waits
  // for the others to start it. Else choose_call_checks.
  std::optional<bool> check_calls = {};
  // What is put around the transport of every group; all ranks give the same. Tests have
  // messages carried by NCCL's rules in this way.
  std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>,
                                           const Communicator&)>
      wrap_transport = {};
  // Whether NCCL's sums have to have the same bits in every run; asked when the first of
  // its communicators is made. Without it they have.
  std::function<bool()> is_deterministic = {};
  // What takes the job down where messages on the device hang and the rank's own thread
  // does not come to see it; else Environment::abort_beside_main(1). The watch's thread
  // calls it.
  std::function<void()> end_job = {};
};

// On in builds without NDEBUG; TRIREME_CHECK_MESSAGES=1|0 (argument: its value or null)
// overrides. Throws InputError for another value.
bool choose_call_checks(const char* override_value);

// The control side of a group over a duplicate of MPI_COMM_WORLD (even for one rank); MPI
// is up. From here on failed MPI calls return and are thrown as Error. Collective.
std::shared_ptr<Communicator> make_mpi_world(const MpiOptions& options = {});
// Collective over the world.
NodeInfo find_node_info();

}  // namespace trireme::comm

#endif  // TRIREME_COMM_MPI_COMMUNICATOR_HPP_
