// comm/environment.hpp — MPI for the life of the program: first object of main.
//
// Works started alone, by mpiexec and by srun. A launcher that speaks another dialect
// than the MPI library leaves N programs that each believe to be alone; this is found and
// refused.
#ifndef TRIREME_COMM_ENVIRONMENT_HPP_
#define TRIREME_COMM_ENVIRONMENT_HPP_

#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "comm/mpi_communicator.hpp"

namespace trireme::comm {

class Environment {
 public:
  // Initialises MPI (only the main thread may call it: MPI_THREAD_FUNNELED) unless it is
  // up.
  Environment(int& argc, char**& argv);
  // Finalises MPI if the constructor initialised it.
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  int world_rank() const { return world_->rank(); }
  int world_size() const { return world_->size(); }
  const std::string& host_name() const { return host_name_; }
  // Ranks and cores of this node: threads per rank should not exceed cores / ranks.
  const NodeInfo& node() const { return node_; }
  WaitPolicy wait_policy() const { return wait_policy_; }
  // Name and version of the MPI library.
  const std::string& library() const { return library_; }
  // All ranks; the self implementation where there is one.
  const std::shared_ptr<Communicator>& world() const { return world_; }

  // Takes every rank down with this exit status; flushes what was printed.
  [[noreturn]] static void abort(int status) noexcept;

 private:
  void start();

  bool owns_mpi_ = false;
  std::string host_name_, library_;
  NodeInfo node_;
  WaitPolicy wait_policy_ = WaitPolicy::spin;
  std::shared_ptr<Communicator> world_;
};

// How many ranks the launcher says it started (SLURM, Hydra, Open MPI); 0 where none
// speaks. Asks `get` for environment variables (std::getenv, or a test's).
int launcher_ranks(const std::function<const char*(const char*)>& get);

}  // namespace trireme::comm

#endif  // TRIREME_COMM_ENVIRONMENT_HPP_
