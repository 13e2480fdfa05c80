// A program started in different ways by the tests: says which rank it is, or ends as
// told.
//   launch_probe            prints "rank R of N" in rank order
//   launch_probe abort S    rank N-1 aborts everyone with status S, the others wait
//   launch_probe stuck S    the same, where MPI_Abort does not come back
//   launch_probe never S    ends with status S before it is a rank
//   launch_probe hang_up    gets the signal of a terminal that is closed
#include <mpi.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "comm/environment.hpp"

namespace {
bool is_stuck = false;
}

// In the place of the library's.
int MPI_Abort(MPI_Comm comm, int status) {
  while (is_stuck) std::this_thread::sleep_for(std::chrono::seconds(1));
  return PMPI_Abort(comm, status);
}

int main(int argc, char** argv) {
  using namespace trireme;
  if (argc == 3 && std::string(argv[1]) == "never") {
    comm::Environment::abort_before_start(argc, argv, std::atoi(argv[2]));
  }
  try {
    const comm::Environment environment(argc, argv);
    const auto& world = environment.world();
    is_stuck = argc == 3 && std::string(argv[1]) == "stuck";
    if (is_stuck || (argc == 3 && std::string(argv[1]) == "abort")) {
      if (world->rank() == world->size() - 1)
        comm::Environment::abort(std::atoi(argv[2]));
      world->barrier();
    }
    if (argc == 2 && std::string(argv[1]) == "hang_up") std::raise(SIGHUP);
    const auto hosts = world->gather(environment.host_name());
    const auto sum = world->all_reduce(std::int64_t{1});
    if (world->rank() == 0) {
      std::printf("%d ranks on %s, %d cores, %s, %s\n", static_cast<int>(sum),
                  hosts[0].c_str(), environment.node().cores,
                  name_of(environment.wait_policy()).data(),
                  environment.library().c_str());
    }
    return 0;
  } catch (const InputError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
