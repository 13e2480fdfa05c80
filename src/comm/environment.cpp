// comm/environment.cpp — see environment.hpp.
//
// The order at the start matters. What UCX, below MPI, would do with crashes and SIGHUP
// has to be undone before or right after MPI_Init; whether the launcher speaks to this
// MPI library is asked before the world is made, because ranks that each believe to be
// alone would all write to the same run directory. What is wrong on one rank only is told
// to all by bare MPI calls, as there is no Communicator yet. The end is as careful: a
// launcher kills all ranks as soon as one has aborted, so that messages get time to reach
// the terminal first, and a rank that fails before MPI_Init has to start MPI to be heard.
// Nothing that this takes is sure to come back: a terminal that nobody reads, a launcher
// that does not answer, what libraries do at exit() beside a device that hangs. An alarm
// ends the process then.
#include "comm/environment.hpp"

#include <dlfcn.h>
#include <mpi.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "base/plural.hpp"
#include "comm/device_mpi.hpp"
#include "comm/self_communicator.hpp"
#include "comm/transport_kind.hpp"

namespace trireme::comm {
namespace {

// Launchers may kill the ranks before they have passed on what was printed.
constexpr std::chrono::milliseconds kTimeToPrint(300);

// How long the end of a process may take, seconds.
constexpr unsigned kLongestEnd = 5;

constexpr rlim_t kDescriptorsOfMpi = 32;

volatile std::sig_atomic_t status_at_alarm = 1;

// The process ends with this status in kLongestEnd, whatever its threads are in by then.
void end_at_the_latest(int status) noexcept {
  status_at_alarm = status;
  struct sigaction action = {};
  action.sa_handler = [](int) { std::_Exit(status_at_alarm); };
  ::sigaction(SIGALRM, &action, nullptr);
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  ::pthread_sigmask(SIG_UNBLOCK, &alarms, nullptr);
  ::alarm(kLongestEnd);
}

// The limit on open files, after it was raised as far as the system lets this user.
rlim_t raised_descriptor_limit() {
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kDescriptorsOfMpi;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// UCX, below MPI, takes SIGHUP before main() begins, to fill the log with what it does.
// Whether it was ignored before that (nohup) is not to be known any more: it is from now
// on, unless checkpoint.on_signal asks for it.
void ignore_taken_hang_up() {
  struct sigaction action = {};
  sigaction(SIGHUP, nullptr, &action);
  if (action.sa_handler == SIG_DFL) return;
  action = {};
  action.sa_handler = SIG_IGN;
  sigaction(SIGHUP, &action, nullptr);
}

// UCX below MPI reports crashes in a handler that frees memory: a process that crashed
// within malloc() then waits for ever, for a lock that it holds itself. Left to itself a
// crash ends the process, and the launcher the others. UCX has read its variables when it
// was loaded, mostly before main(), and would warn of one set since then; a UCX that MPI
// loads later reads them then. Whoever set them wants the report.
void leave_crashes_alone() {
  if (std::getenv("UCX_HANDLE_ERRORS") != nullptr ||
      std::getenv("UCX_ERROR_SIGNALS") != nullptr) {
    return;
  }
  if (void* disable = ::dlsym(RTLD_DEFAULT, "ucs_debug_disable_signals")) {
    reinterpret_cast<void (*)()>(disable)();
  } else {
    ::setenv("UCX_HANDLE_ERRORS", "none", 0);
  }
}

// Throws on all ranks what is wrong on some of them (nothing where the text is empty
// everywhere): the others would wait for the ranks that end.
void throw_on_all(const std::string& problem) {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int first = problem.empty() ? size : rank;
  MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first == size) return;
  std::array<char, 1024> text{};
  problem.copy(text.data(), text.size() - 1);
  MPI_Bcast(text.data(), static_cast<int>(text.size()), MPI_CHAR, first, MPI_COMM_WORLD);
  if (rank != 0) throw InputError("");
  throw InputError(first == 0 ? std::string(text.data())
                              : fmt::format("rank {}: {}", first, text.data()));
}

// The library on itself; may be asked for before MPI_Init.
std::string library_text() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  return text;
}

}  // namespace

std::string library_version() {
  // "MPICH Version:      4.0.2" and "Open MPI v4.1.4, package: ..." say the same.
  std::istringstream words(first_line(library_text()));
  std::string library;
  for (std::string word; words >> word;) {
    if (word == "Version:") continue;
    const bool is_last = word.back() == ',';
    if (is_last) word.pop_back();
    library += (library.empty() ? "" : " ") + word;
    if (is_last) break;
  }
  return library;
}

std::string srun_mpi_type(std::string_view library) {
  const auto has = [&](std::string_view word) {
    return library.find(word) != std::string_view::npos;
  };
  if (has("CRAY")) return {};  // its srun has a dialect of its own, the site's default
  if (has("Open MPI")) return "pmix";
  // MPICH tells how it was configured.
  if (has("--with-pmix") || has("--with-pmi=pmix")) return "pmix";
  return has("MPICH") || has("MVAPICH") || has("Intel(R) MPI") ? "pmi2" : "";
}

std::string srun_mpi_type() {
  return srun_mpi_type(library_text());
}

