// comm/nccl_environment.hpp — the variables by which NCCL is told what to do, and which
// of them a run sets, or refuses, before the first communicator; it reads them only then.
//
// A run that promises the same bits (run.deterministic) must not have sums whose order is
// not fixed. NVLS and CollNet add in the switches, in the order in which numbers arrive:
//   NVIDIA/nccl issue 1497: "Not deterministic between different calls. All ranks should
//   always get the same results."
// Ring and Tree add in an order that follows from topology, size and type. Which of them,
// and which protocol, NCCL takes by a model of their times, which follows from the same;
// a tuner that is plugged in may go by anything else.
//
//   NCCL_ALGO              Ring,Tree  where bits are promised, unless the user names some
//                                     of Ring, Tree and PAT
//   NCCL_NVLS_ENABLE       0          where bits are promised
//   NCCL_COLLNET_ENABLE    0          where bits are promised
//   NCCL_TUNER_PLUGIN      none       where bits are promised
//   NCCL_RUNTIME_CONNECT   0          unless set: all connections, and their buffers, are
//                                     there before the first step
// The environment goes before nccl.conf.
#ifndef TRIREME_COMM_NCCL_ENVIRONMENT_HPP_
#define TRIREME_COMM_NCCL_ENVIRONMENT_HPP_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"

namespace trireme::comm {

using Variables = std::vector<std::pair<std::string, std::string>>;

// What is to be set beside what `get` (std::getenv, or a test's) has. Throws InputError
// with all that contradicts, and what to do.
Variables nccl_settings(const std::function<const char*(const char*)>& get,
                        bool is_deterministic);

// Sets them for this process. Collective: the ranks of a communicator have to have the
// same algorithms. Throws the same on all of them.
void settle_nccl(Communicator& group, bool is_deterministic);

// What the environment says to NCCL, and how many queues its streams have
// (CUDA_DEVICE_MAX_CONNECTIONS), in the order of names: for the records of a run.
Variables nccl_variables();

}  // namespace trireme::comm

#endif  // TRIREME_COMM_NCCL_ENVIRONMENT_HPP_
