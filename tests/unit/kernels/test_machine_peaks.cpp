// The measured bounds: numbers of a real machine, and what has no matrix product.
#include "kernels/machine_peaks.hpp"

#include <gtest/gtest.h>

#include <string>

namespace trireme::kernels {
namespace {

TEST(MachinePeaksRange, ArePlausible) {
  const Exec exec;
  const double bandwidth = measured_memory_bandwidth(exec);
  EXPECT_GT(bandwidth, 1e8);  // a busy machine may be slow, but not that slow
  EXPECT_LT(bandwidth, 1e14);
  const double peak = measured_gemm_peak(exec);
  EXPECT_GT(peak, 1e8);
  EXPECT_LT(peak, 1e16);
}

TEST(MachinePeaksRange, AProbeCanBeRepeated) {
  const Exec exec;
  const GemmProbe probe(exec, DType::float64);
  for (int i = 0; i < 3; ++i) {
    const double speed = probe.best_within(exec, 0.0);
    EXPECT_GT(speed, 1e8);
    EXPECT_LT(speed, 1e16);
  }
}

// No faster than the peak, but for what disturbs one of the two.
TEST(MachinePeaksRange, OfALayersProductsOfUpdatesAndOfLaunches) {
  const Exec exec;
  for (const DType type : {DType::float32, DType::bfloat16, DType::float16}) {
    const double speed = measured_layer_products(exec, type, 128);
    EXPECT_GT(speed, 1e8);
    EXPECT_LT(speed, 1e16);
    const double update = measured_update(exec, type);
    EXPECT_GT(update, 1e7);
    EXPECT_LT(update, 1e14);
  }
  const double launch = measured_launch(exec);
  EXPECT_GT(launch, 1e-9);
  EXPECT_LT(launch, 0.1);
}

TEST(MachinePeaksErrors, IntegersHaveNoMatrixProduct) {
  try {
    measured_gemm_peak(Exec(), DType::int32);
    FAIL() << "measured a product of integers";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("no matrix product in int32"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trireme::kernels
