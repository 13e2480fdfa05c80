// report/shared_cores.cpp — see shared_cores.hpp.
#include "report/shared_cores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/format.hpp"

namespace trireme::report {

namespace {

// Below this it is what daemons and the run's own threads take from each other.
constexpr double kMuch = 0.15;

}  // namespace

std::string shared_cores_note(comm::Communicator& world, const CoreTime& time) {
  const std::vector<double> waiting = world.gather(time.waiting_share());
  const std::vector<double> stolen = world.gather(time.stolen_share());
  std::string note;
  const auto worst = std::max_element(waiting.begin(), waiting.end());
  if (*worst >= kMuch) {
    note += fmt::format(
        "Cores were shared: the threads of rank {} were kept from running for {} of the\n"
        "time, by other processes or by more threads of this run than it has cores. Of\n"
        "use: fewer ranks, or fewer threads where a rank has several\n"
        "(OMP_NUM_THREADS); cores of its own for each rank (SLURM: --exclusive,\n"
        "--cpus-per-task and srun --cpu-bind=cores; mpiexec -bind-to core).\n",
        worst - waiting.begin(), format_percent(*worst));
  }
  const auto most = std::max_element(stolen.begin(), stolen.end());
  if (*most >= kMuch) {
    note += fmt::format(
        "The host of the virtual machine of rank {} took {} of its cores' time: no\n"
        "setting helps against that, and timings of this run say little.\n",
        most - stolen.begin(), format_percent(*most));
  }
  return note;
}

}  // namespace trireme::report
