// perf/micro/main_on_ranks.hpp — main() of a benchmark on several ranks: MPI and Kokkos
// around it, and an error of one rank ends them all, as the others may wait for it.
#ifndef TRIREME_PERF_MICRO_MAIN_ON_RANKS_HPP_
#define TRIREME_PERF_MICRO_MAIN_ON_RANKS_HPP_

#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <cstdio>
#include <exception>

namespace trireme::perf {

// The exit status: what run(argc, argv) returns.
inline int main_on_ranks(const char* program, int argc, char** argv,
                         int (*run)(int, char**)) {
  MPI_Init(&argc, &argv);
  int status = 1;
  try {
    const Kokkos::ScopeGuard kokkos(argc, argv);
    status = run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}

}  // namespace trireme::perf

#endif  // TRIREME_PERF_MICRO_MAIN_ON_RANKS_HPP_
