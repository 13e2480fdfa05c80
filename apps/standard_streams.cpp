// apps/standard_streams.cpp — see standard_streams.hpp.
#include "apps/standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace trireme::apps {

void hold_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest number that is free, which is this one.
    const int mode = stream == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (::open("/dev/null", mode) < 0) return;
  }
}

std::string flush_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return std::string("cannot write the output to stdout: ") +
         (errno != 0 ? std::strerror(errno) : "an earlier write failed");
}

}  // namespace trireme::apps
