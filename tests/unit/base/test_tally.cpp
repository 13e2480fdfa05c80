// Arithmetic of tallies: what a pass did, and what many of them do.
#include <gtest/gtest.h>

#include <string>

#include "base/tally.hpp"

namespace trireme {
namespace {

Tally one_pass() {
  Tally tally;
  tally.add(Kernel{"gemm", {.flops = 30, .bytes = 8}});
  tally.add(Kernel{"attention", {.flops = 12, .masked_flops = 6, .bytes = 4}});
  tally.add(Kernel{"gemm", {.flops = 10, .bytes = 2}});
  tally.add(MessageTally{"tensor", "row-parallel output", "all-reduce", 1, 5, 20});
  return tally;
}

TEST(Tally, SumsByKernelAndBySite) {
  Tally tally = one_pass();
  const std::string other_address = "gemm";
  tally.add(Kernel{other_address.c_str()});
  tally.add(MessageTally{"data", "row-parallel output", "all-reduce", 1, 1, 4});
  tally.add(MessageTally{"tensor", "row-parallel output", "all-gather", 1, 1, 4});
  tally.add(MessageTally{"tensor", "row-parallel output", "all-reduce", 1, 2, 8});
  ASSERT_EQ(tally.kernels().size(), 2u);
  EXPECT_STREQ(tally.kernels()[0].label, "gemm");
  EXPECT_EQ(tally.kernels()[0].calls, 3);
  EXPECT_EQ(tally.kernels()[0].cost.flops, 40);
  EXPECT_EQ(tally.total().calls, 4);
  EXPECT_EQ(tally.total().cost.flops, 52);
  EXPECT_EQ(tally.total().cost.masked_flops, 6);
  EXPECT_EQ(tally.total().cost.bytes, 14);
  EXPECT_EQ(tally.kernel("layer_norm").calls, 0);
  ASSERT_EQ(tally.messages().size(), 3u);
  EXPECT_EQ(tally.messages()[0].calls, 2);
  EXPECT_EQ(tally.messages()[0].elements, 7);
  EXPECT_EQ(tally.messages()[0].bytes, 28);
}

TEST(Tally, ARecordedPassIsReplayed) {
  Tally tally = one_pass();
  const Tally before = tally;
  tally.add(Kernel{"gemm", {.flops = 1, .bytes = 1}});
  tally.add(MessageTally{"data", "gradients", "reduce-scatter", 1, 3, 12});
  const Tally pass = tally - before;
  ASSERT_EQ(pass.kernels().size(), 1u) << "attention had no call in between";
  ASSERT_EQ(pass.messages().size(), 1u);
  tally += 4 * pass;
  EXPECT_EQ(tally.kernel("gemm").calls, 2 + 5);
  EXPECT_EQ(tally.kernel("gemm").cost.flops, 40 + 5);
  EXPECT_EQ(tally.kernel("attention").calls, 1);
  EXPECT_EQ(tally.messages()[1].bytes, 5 * 12);
  tally -= before + 5 * pass;
  EXPECT_TRUE(tally.kernels().empty());
  EXPECT_TRUE(tally.messages().empty());
  EXPECT_TRUE((0 * before).kernels().empty());
}

TEST(Tally, CountsProductsByTheirShape) {
  const ProductShape one{.m = 3, .n = 5, .k = 7}, other{.m = 3, .n = 5, .k = 8};
  Tally tally;
  tally.add(ProductTally{one, 1});
  const Tally before = tally;
  tally.add(ProductTally{other, 2});
  tally.add(ProductTally{one, 1});
  ASSERT_EQ(tally.products().size(), 2u);
  EXPECT_EQ(tally.products()[0].shape, one);
  EXPECT_EQ(tally.products()[0].calls, 2);
  tally += 3 * (tally - before);
  EXPECT_EQ(tally.products()[0].calls, 5);
  EXPECT_EQ(tally.products()[1].calls, 8);
  EXPECT_TRUE((tally - tally).products().empty());
}

}  // namespace
}  // namespace trireme
