// apps/brief_spinning.cpp — see brief_spinning.hpp.
#include "apps/brief_spinning.hpp"

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace trireme::apps {

namespace {

constexpr double kAwakeSeconds = 100e-6;

// A poll of libgomp's: the CPU's pause, and a look at a word. Its time differs by CPU,
// from 10 to 140 cycles.
double seconds_of_poll() {
  using Clock = std::chrono::steady_clock;
  constexpr int kPolls = 2000;
  volatile int word = 0;
  double least = 1.0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto begin = Clock::now();
    for (int poll = 0; poll < kPolls; ++poll) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield");
#endif
      static_cast<void>(word);
    }
    const std::chrono::duration<double> taken = Clock::now() - begin;
    least = std::min(least, taken.count() / kPolls);
  }
  return least;
}

// A program that a loader was called with (`ld-linux.so trireme ...`), of which the
// kernel knows the loader alone, as what has no interpreter. The loader's own arguments
// are not in argv: nothing can be started anew as it was.
bool is_run_by_a_loader() {
  return ::getauxval(AT_BASE) == 0;
}

}  // namespace

void spin_briefly(char** argv) {
  for (const char* said : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}) {
    if (std::getenv(said) != nullptr) return;
  }
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (threads != nullptr && std::string(threads) == "1") return;
  if (is_run_by_a_loader()) return;
  std::error_code unknown;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (unknown) return;
  const double polls = kAwakeSeconds / std::max(seconds_of_poll(), 1e-10);
  const std::string count =
      std::to_string(std::clamp(static_cast<long>(polls), 100L, 300000L));
  // Set, it is also what keeps the new start from starting anew.
  if (::setenv("GOMP_SPINCOUNT", count.c_str(), 0) != 0) return;
  ::execv(path.c_str(), argv);
  ::unsetenv("GOMP_SPINCOUNT");  // it was not to be: as if never asked for
}

}  // namespace trireme::apps
