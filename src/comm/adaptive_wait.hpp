// comm/adaptive_wait.hpp — whether a thread that waits for a message polls without a
// pause or naps between polls: it polls for as long as it has its core to itself.
//
// On a core of one's own polling is fastest: a nap ends tens of microseconds late, and
// large messages move on only while somebody polls. Where others use the core it is
// ruinous: the thread spends its share of the core on polls, and the core is taken from
// it for milliseconds just when its message comes. A thread that slept is given a core at
// once. Which of the two it is shows in the thread's own time on the core while it polls:
// polling never blocks, so time that is missing went to somebody else.
#ifndef TRIREME_COMM_ADAPTIVE_WAIT_HPP_
#define TRIREME_COMM_ADAPTIVE_WAIT_HPP_

#include <cstdint>

namespace trireme::comm {

// How long the next nap of a wait is that has had so many. Polls take cores from ranks
// that compute, so naps grow with the wait, to a quarter of a millisecond, and after the
// first ones are less than a tenth of what the wait has lasted.
long nap_nanoseconds(std::int64_t naps_before);

// For one thread, and all of its waits. begin(); then, after each poll that found
// nothing, next(), and a nap where it says so; end().
class AdaptiveWait {
 public:
  enum class Next { poll, nap };

  // Seconds, of two clocks of the calling thread's; tests bring their own.
  struct Clocks {
    double (*wall)();
    double (*on_core)();
  };
  explicit AdaptiveWait(const Clocks& clocks = system_clocks()) : clocks_(clocks) {}
  static Clocks system_clocks();

  void begin() { polls_ = 0; }
  Next next();
  void end();

  bool is_napping() const { return naps_until_ > 0.0; }

 private:
  void look();
  void share(double now);

  Clocks clocks_;
  std::int64_t polls_ = 0;  // of this wait
  // When this wait last read the clocks; wall_ is 0 where it has not.
  double wall_ = 0.0, on_core_ = 0.0;
  // Seconds since the window began: polled in all, and of them without a core.
  double polled_ = 0.0, missing_ = 0.0;
  double naps_until_ = 0.0;  // 0: polls
  double hold_ = 0.0;        // how long naps go on before polling is tried again
};

}  // namespace trireme::comm

#endif  // TRIREME_COMM_ADAPTIVE_WAIT_HPP_
