// apps/thread_settings.hpp — the threads that the environment asks for, before there are
// any: OpenMP's runtime takes what is no number for one, Kokkos has a bound of its own,
// and what the system cannot start ends both in a crash.
#ifndef TRIREME_APPS_THREAD_SETTINGS_HPP_
#define TRIREME_APPS_THREAD_SETTINGS_HPP_

#include <functional>
#include <string>

#include "comm/environment.hpp"

namespace trireme::apps {

// Threads of a team: Kokkos has no place for more.
inline constexpr int kMostThreads = 512;

struct ThreadSettings {
  int threads = 0;      // of each rank; 0: the environment does not say
  std::string source;   // the variable that says so
  std::string problem;  // what is wrong with a variable; empty: nothing
};

// OMP_NUM_THREADS and KOKKOS_NUM_THREADS, the second before the first where both are set.
// OMP_NUM_THREADS may be a list, whose first number is the one that counts: "4,2". A
// variable that is empty says nothing. Asks `get` for variables (std::getenv, or a
// test's).
ThreadSettings thread_settings(const std::function<const char*(const char*)>& get);

// Checks what this process was told of threads, before those of its work are started.
class ThreadCheck {
 public:
  ThreadCheck();
  // Says something that threads could be started by.
  bool is_sound() const { return settings_.problem.empty(); }
  // Threads of this rank; 0 where the environment does not say.
  int threads() const { return settings_.threads; }
  // Collective: what is wrong with a rank's settings, also that a team of so many threads
  // cannot be started; empty on all ranks where they are good.
  std::string problem(const comm::Environment& environment, int team) const;
  // Says that threads will share cores; empty where they need not.
  std::string warning() const;

 private:
  ThreadSettings settings_;
};

}  // namespace trireme::apps

#endif  // TRIREME_APPS_THREAD_SETTINGS_HPP_
