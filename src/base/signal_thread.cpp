// base/signal_thread.cpp — see signal_thread.hpp.
#include "base/signal_thread.hpp"

#include <pthread.h>

namespace trireme {

SignalThread::SignalThread() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int number : kOutsideSignals) ::sigaddset(&signals, number);
  ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
  thread_ = std::thread([this, signals] {
    ::pthread_setname_np(::pthread_self(), "signals");
    ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    end_.acquire();
  });
}

SignalThread::~SignalThread() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  end_.release();
  thread_.join();
}

}  // namespace trireme
