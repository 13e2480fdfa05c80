// A program whose ranks send over NCCL (a library of the tests', support/fake_nccl.hpp),
// and of which one stops taking part: the others have to be taken down with it.
//   hang_probe DIRECTORY    with a board there
#include <mpi.h>
#include <Kokkos_Core.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "comm/environment.hpp"
#include "comm/group.hpp"
#include "comm/operation_board.hpp"

// In the place of the library's: a thread beside the main one has to be allowed to call.
int MPI_Abort(MPI_Comm comm, int status) {
  int is_main = 0, level = 0;
  MPI_Is_thread_main(&is_main);
  MPI_Query_thread(&level);
  if (is_main == 0) {
    std::fprintf(stderr, "MPI_Abort of another thread: %s\n",
                 level >= MPI_THREAD_SERIALIZED ? "allowed" : "forbidden");
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // until it is passed on
  }
  return PMPI_Abort(comm, status);
}

// A library without threads, where that is to be tried.
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const bool is_less = std::getenv("HANG_PROBE_FUNNELED") != nullptr;
  return PMPI_Init_thread(argc, argv, is_less ? MPI_THREAD_FUNNELED : required, provided);
}

int main(int argc, char** argv) {
  using namespace trireme;
  using namespace trireme::comm;
  const Environment environment(argc, argv);
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const auto& world = environment.world();
  world->attach(open_board(*world, argv[1], environment.host_name()).board);
  const Exec exec;
  std::vector<float> data(100, 1.0f);
  const Span span{data.data(), 100, DType::float32};
  {
    Group group(world->split(0, world->rank(), "tensor"));
    world->set_timeout(1.0);
    group.all_reduce(exec, span, Op::sum, "row-parallel output");
    if (world->rank() == world->size() - 1) {
      std::this_thread::sleep_for(std::chrono::seconds(100));
    }
    group.all_reduce(exec, span, Op::sum, "row-parallel output");
  }
  std::printf("this rank went on\n");
  return 0;
}
