// base/core_time.hpp — what this process' threads got of the cores that they may run on:
// where others use them, too, everything takes longer and nothing else says why.
#ifndef TRIREME_BASE_CORE_TIME_HPP_
#define TRIREME_BASE_CORE_TIME_HPP_

namespace trireme {

// Seconds since the process (or thread) began.
struct CoreTime {
  double ran = 0.0;     // on a core
  double waited = 0.0;  // ready to run, while other threads had the core
  // Taken from the cores by the host of a virtual machine, over all of its cores, and
  // what all of them had to give: since the machine began.
  double stolen = 0.0, offered = 0.0;

  CoreTime operator-(const CoreTime& before) const {
    return {ran - before.ran, waited - before.waited, stolen - before.stolen,
            offered - before.offered};
  }
  // The share of the time in which threads could have run that they spent waiting for a
  // core; 0 where nothing ran.
  double waiting_share() const;
  double stolen_share() const;
};

// The time of all threads of this process that live; zeros where the system does not say
// (Linux does: /proc/PID/task/TID/schedstat, /proc/stat).
CoreTime read_core_time();

// Threads of the whole machine that run or wait for a core now, the calling one among
// them; 0 where the system does not say (Linux does: /proc/loadavg). A read of some us.
int count_ready_threads();

// Whether so many threads of this process would have to share cores now with what else
// runs on the machine, the calling thread being one of them. Blind to bindings: what
// others do on cores of their own counts, and so do their cores.
bool are_cores_wanted(int threads);

// Seconds that the calling thread has been on a core; a system call, some 0.2 us.
double thread_cpu_seconds();

}  // namespace trireme

#endif  // TRIREME_BASE_CORE_TIME_HPP_
