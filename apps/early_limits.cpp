// apps/early_limits.cpp — what is refused before the constructors of libraries run.
//
// OpenBLAS takes its memory in a constructor, before main(), and asks for it for ever
// where the address space of the process (ulimit -v) has no room for it. The functions of
// an executable's .preinit_array run before the constructors of all libraries. getenv()
// knows nothing yet: they are given the environment.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "apps/run_guarded.hpp"
#include "comm/system_limits.hpp"

namespace trireme::apps {
namespace {

int number_in(char** environment, std::string_view name) {
  for (char** entry = environment; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.size() > name.size() && text.starts_with(name) && text[name.size()] == '=') {
      return std::atoi(*entry + name.size() + 1);
    }
  }
  return 0;
}

void refuse_small_address_space(int, char**, char** environment) {
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      limit.rlim_cur >= comm::kLeastAddressSpace) {
    return;
  }
  int local_rank = 0, ranks = 0;
  for (const char* name :
       {"MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) {
    local_rank += number_in(environment, name);
  }
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"}) {
    ranks += number_in(environment, name);
  }
  char text[256];
  const int length =
      std::snprintf(text, sizeof(text),
                    "trireme: the address space of this process is limited to %llu KiB "
                    "(ulimit -v), and "
                    "a start with 1 thread needs %llu at least, the model apart: raise "
                    "the limit (ulimit "
                    "-v unlimited)\n",
                    static_cast<unsigned long long>(limit.rlim_cur / 1024),
                    static_cast<unsigned long long>(comm::kLeastAddressSpace / 1024));
  if (local_rank == 0) {
    [[maybe_unused]] const ssize_t written =
        ::write(STDERR_FILENO, text, static_cast<std::size_t>(length));
  }
  if (ranks > 1) {      // of a rank that was killed every launcher hears
    ::usleep(300'000);  // what was printed is to arrive
    ::kill(::getpid(), SIGKILL);
  }
  ::_exit(kExitError);
}

using BeforeLibraries = void (*)(int, char**, char**);
[[gnu::section(".preinit_array"), gnu::used]] const BeforeLibraries kFirst =
    refuse_small_address_space;

}  // namespace
}  // namespace trireme::apps
