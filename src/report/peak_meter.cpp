// report/peak_meter.cpp — see peak_meter.hpp.
#include "report/peak_meter.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/wall_time.hpp"
#include "kernels/machine_peaks.hpp"

namespace trireme::report {

namespace {

constexpr int kFirstProbes = 4;
constexpr double kProbeSeconds = 0.05;
constexpr double kLeastInterval = 120.0;
constexpr double kShareOfTime = 0.0005;

}  // namespace

void MeasuredPeak::add(double tera) {
  best = std::max(best, tera);
  least = probes == 0 ? tera : std::min(least, tera);
  ++probes;
}

PeakMeter::PeakMeter(comm::Communicator& world, const Exec& exec, DType type,
                     double flops, bool repeats)
    : type_(type), repeats_(repeats) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const kernels::GemmProbe probe(exec, type);
  const auto measure = [&] { peak_.add(probe.best_within(exec, kProbeSeconds) / 1e12); };
  measure();
  double seconds = seconds_since(begin);  // of one with its preparations, as later ones
  // All ranks measure once, or all go on: one that measured alone would find more than it
  // has in training.
  const double fastest = world.all_reduce(peak_.best, comm::Op::max);
  if (flops >= fastest * 1e12 * kFirstProbes * kProbeSeconds) {
    for (int i = 1; i < kFirstProbes; ++i) measure();
  }
  seconds = world.all_reduce(seconds, comm::Op::max);
  interval_ = std::max(kLeastInterval, seconds / kShareOfTime);
  next_ = interval_;
}

void PeakMeter::probe(const Exec& exec, double seconds) {
  if (!repeats_) return;
  next_ = seconds + interval_;
  std::optional<kernels::GemmProbe> probe;
  try {
    probe.emplace(exec, type_);
  } catch (const std::exception&) {  // training has taken all of the memory
    return;
  }
  peak_.add(probe->best_within(exec, kProbeSeconds) / 1e12);
}

}  // namespace trireme::report
