// io/guarded_call.cpp — fork, pipe and wait; see guarded_call.hpp.
#include "io/guarded_call.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/error.hpp"
#include "base/error_message.hpp"

namespace trireme::io {

namespace {

[[noreturn]] void run_child(int out, const Path& path, int seconds,
                            const std::function<std::string()>& work) {
  // Whatever the parent does on these signals is not for the child to do.
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM}) {
    ::signal(number, SIG_DFL);
  }
  const rlimit no_core = {0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  if (seconds > 0) ::alarm(static_cast<unsigned>(seconds));
  const std::string outcome = outcome_of([&] {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      // A damaged length makes a reader ask for more than there is.
      throw InputError(
          fmt::format("'{}' is damaged: reading it asks for more memory than there is",
                      path.string()));
    }
  });
  for (std::size_t done = 0; done < outcome.size();) {
    const ssize_t put = ::write(out, outcome.data() + done, outcome.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) ::_exit(1);
    done += static_cast<std::size_t>(put);
  }
  ::_exit(0);
}

std::string read_to_end(int in) {
  std::string text;
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t got = ::read(in, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

std::string guarded_call(const Path& path, int seconds,
                         const std::function<std::string()>& work) {
  std::array<int, 2> ends;
  TRIREME_REQUIRE(::pipe(ends.data()) == 0, "cannot make a pipe: {}",
                  std::strerror(errno));
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    run_child(ends[1], path, seconds, work);
  }
  ::close(ends[1]);
  const std::string outcome = child > 0 ? read_to_end(ends[0]) : "";
  ::close(ends[0]);
  TRIREME_REQUIRE(child > 0, "cannot start a process: {}", std::strerror(errno));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    throw InputError(
        number == SIGALRM
            ? fmt::format("'{}' is damaged: reading it did not end within {} s",
                          path.string(), seconds)
            : fmt::format(
                  "'{}' is damaged: reading it crashed the library (signal {}, {})",
                  path.string(), number, ::strsignal(number)));
  }
  TRIREME_REQUIRE(!outcome.empty(), "reading '{}' in a process of its own ended with {}",
                  path.string(), status);
  return text_or_throw(outcome);
}

}  // namespace trireme::io
