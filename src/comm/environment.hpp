// comm/environment.hpp — MPI for the life of the program: first object of main.
//
// Works started alone, by mpiexec and by srun. A launcher that speaks another dialect
// than the MPI library leaves N programs that each believe to be alone; this is found and
// refused.
#ifndef TRIREME_COMM_ENVIRONMENT_HPP_
#define TRIREME_COMM_ENVIRONMENT_HPP_

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/transport_kind.hpp"

namespace trireme::comm {

class Environment {
 public:
  // Initialises MPI unless it is up. Only the main thread calls it, but for
  // abort_beside_main(): MPI_THREAD_SERIALIZED is asked for, MPI_THREAD_FUNNELED will do.
  // What is wrong with the environment of one rank is thrown on all: on rank 0 with the
  // message, on the others with none.
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
  const std::string& library() const { return library_; }  // library_version()
  TransportKind transport() const { return transport_; }
  // Whether messages between devices add to the same bits in every run
  // (run.deterministic; true until something else is said). Before the first group is
  // made.
  void set_deterministic(bool is_deterministic) { is_deterministic_ = is_deterministic; }
  // What the program does about an error that cannot be handed up, as messages are under
  // way to and from memory that would be freed on the way: reports it and ends all ranks.
  using ErrorHandler = std::function<void(const std::exception&)>;
  void set_error_handler(ErrorHandler handler) { handler_ = std::move(handler); }
  // Does that where there are other ranks and a handler; else comes back.
  void end_with(const std::exception& error) const {
    if (world_size() > 1 && handler_) handler_(error);
  }
  // All ranks; the self implementation where there is one.
  const std::shared_ptr<Communicator>& world() const { return world_; }

  // Takes every rank down with this exit status; flushes what was printed. This process
  // ends within seconds, even where MPI_Abort does not come back.
  [[noreturn]] static void abort(int status) noexcept;
  // The same for another thread, while the main one is in no call of MPI and does not
  // come back. Where MPI takes calls of its main thread only, this process ends by
  // itself: launchers take the other ranks down for one that has ended with an error
  // before the end of MPI (srun: --kill-on-bad-exit=1).
  [[noreturn]] static void abort_beside_main(int status) noexcept;
  // Ends all ranks before there is an Environment: the launcher's others would wait for
  // this one.
  [[noreturn]] static void abort_before_start(int argc, char** argv, int status) noexcept;

  // How long ranks wait for each other while a program starts.
  static constexpr double kStartSeconds = 600.0;

 private:
  void start();

  bool owns_mpi_ = false;
  std::string host_name_, library_;
  NodeInfo node_;
  WaitPolicy wait_policy_ = WaitPolicy::adaptive;
  TransportKind transport_ = TransportKind::mpi;
  bool is_deterministic_ = true;
  std::shared_ptr<Communicator> world_;
  ErrorHandler handler_;
};

// Name and version of the MPI library: "MPICH 4.0.2".
std::string library_version();
// What srun's --mpi must be for an MPI library that describes itself so
// (MPI_Get_library_version): pmix, pmi2; empty where srun finds it by itself or where it
// is not known. Without arguments: for the library of this program.
std::string srun_mpi_type(std::string_view library);
std::string srun_mpi_type();

// How many ranks the launcher says it started (SLURM, Hydra, Open MPI); 0 where none
// speaks. Asks `get` for environment variables (std::getenv, or a test's).
int launcher_ranks(const std::function<const char*(const char*)>& get);
// What started this program on so many ranks, as it would be typed: "srun", "--mpi=pmi2",
// "-n", "4". Empty for a program that is alone, and where no launcher is known.
std::vector<std::string> launcher_words(
    const std::function<const char*(const char*)>& get, int ranks,
    const std::string& srun_mpi_type);

}  // namespace trireme::comm

#endif  // TRIREME_COMM_ENVIRONMENT_HPP_
