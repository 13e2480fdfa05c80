// apps/run_guarded.hpp — runs what the user asked for, with Kokkos up where it computes,
// and turns errors into messages and an exit status.
//
//   InputError          the message, status 2
//   any other error     ranks, host and message, status 1
// An error that all ranks have is printed once, by rank 0. One that other ranks do not
// have takes them all down (MPI_Abort): they may be waiting for this one. An action may
// ask for the same where an error is met: Environment::end_with().
#ifndef TRIREME_APPS_RUN_GUARDED_HPP_
#define TRIREME_APPS_RUN_GUARDED_HPP_

#include "apps/command_line.hpp"
#include "comm/environment.hpp"

namespace trireme::apps {

inline constexpr int kExitError = 1;
inline constexpr int kExitInput = 2;

// What an action needs.
struct Resources {
  int threads = 1;  // of a team; 0: this rank's share of its node's cores
  // Whether it computes. Then Kokkos is up, and in a build for GPUs the rank has one to
  // itself. Else Kokkos does not begin, so that a node without a GPU, as a cluster's
  // login nodes are, will do.
  bool computes = false;
};

int run_guarded(comm::Environment& environment, const Action& action,
                const Resources& resources);

}  // namespace trireme::apps

#endif  // TRIREME_APPS_RUN_GUARDED_HPP_
