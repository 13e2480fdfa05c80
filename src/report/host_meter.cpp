// report/host_meter.cpp — see host_meter.hpp.
//
// A package is a directory intel-rapl:N (AMD's have the same name); those of its parts,
// intel-rapl:N:M, are in it already. Their counters are readable by root alone on many
// systems, since they can tell secrets: then there is no energy in a report.
#include "report/host_meter.hpp"

#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace trireme::report {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPackagePrefix = "intel-rapl:";

std::optional<std::uint64_t> number_of(const fs::path& file) {
  std::ifstream stream(file);
  std::uint64_t number = 0;
  if (!(stream >> number)) return {};
  return number;
}

std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    entries.push_back(entry->path());
  }
  return entries;
}

bool is_package(const std::string& name) {
  const std::string prefix = kPackagePrefix;
  return name.starts_with(prefix) && name.find(':', prefix.size()) == std::string::npos;
}

}  // namespace

HostMeter::HostMeter(bool reads_energy, const fs::path& system,
                     std::chrono::steady_clock::duration often)
    : system_(system), often_(often) {
  if (!reads_energy) return;
  for (const fs::path& entry : entries_of(system / "class/powercap")) {
    if (!is_package(entry.filename().string())) continue;
    const fs::path counter = entry / "energy_uj";
    const auto now = number_of(counter);
    const auto range = number_of(entry / "max_energy_range_uj");
    if (now && range) packages_.push_back({counter, *now, *range});
  }
}

void HostMeter::look() {
  const auto now = std::chrono::steady_clock::now();
  if (packages_.empty() || now - looked_ < often_) return;
  looked_ = now;
  read();
}

double HostMeter::take_joules() {
  read();
  return std::exchange(joules_, 0.0);
}

void HostMeter::read() {
  constexpr double kMicro = 1e-6;
  for (Package& package : packages_) {
    const auto now = number_of(package.counter);
    if (!now) continue;
    const std::uint64_t passed =
        *now >= package.last ? *now - package.last : *now + package.range - package.last;
    joules_ += kMicro * static_cast<double>(passed);
    package.last = *now;
  }
}

// There is a file for each core, and a hundred of them take a millisecond.
double HostMeter::hertz() {
  constexpr double kKilo = 1e3;
  const auto now = std::chrono::steady_clock::now();
  if (asked_ && now - *asked_ < often_) return hertz_;
  asked_ = now;
  double sum = 0.0;
  int cores = 0;
  for (const fs::path& entry : entries_of(system_ / "devices/system/cpu")) {
    const auto kilohertz = number_of(entry / "cpufreq/scaling_cur_freq");
    if (!kilohertz) continue;
    sum += kKilo * static_cast<double>(*kilohertz);
    ++cores;
  }
  hertz_ = cores > 0 ? sum / cores : 0.0;
  return hertz_;
}

}  // namespace trireme::report
