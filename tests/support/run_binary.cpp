// tests/support/run_binary.cpp — see run_binary.hpp.
#include "support/run_binary.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

extern char** environ;

namespace trireme::test {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    if (read_end >= 0) ::close(read_end);
    close_write();
  }
  void close_write() {
    if (write_end >= 0) ::close(write_end);
    write_end = -1;
  }
};

// The variables of this process (without those a launcher gave it), then the given ones.
std::vector<std::string> make_environment(const RunOptions& options) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    const bool replaced = options.environment.count(name) > 0;
    if (!replaced && !name.starts_with("PMI_") && !name.starts_with("PMIX_")) {
      variables.push_back(text);
    }
  }
  for (const auto& [name, value] : options.environment) {
    variables.push_back(name + "=" + value);
  }
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Reads both until both are closed; false when the time is up.
bool drain(Pipe& out, Pipe& err, RunResult& result, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  std::array<pollfd, 2> waits = {{{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}}};
  std::array<std::string*, 2> texts = {&result.out, &result.err};
  int open = 2;
  while (open > 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    if (::poll(waits.data(), waits.size(), static_cast<int>(left)) < 0 &&
        errno != EINTR) {
      return false;
    }
    for (std::size_t i = 0; i < 2; ++i) {
      if (waits[i].fd < 0 || waits[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t count = ::read(waits[i].fd, buffer, sizeof(buffer));
      if (count > 0) {
        texts[i]->append(buffer, static_cast<std::size_t>(count));
      } else if (count == 0 || errno != EINTR) {
        waits[i].fd = -1;
        --open;
      }
    }
  }
  return true;
}

// A child starts with the three standard streams alone. What this process inherited (of
// ctest, or of the shell that began it) would count against limits that a test sets: a
// rank that has no descriptor left for its libraries ends before main(), and Hydra, which
// hears of killed ranks only, waits for it for ever.
void keep_descriptors_from_children() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    if (descriptor > 2) ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  }
}

}  // namespace

RunResult run(const std::vector<std::string>& command, const RunOptions& options) {
  keep_descriptors_from_children();
  Pipe out, err;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.write_end, 1);
  ::posix_spawn_file_actions_adddup2(&actions, err.write_end, 2);
  if (!options.directory.empty()) {
    ::posix_spawn_file_actions_addchdir_np(&actions, options.directory.c_str());
  }
  // A group of its own, so that a launcher's children can be killed with it.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  ::posix_spawnattr_setpgroup(&attributes, 0);

  std::vector<std::string> arguments = command;
  std::vector<std::string> variables = make_environment(options);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0].c_str(), &actions, &attributes,
                     pointers_to(arguments).data(), pointers_to(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    throw std::runtime_error("cannot run '" + command[0] + "': " + std::strerror(error));
  }
  out.close_write();
  err.close_write();

  RunResult result;
  const bool in_time = drain(out, err, result, options.timeout);
  if (!in_time) ::kill(-child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (in_time) {
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return result;
}

namespace {
// Of a suite that is run once more with late copies, and does not know of it.
void add_arguments(std::vector<std::string>& command,
                   const std::vector<std::string>& arguments) {
  command.insert(command.end(), arguments.begin(), arguments.end());
  const bool trains = !arguments.empty() && arguments.front() == "train";
  if (trains && std::getenv("TRIREME_TRAIN_LATE") != nullptr) command.push_back("--late");
}
}  // namespace

RunResult trireme(const std::vector<std::string>& arguments, const RunOptions& options) {
  const char* binary = std::getenv("TRIREME_BINARY");
  if (binary == nullptr) throw std::runtime_error("TRIREME_BINARY is not set");
  std::vector<std::string> command = {binary};
  add_arguments(command, arguments);
  return run(command, options);
}

RunResult trireme_on_ranks(int ranks, const std::vector<std::string>& arguments,
                           const RunOptions& options) {
  const char* binary = std::getenv("TRIREME_BINARY");
  if (binary == nullptr) throw std::runtime_error("TRIREME_BINARY is not set");
  const char* launcher = std::getenv("TRIREME_MPIEXEC");
  std::vector<std::string> command = {launcher == nullptr ? "mpiexec" : launcher, "-n",
                                      std::to_string(ranks), binary};
  add_arguments(command, arguments);
  return run(command, for_ranks(options));
}

RunOptions for_ranks(RunOptions options) {
  options.environment.emplace("OMP_NUM_THREADS", "1");
  const char* library = std::getenv("TRIREME_PATIENT_WAITS");
  if (library != nullptr) options.environment.emplace("LD_PRELOAD", library);
  return options;
}

}  // namespace trireme::test
