// base/core_time.cpp — see core_time.hpp.
#include "base/core_time.hpp"

#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <system_error>

namespace trireme {

namespace fs = std::filesystem;

namespace {

// Nanoseconds on a core, and on its run queue (the kernel's documentation of schedstats).
void add_threads(CoreTime& time) {
  std::error_code error;  // what cannot be read is left out
  for (fs::directory_iterator task("/proc/self/task", error), end; !error && task != end;
       task.increment(error)) {
    std::ifstream file(task->path() / "schedstat");
    double ran = 0.0, waited = 0.0;
    // A thread may have ended since its name was read.
    if (!(file >> ran >> waited)) continue;
    time.ran += 1e-9 * ran;
    time.waited += 1e-9 * waited;
  }
}

// "cpu  user nice system idle iowait irq softirq steal ...", in clock ticks.
void add_stolen(CoreTime& time) {
  std::ifstream file("/proc/stat");
  std::string cpu;
  double ticks[8] = {};
  file >> cpu;
  for (double& count : ticks) file >> count;
  if (!file) return;
  const auto per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  time.offered = std::accumulate(std::begin(ticks), std::end(ticks), 0.0) / per_second;
  time.stolen = ticks[7] / per_second;
}

double share(double part, double whole) {
  return whole > 0.0 ? part / whole : 0.0;
}

}  // namespace

double CoreTime::waiting_share() const {
  return share(waited, ran + waited);
}

double CoreTime::stolen_share() const {
  return share(stolen, offered);
}

CoreTime read_core_time() {
  CoreTime time;
  add_threads(time);
  add_stolen(time);
  return time;
}

int count_ready_threads() {
  std::ifstream file("/proc/loadavg");
  std::string mean;
  int ready = 0;
  file >> mean >> mean >> mean >> ready;  // "0.42 0.31 0.30 2/345 6789"
  return file ? ready : 0;
}

bool are_cores_wanted(int threads) {
  const int others = count_ready_threads() - 1;
  return others + threads > ::sysconf(_SC_NPROCESSORS_ONLN);
}

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace trireme
