// report/peak_meter.hpp — the GEMM peak of this rank's device in the type that the model
// computes in, against which the speed of
// training is set: the best of several short probes, at the start and through the run.
//
// One probe tells little where others use the machine, too, or where its clock changes:
// what it finds then varies several times over. The best of many is what the device can
// do; how far they lie apart is said beside it.
#ifndef TRIREME_REPORT_PEAK_METER_HPP_
#define TRIREME_REPORT_PEAK_METER_HPP_

#include "base/exec.hpp"
#include "comm/communicator.hpp"

namespace trireme::report {

// What the probes of one rank have found: 10^12 floating-point operations per second.
struct MeasuredPeak {
  double best = 0.0, least = 0.0;
  int probes = 0;
  void add(double tera);
};

class PeakMeter {
 public:
  // Collective; the first probes. Ranks that share a processor measure at the same time,
  // as they also compute at the same time.
  // `flops`: what each rank computes in the whole run. Where that takes less time than
  // the first probes, there is one: nobody waits longer for a peak than for the run.
  // `repeats`: whether probe() measures. Not on a GPU, whose memory is all training's by
  // then, and which nobody else uses.
  PeakMeter(comm::Communicator& world, const Exec& exec, DType type, double flops,
            bool repeats = kHostExecution);

  const MeasuredPeak& peak() const { return peak_; }
  // Whether it is time for another one, `seconds` after the beginning of training. So
  // seldom that they take less than a thousandth of the time; the same on all ranks but
  // for the differences of their clocks.
  bool is_due(double seconds) const { return repeats_ && seconds >= next_; }
  // While nothing else runs on the device. Allocates and frees what it needs; where there
  // is not enough memory, nothing is measured.
  void probe(const Exec& exec, double seconds);

 private:
  DType type_;  // of the products
  bool repeats_;
  MeasuredPeak peak_;
  double interval_ = 0.0, next_ = 0.0;  // seconds
};

}  // namespace trireme::report

#endif  // TRIREME_REPORT_PEAK_METER_HPP_
