// base/child_process.cpp — see child_process.hpp.
#include "base/child_process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

#include "base/error.hpp"

extern char** environ;

namespace trireme {

namespace {

// More than any answer is long; what would be longer is cut.
constexpr std::size_t kMostOutput = std::size_t{1} << 16;
constexpr int kTriesToReap = 100;  // milliseconds

// All that are open here from 3 on. (closefrom() is newer than many a cluster's glibc.)
std::vector<int> open_files() {
  std::vector<int> files;
  std::error_code ignored;  // no /proc: then only those marked close-on-exec are closed
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const int file = std::atoi(entry.path().filename().c_str());
    if (file > 2) files.push_back(file);
  }
  return files;
}

// What posix_spawn is told, freed again.
struct SpawnPlan {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  explicit SpawnPlan(int output) {
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&files, output, 1);
    ::posix_spawn_file_actions_adddup2(&files, output, 2);
    for (const int file : open_files()) {
      ::posix_spawn_file_actions_addclose(&files, file);
    }
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP |
                                                POSIX_SPAWN_SETSIGMASK |
                                                POSIX_SPAWN_SETSIGDEF);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    sigset_t signals;
    ::sigemptyset(&signals);
    ::posix_spawnattr_setsigmask(&attributes, &signals);
    // Handlers end with exec; what is ignored here (SIGPIPE) would stay so.
    ::sigfillset(&signals);
    ::posix_spawnattr_setsigdefault(&attributes, &signals);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
};

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command) {
  std::array<int, 2> ends{};
  TRIREME_REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0, "cannot make a pipe to '{}': {}",
                  command.at(0), std::strerror(errno));
  pipe_ = Descriptor(ends[0]);
  const Descriptor theirs(ends[1]);
  ::fcntl(pipe_, F_SETFL,
          O_NONBLOCK);  // our end alone: programs take EAGAIN for an error
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const SpawnPlan plan(theirs);
  const int error = ::posix_spawnp(&process_, arguments[0], &plan.files, &plan.attributes,
                                   arguments.data(), environ);
  if (error != 0)
    throw Error(fmt::format("cannot run '{}': {}", command[0], std::strerror(error)));
}

ChildProcess::~ChildProcess() {
  kill();
  for (int tries = 0; process_ > 0 && tries < kTriesToReap; ++tries) {
    if (tries > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    poll();
  }
}

void ChildProcess::kill() {
  if (process_ > 0) ::kill(-process_, SIGKILL);  // its group
}

void ChildProcess::read_output() {
  std::array<char, 4096> buffer;
  ssize_t count = 0;
  while ((count = ::read(pipe_, buffer.data(), buffer.size())) > 0) {
    const std::size_t room = kMostOutput - output_.size();
    output_.append(buffer.data(), std::min(room, static_cast<std::size_t>(count)));
  }
}

std::optional<ChildProcess::Ended> ChildProcess::poll() {
  if (process_ <= 0) return std::nullopt;
  read_output();
  int status = 0;
  if (::waitpid(process_, &status, WNOHANG) == 0) return std::nullopt;
  process_ = -1;
  read_output();  // what it wrote since
  return Ended{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), output_};
}

}  // namespace trireme
