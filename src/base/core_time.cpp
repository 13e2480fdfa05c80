// base/core_time.cpp — see core_time.hpp.
#include "base/core_time.hpp"

#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <memory>

namespace trireme {

namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// Nanoseconds on a core, and on its run queue (the kernel's documentation of schedstats).
void add_threads(CoreTime& time) {
  const std::unique_ptr<DIR, CloseDirectory> tasks(::opendir("/proc/self/task"));
  if (!tasks) return;
  while (const dirent* entry = ::readdir(tasks.get())) {
    if (*entry->d_name == '.') continue;
    const std::string name =
        "/proc/self/task/" + std::string(entry->d_name) + "/schedstat";
    const File file(std::fopen(name.c_str(), "r"));
    unsigned long long ran = 0, waited = 0;
    // A thread may have ended since its name was read.
    if (!file || std::fscanf(file.get(), "%llu %llu", &ran, &waited) != 2) continue;
    time.ran += 1e-9 * static_cast<double>(ran);
    time.waited += 1e-9 * static_cast<double>(waited);
  }
}

// "cpu  user nice system idle iowait irq softirq steal ...", in clock ticks.
void add_stolen(CoreTime& time) {
  const File file(std::fopen("/proc/stat", "r"));
  unsigned long long ticks[8] = {};
  if (!file || std::fscanf(file.get(), "cpu %llu %llu %llu %llu %llu %llu %llu %llu",
                           &ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4],
                           &ticks[5], &ticks[6], &ticks[7]) != 8) {
    return;
  }
  const auto per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (const unsigned long long count : ticks) {
    time.offered += static_cast<double>(count) / per_second;
  }
  time.stolen = static_cast<double>(ticks[7]) / per_second;
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

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace trireme
