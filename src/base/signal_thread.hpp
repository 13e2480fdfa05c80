// base/signal_thread.hpp — a thread that signals from outside come to, and no other.
//
// A signal to a process goes to any thread that does not block it, and its handler's
// frame lies on that thread's stack, beyond the red zone of 128 bytes. Kernels generated
// at run time (oneDNN's) keep data beyond it (seen as a corrupted heap in its sgemm). A
// stack of the handler's own (sigaltstack) would have to be given to each thread, and
// those of OpenMP come and go: libgomp ends and makes them as teams shrink and grow. But
// they inherit what their maker blocks. So the thread that makes all others blocks these
// signals before it makes the first, and this one alone unblocks them. It sleeps
// otherwise, on a stack that holds nothing. No call of MPI is interrupted any more,
// either.
//
// What a signal does is not changed, nor is what a program gets that ChildProcess starts.
// Threads made before (by MPI) may take a signal, too: they run compiled code alone.
#ifndef TRIREME_BASE_SIGNAL_THREAD_HPP_
#define TRIREME_BASE_SIGNAL_THREAD_HPP_

#include <array>
#include <csignal>
#include <semaphore>
#include <thread>

namespace trireme {

// What people, launchers and batch systems send.
inline constexpr std::array<int, 5> kOutsideSignals = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT,
                                                       SIGHUP};

class SignalThread {
 public:
  // To be made in the thread that makes all others, before it does.
  SignalThread();
  ~SignalThread();  // in the same: it blocks what it did before
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  sigset_t before_ = {};
  std::binary_semaphore end_{0};
  std::thread thread_;
};

}  // namespace trireme

#endif  // TRIREME_BASE_SIGNAL_THREAD_HPP_
