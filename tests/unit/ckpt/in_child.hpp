// tests/unit/ckpt/in_child.hpp — what a process does that dies in the middle of it.
#ifndef TRIREME_TESTS_UNIT_CKPT_IN_CHILD_HPP_
#define TRIREME_TESTS_UNIT_CKPT_IN_CHILD_HPP_

#include <sys/wait.h>
#include <unistd.h>

namespace trireme::test {

inline constexpr const char* kNoForks = "a process that has CUDA cannot fork";

// Runs `action` in a child; returns its wait status.
template <class F>
int in_child(F&& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      action();
    } catch (...) {
      ::_exit(3);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_CKPT_IN_CHILD_HPP_
