// What data sheets say of devices, by the names that they have.
#include "report/nominal_peak.hpp"

#include <gtest/gtest.h>

namespace trireme::report {
namespace {

TEST(NominalPeak, IsTheDataSheets) {
  EXPECT_EQ(nominal_peak("NVIDIA A100-SXM4-80GB", DType::bfloat16), 312e12);
  EXPECT_EQ(nominal_peak("NVIDIA A100-SXM4-80GB", DType::float32), 19.5e12);
  EXPECT_EQ(nominal_peak("NVIDIA H100 80GB HBM3", DType::bfloat16), 989.4e12);
  EXPECT_EQ(nominal_peak("NVIDIA H100 PCIe", DType::bfloat16), 756e12);
  EXPECT_EQ(nominal_peak("NVIDIA H200", DType::float16), 989.4e12);
  EXPECT_EQ(nominal_peak("Tesla V100-SXM3-32GB", DType::float16), 125e12);
}

TEST(NominalPeak, IsNotKnownOfOthers) {
  EXPECT_EQ(nominal_peak("Tesla V100-SXM3-32GB", DType::bfloat16), 0.0);
  EXPECT_EQ(nominal_peak("NVIDIA GeForce GTX 1080", DType::float32), 0.0);
  EXPECT_EQ(nominal_peak("NVIDIA A100-SXM4-80GB", DType::int32), 0.0);
  EXPECT_EQ(nominal_peak("", DType::float32), 0.0);
}

}  // namespace
}  // namespace trireme::report
