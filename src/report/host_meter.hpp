// report/host_meter.hpp — what a host's processors draw, and how fast their clocks go,
// where the system tells (Linux: powercap's RAPL counters, cpufreq).
#ifndef TRIREME_REPORT_HOST_METER_HPP_
#define TRIREME_REPORT_HOST_METER_HPP_

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace trireme::report {

class HostMeter {
 public:
  static constexpr std::chrono::seconds kOften{10};
  // One rank of a host reads its energy; any may read the clocks.
  explicit HostMeter(bool reads_energy, const std::filesystem::path& system = "/sys",
                     std::chrono::steady_clock::duration often = kOften);

  // Counters wrap, those of a busy package in some minutes: to be called more often than
  // that. Reads them once in so much time as the constructor was told.
  void look();
  // Joules of all packages since the last call; 0 where they cannot be read.
  double take_joules();
  bool has_energy() const { return !packages_.empty(); }
  // Cycles per second of the cores, their mean, as it was at most some seconds ago; 0
  // where the system does not say.
  double hertz();

 private:
  struct Package {
    std::filesystem::path counter;
    std::uint64_t last = 0, range = 0;  // microjoules
  };
  std::filesystem::path system_;
  std::vector<Package> packages_;
  void read();

  std::chrono::steady_clock::duration often_;
  double joules_ = 0.0;  // read, and not taken
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  double hertz_ = 0.0;
  std::optional<std::chrono::steady_clock::time_point> asked_;  // for these
};

}  // namespace trireme::report

#endif  // TRIREME_REPORT_HOST_METER_HPP_
