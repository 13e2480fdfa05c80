// The GEMM peak: what several probes come to, and how seldom they are repeated.
#include "report/peak_meter.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "comm/self_communicator.hpp"

namespace trireme::report {
namespace {

TEST(PeakMeter, BestAndLeastOfTheProbes) {
  MeasuredPeak peak;
  EXPECT_EQ(peak.probes, 0);
  for (const double tera : {0.1, 0.026, 0.156, 0.05}) peak.add(tera);
  EXPECT_EQ(peak.best, 0.156);
  EXPECT_EQ(peak.least, 0.026);
  EXPECT_EQ(peak.probes, 4);
}

constexpr double kLongRun = 1e18;  // operations

// What the report says of a run of a few tiny steps needs no four probes, each of which
// takes as long as the run.
TEST(PeakMeter, OneProbeIsEnoughForARunThatIsShorterThanTheProbes) {
  const auto world = comm::make_self_communicator("world");
  PeakMeter meter(*world, Exec(), DType::float32, 1e3);
  EXPECT_EQ(meter.peak().probes, 1);
  EXPECT_GT(meter.peak().best, 0.0);
  EXPECT_EQ(meter.peak().best, meter.peak().least);
}

TEST(PeakMeter, RepeatsSoSeldomThatItCostsNothing) {
  const auto world = comm::make_self_communicator("world");
  const Exec exec;
  PeakMeter meter(*world, exec, DType::float32, kLongRun, true);
  const MeasuredPeak first = meter.peak();
  EXPECT_GT(first.probes, 1);
  EXPECT_GT(first.least, 0.0);
  EXPECT_GE(first.best, first.least);
  // From the beginning of training on.
  EXPECT_FALSE(meter.is_due(0.0));
  EXPECT_FALSE(meter.is_due(119.0));
  double due = 120.0;
  while (!meter.is_due(due)) due *= 1.1;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  meter.probe(exec, due);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  // A busy machine may stretch one of them, hardly by so much.
  EXPECT_LT(seconds, 0.02 * due);
  EXPECT_EQ(meter.peak().probes, first.probes + 1);
  EXPECT_GE(meter.peak().best, first.best);
  EXPECT_LE(meter.peak().least, first.least);
  EXPECT_FALSE(meter.is_due(due + 100.0));
}

// On a GPU.
TEST(PeakMeter, TakesNoMemoryOnceTheModelHasIt) {
  const auto world = comm::make_self_communicator("world");
  PeakMeter meter(*world, Exec(), DType::float32, kLongRun, false);
  const int first = meter.peak().probes;
  EXPECT_GT(first, 1);
  EXPECT_FALSE(meter.is_due(1e9));
  meter.probe(Exec(), 1e9);
  EXPECT_EQ(meter.peak().probes, first);
}

}  // namespace
}  // namespace trireme::report
