// base/child_process.hpp — another program run beside this one, whose output is picked up
// without waiting for it.
//
// Started by posix_spawn: a fork would copy the page tables of a rank of many gigabytes,
// and what MPI has pinned. The child gets the environment and nothing else: no open file
// (our locks and the launcher's sockets would live on in it), no signal mask, and a
// process group of its own, so that ^C at the terminal is not for it.
#ifndef TRIREME_BASE_CHILD_PROCESS_HPP_
#define TRIREME_BASE_CHILD_PROCESS_HPP_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.hpp"

namespace trireme {

class ChildProcess {
 public:
  struct Ended {
    int status = 0;      // exit status; 128 + signal where it was killed
    std::string output;  // stdout and stderr together
  };

  // command[0] is looked for in PATH. Error where it cannot be started.
  explicit ChildProcess(const std::vector<std::string>& command);
  // Kills it where it still runs, and waits a moment for its end: what is not waited for
  // stays a zombie as long as this process lives.
  ~ChildProcess();

  // How it ended, once it has. Never waits.
  std::optional<Ended> poll();
  // Kills the process and its own children; poll() tells when it is gone. Who hangs in a
  // file system that does not answer may take long, or never go.
  void kill();

 private:
  void read_output();

  pid_t process_ = -1;  // -1: ended
  Descriptor pipe_;
  std::string output_;
};

}  // namespace trireme

#endif  // TRIREME_BASE_CHILD_PROCESS_HPP_
