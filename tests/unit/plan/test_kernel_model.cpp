// Times of kernels and messages: their limits by hand, on a machine of round numbers.
#include "plan/kernel_model.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"

namespace trireme::plan {
namespace {

// 100 multiprocessors of 1 TFLOP/s each.
Machine round_machine() {
  Machine machine;
  machine.device = {.name = "round",
                    .memory = 1e11,
                    .multiprocessors = 100,
                    .nominal_peak = {.fp32 = 1e14, .bf16 = 1e14},
                    .gemm_peak = {.fp32 = 1e14, .bf16 = 1e14},
                    .tiles = {{.rows = 128, .columns = 128, .share = 1.0}},
                    .bandwidth = 1e12};
  machine.network = {
      {.name = "node", .devices = 8, .bandwidth = 1e11, .latency = 1e-5},
      {.name = "fabric", .devices = 64, .bandwidth = 1e10, .latency = 1e-4}};
  return machine;
}

ProductShape shape(index_t m, index_t n, index_t k) {
  return {.type = DType::bfloat16, .type_c = DType::bfloat16, .m = m, .n = n, .k = k};
}

TEST(KernelModelProducts, OfLargeMatricesReachThePeak) {
  const Device device = round_machine().device;
  const ProductShape large = shape(16384, 16384, 16384);
  EXPECT_NEAR(product_seconds(device, large), large.flops() / 1e14,
              0.01 * large.flops() / 1e14);
}

// One tile and 101 tiles: of the last wave all but one multiprocessor are idle.
TEST(KernelModelProducts, TakeWholeWaves) {
  Device device = round_machine().device;
  device.bandwidth = 1e18;
  const double tile = 2.0 * 128 * 128 * 128 / 1e12;
  EXPECT_NEAR(product_seconds(device, shape(128, 128, 128)), tile, 1e-9 * tile);
  EXPECT_NEAR(product_seconds(device, shape(100 * 128, 128, 128)), tile, 1e-9 * tile);
  EXPECT_NEAR(product_seconds(device, shape(101 * 128, 128, 128)), 2 * tile, 1e-9 * tile);
  EXPECT_NEAR(product_seconds(device, shape(129, 128, 128)), tile, 1e-9 * tile);
  EXPECT_NEAR(product_seconds(device, shape(128, 128, 128), 101), 2 * tile, 1e-9 * tile);
  device.wave = tile;
  device.launch = 10 * tile;
  EXPECT_NEAR(product_seconds(device, shape(128, 128, 128)), 12 * tile, 1e-9 * tile);
}

// Few tiles of long sums: their terms are split, for more multiprocessors.
TEST(KernelModelProducts, SplitLongSums) {
  const Device device = round_machine().device;
  const ProductShape deep = shape(128, 128, 65536);
  const double whole = 2.0 * 128 * 128 * 65536 / 1e12;
  EXPECT_LT(product_seconds(device, deep), 0.3 * whole);
  EXPECT_GT(product_seconds(device, deep), 0.25 * whole);
}

TEST(KernelModelProducts, OfShortSumsTakeWhatTheMemoryTakes) {
  const Device device = round_machine().device;
  const ProductShape thin = shape(8192, 8192, 16);
  const double bytes = 2.0 * (2 * 8192 * 16 + 8192.0 * 8192);
  EXPECT_NEAR(product_seconds(device, thin), bytes / 1e12, 1e-3 * bytes / 1e12);
}

TEST(KernelModelProducts, NeedARateOfTheirType) {
  const Device device = round_machine().device;
  ProductShape half = shape(128, 128, 128);
  half.type = DType::float16;
  EXPECT_THROW(product_seconds(device, half), InputError);
}

TEST(KernelModelRows, AreBytesAndLaunches) {
  Device device = round_machine().device;
  EXPECT_DOUBLE_EQ(rows_seconds(device, 1e12, 5), 1.0);
  device.row_share = 0.5;
  EXPECT_DOUBLE_EQ(rows_seconds(device, 1e12, 5), 2.0);
  device.launch = 0.1;
  EXPECT_DOUBLE_EQ(rows_seconds(device, 0.0, 5), 0.5);
}

TEST(KernelModelCollectives, OfOneRankTakeNothing) {
  EXPECT_EQ(collective_seconds(round_machine(), {1, 1}, Collective::all_reduce, 1e9),
            0.0);
}

TEST(KernelModelCollectives, OfLargeBuffersTakeBandwidthAlone) {
  Machine machine = round_machine();
  for (NetworkLevel& level : machine.network) level.latency = 0.0;
  using enum Collective;
  EXPECT_DOUBLE_EQ(collective_seconds(machine, {8, 1}, all_reduce, 1e11), 2 * 7.0 / 8);
  EXPECT_DOUBLE_EQ(collective_seconds(machine, {8, 1}, all_gather, 1e11), 7.0 / 8);
  EXPECT_DOUBLE_EQ(collective_seconds(machine, {8, 1}, reduce_scatter, 1e11), 7.0 / 8);
  // One rank of each node: its own adapter.
  EXPECT_DOUBLE_EQ(collective_seconds(machine, {4, 8}, all_gather, 1e10), 3.0 / 4);
  // Two of each node share the work of crossing it, and eight do, up to the node's own.
  EXPECT_DOUBLE_EQ(collective_seconds(machine, {8, 4}, all_gather, 1e10), 7.0 / 8 / 2);
  EXPECT_DOUBLE_EQ(collective_seconds(machine, {64, 1}, all_gather, 1e10), 63.0 / 64 / 8);
}

TEST(KernelModelCollectives, OfSmallBuffersTakeLatencyAlone) {
  const Machine machine = round_machine();
  using enum Collective;
  EXPECT_NEAR(collective_seconds(machine, {8, 1}, all_gather, 0.0, 10.0), 10 * 3e-5,
              1e-12);
  EXPECT_NEAR(collective_seconds(machine, {8, 1}, all_reduce, 0.0, 10.0), 20 * 3e-5,
              1e-12);
  EXPECT_NEAR(collective_seconds(machine, {4, 8}, all_gather, 0.0), 2e-4, 1e-12);
}

TEST(KernelModelMessages, CrossTheLevelBetweenTheRanks) {
  const Machine machine = round_machine();
  EXPECT_DOUBLE_EQ(message_seconds(machine, 1, 1e11), 1.0 + 1e-5);
  EXPECT_DOUBLE_EQ(message_seconds(machine, 8, 1e10), 1.0 + 1e-4);
}

// One head of 1024 queries of 128 elements: scores are 2^20.
TEST(KernelModelAttention, MaterialisedPassesOverScores) {
  Machine machine = round_machine();
  Tally tally;
  constexpr double kScores = 1024.0 * 1024.0;
  const double flops = 4.0 * 128 * kScores;
  tally.add(
      Kernel{"trireme::kernels::attention_forward",
             {.flops = flops, .masked_flops = flops / 2, .bytes = 4 * 1024 * 128 * 2}});
  const AttentionShape attention{
      .sequence = 1024, .head_elements = 128, .type = DType::bfloat16};
  const auto seconds = [&] { return tally_seconds(machine, {}, attention, tally); };
  machine.software.attention = AttentionKind::fused;
  const TallySeconds fused = seconds();
  EXPECT_NEAR(fused.attention, flops / 2 / (0.5 * 1e14), 1e-12);
  EXPECT_EQ(fused.attention, fused.attention_forward);
  EXPECT_EQ(fused.total(), fused.attention);
  machine.software.attention = AttentionKind::materialised;
  const double products = product_seconds(machine.device, shape(1024, 1024, 128)) +
                          product_seconds(machine.device, shape(1024, 128, 1024));
  EXPECT_NEAR(seconds().attention, products + 9.0 * kScores / 1e12, 1e-12);
}

TEST(KernelModelTally, SortsMessages) {
  const Machine machine = round_machine();
  const Places places{.tensor = {8, 1}, .gradient = {2, 8}, .to_next_stage = 16};
  Tally tally;
  tally.add(MessageTally{"tensor", "row-parallel output", "all_reduce", 2, 1000, 2000});
  tally.add(MessageTally{"pipeline", "activations", "send", 2, 1000, 2000});
  tally.add(MessageTally{"pipeline", "activations", "recv", 2, 0, 0});
  tally.add(MessageTally{"tensor", "slices of stage messages", "all_gather", 1, 10, 20});
  const TallySeconds seconds = tally_seconds(machine, places, {}, tally);
  EXPECT_DOUBLE_EQ(seconds.tensor_messages,
                   collective_seconds(machine, {8, 1}, Collective::all_reduce, 2000, 2));
  EXPECT_DOUBLE_EQ(seconds.stage_messages,
                   2 * message_seconds(machine, 16, 1000) +
                       collective_seconds(machine, {8, 1}, Collective::all_gather, 20));
  EXPECT_EQ(seconds.other_messages, 0.0);
  EXPECT_EQ(seconds.kernels(), 0.0);
}

}  // namespace
}  // namespace trireme::plan