int launcher_ranks(const std::function<const char*(const char*)>& get) {
  int ranks = 0;
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"}) {
    if (const char* value = get(name)) ranks = std::max(ranks, std::atoi(value));
  }
  return ranks;
}

std::vector<std::string> launcher_words(
    const std::function<const char*(const char*)>& get, int ranks,
    const std::string& srun_mpi_type) {
  if (ranks <= 1) return {};
  const auto is_said = [&](const char* name) {
    const char* value = get(name);
    return value != nullptr && std::atoi(value) == ranks;
  };
  // An mpiexec within a job of SLURM has its own helpers started by srun.
  const bool by_mpiexec =
      get("MPI_LOCALNRANKS") != nullptr || get("OMPI_COMMAND") != nullptr;
  std::vector<std::string> words;
  if (!by_mpiexec && is_said("SLURM_STEP_NUM_TASKS")) {
    words = {"srun"};
    if (!srun_mpi_type.empty()) words.push_back("--mpi=" + srun_mpi_type);
  } else if (by_mpiexec || is_said("PMI_SIZE") || is_said("OMPI_COMM_WORLD_SIZE")) {
    words = {"mpiexec"};
  } else {
    return {};
  }
  words.insert(words.end(), {"-n", std::to_string(ranks)});
  return words;
}

Environment::Environment(int& argc, char**& argv) {
  int up = 0;
  MPI_Initialized(&up);
  int provided = MPI_THREAD_FUNNELED;
  if (up == 0) {
    leave_crashes_alone();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    owns_mpi_ = true;
    ignore_taken_hang_up();
  }
  try {
    TRIREME_REQUIRE(
        provided >= MPI_THREAD_FUNNELED,
        "this MPI library gives no thread support (MPI_THREAD_FUNNELED is needed): "
        "load a build of it that has threads");
    start();
  } catch (...) {
    if (owns_mpi_) MPI_Finalize();  // the destructor will not run
    throw;
  }
}

void Environment::start() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  library_ = library_version();
  const int launched =
      owns_mpi_ ? launcher_ranks([](const char* name) { return std::getenv(name); }) : 0;
  TRIREME_REQUIRE_INPUT(
      size > 1 || launched <= 1,
      "the launcher started {}, but each believes to be alone: it does not speak to this "
      "MPI library ({}). Use the library's own mpiexec, or tell srun its dialect (srun "
      "--mpi=pmi2 for MPICH, --mpi=pmix for Open MPI; srun --mpi=list shows them). To "
      "run one rank on purpose inside such a job: env -u SLURM_STEP_NUM_TASKS trireme "
      "...",
      format_plural(launched, "task"), library_);
  char host[MPI_MAX_PROCESSOR_NAME] = "";
  int length = 0;
  MPI_Get_processor_name(host, &length);
  host_name_ = host;
  node_ = find_node_info();
  std::string problem;
  MpiOptions options;
  try {
    wait_policy_ = choose_wait_policy(node_, std::getenv("TRIREME_WAIT"));
    choose_call_checks(std::getenv("TRIREME_CHECK_MESSAGES"));
    transport_ = choose_transport(std::getenv("TRIREME_TRANSPORT"));
    const MpiDeviceFacts facts{.transport = transport_,
                               .library = library_text(),
                               .says_cuda = library_says_cuda()};
    if (choose_device_mpi([](const char* name) { return std::getenv(name); }, facts)) {
      options.stage_through_host = false;
    }
  } catch (const InputError& error) {
    problem = error.what();
  }
  throw_on_all(problem);
  options.wait = wait_policy_;
  options.transport = transport_;
  options.is_deterministic = [this] { return is_deterministic_; };
  world_ = size == 1 ? make_self_communicator("world") : make_mpi_world(options);
  world_->set_timeout(kStartSeconds);
}

Environment::~Environment() {
  world_.reset();
  if (owns_mpi_) MPI_Finalize();
}

void Environment::abort_before_start(int argc, char** argv, int status) noexcept {
  std::fflush(nullptr);
  if (launcher_ranks([](const char* name) { return std::getenv(name); }) > 1) {
    leave_crashes_alone();
    // Shared memory may be what is missing, or descriptors.
    ::setenv("UCX_TLS", "self,tcp", 0);
    // MPI_Init() hangs without descriptors; of a rank that was killed every launcher
    // hears.
    if (raised_descriptor_limit() < kDescriptorsOfMpi) {
      std::this_thread::sleep_for(kTimeToPrint);
      std::raise(SIGKILL);
    }
    MPI_Init(&argc, &argv);
  }
  abort(status);
}

void Environment::abort(int status) noexcept {
  end_at_the_latest(status);
  std::fflush(nullptr);
  int up = 0;
  int finalized = 0;
  MPI_Initialized(&up);
  MPI_Finalized(&finalized);
  if (up != 0 && finalized == 0) {
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > 1) std::this_thread::sleep_for(kTimeToPrint);
    MPI_Abort(MPI_COMM_WORLD, status);
  }
  std::_Exit(status);  // without MPI, or where MPI_Abort comes back
}

void Environment::abort_beside_main(int status) noexcept {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level >= MPI_THREAD_SERIALIZED) abort(status);
  end_at_the_latest(status);
  std::fflush(nullptr);
  std::this_thread::sleep_for(kTimeToPrint);
  std::_Exit(status);
}

}  // namespace trireme::comm
