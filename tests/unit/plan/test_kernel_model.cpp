// Times of kernels and messages: their limits by hand, on a machine of round numbers.
#include "plan/kernel_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

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
  const auto seconds = [&](DType type, double bytes) {
    return rows_seconds(device, type, bytes, 5);
  };
  EXPECT_DOUBLE_EQ(seconds(DType::float32, 1e12), 1.0);
  device.row_share = {.fp32 = 0.5, .bf16 = 0.25};
  EXPECT_DOUBLE_EQ(seconds(DType::float32, 1e12), 2.0);
  EXPECT_DOUBLE_EQ(seconds(DType::bfloat16, 1e12), 4.0);
  device.launch = 0.1;
  EXPECT_DOUBLE_EQ(seconds(DType::float32, 0.0), 0.5);
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

// The level that a group's messages are as slow as: that of its node, the fabric between
// nodes, and the node's again where eight adapters together are faster than its link.
TEST(KernelModelCollectives, HaveANarrowestLevel) {
  Machine machine = round_machine();
  EXPECT_EQ(collective_crossing(machine, {8, 1}).narrowest, 0u);
  EXPECT_EQ(collective_crossing(machine, {4, 8}).narrowest, 1u);
  const Crossing both = collective_crossing(machine, {64, 1});
  EXPECT_EQ(both.narrowest, 1u);
  EXPECT_EQ(both.bandwidth, 8e10);
  EXPECT_EQ(both.latency, 1e-4);
  machine.network.front().bandwidth = 5e10;
  EXPECT_EQ(collective_crossing(machine, {64, 1}).narrowest, 0u);
  EXPECT_EQ(collective_crossing(machine, {64, 1}).latency, 1e-4);
  EXPECT_EQ(message_level(machine, {2, 1}), 0u);
  EXPECT_EQ(message_level(machine, {2, 8}), 1u);
}

TEST(KernelModelMessages, CrossTheLevelBetweenTheRanks) {
  const Machine machine = round_machine();
  EXPECT_DOUBLE_EQ(message_seconds(machine, {2, 1}, 1e11), 1.0 + 1e-5);
  EXPECT_DOUBLE_EQ(message_seconds(machine, {2, 8}, 1e10), 1.0 + 1e-4);
  // Of four stages with four ranks each every second border leaves a node.
  EXPECT_DOUBLE_EQ(message_seconds(machine, {4, 4, 16}, 1e10), 1.0 + 1e-4);
  EXPECT_DOUBLE_EQ(message_seconds(machine, {2, 4, 64}, 1e11), 1.0 + 1e-5);
}

// Ranks of a group in each node of eight, by hand.
TEST(KernelModelPlaces, AreThoseOfTheGroupThatLiesWorst) {
  EXPECT_EQ(fewest_inside({8, 1}, 8), 8);
  EXPECT_EQ(fewest_inside({4, 2}, 8), 4);
  EXPECT_EQ(fewest_inside({16, 1}, 8), 8);
  EXPECT_EQ(fewest_inside({8, 4}, 8), 2);
  EXPECT_EQ(fewest_inside({4, 8}, 8), 1);
  EXPECT_EQ(fewest_inside({6, 1}, 8), 2);      // 6 | 2 + 4 | 4 + 2 | 6
  EXPECT_EQ(fewest_inside({6, 1, 6}, 8), 6);   // the first group alone
  EXPECT_EQ(fewest_inside({6, 1, 12}, 8), 2);  // 6 | 2 + 4
  EXPECT_EQ(fewest_inside({3, 1}, 8), 1);      // 3 | 3 | 2 + 1
  EXPECT_EQ(fewest_inside({12, 1}, 8), 4);     // 8 + 4 | 4 + 8
  EXPECT_EQ(fewest_inside({12, 1}, 4), 4);
  EXPECT_EQ(fewest_inside({24, 1}, 16), 8);    // 16 + 8 | 8 + 16
  EXPECT_EQ(fewest_inside({5, 1, 10}, 8), 2);  // 5 | 3 + 2
  EXPECT_EQ(fewest_inside({3, 2}, 8), 1);      // 3 | 1 + 2 | 2 + 1
  EXPECT_EQ(fewest_inside({2, 3}, 8), 1);      // 0, 3 | 6, 9
}

// Every group of a grid, rank by rank.
TEST(KernelModelPlaces, AreThoseOfARingThatIsWalked) {
  for (const int unit : {4, 8, 16}) {
    for (const int ranks : {2, 3, 4, 5, 6, 8, 10, 12, 16}) {
      for (const int stride : {1, 2, 4, 8}) {
        const int devices = ranks * stride * 15;
        int fewest = ranks;
        for (int first = 0; first < devices; ++first) {
          if (first / stride % ranks != 0) continue;
          std::map<int, int> inside;
          for (int i = 0; i < ranks; ++i) inside[(first + i * stride) / unit] += 1;
          for (const auto& [node, count] : inside) fewest = std::min(fewest, count);
        }
        EXPECT_EQ(fewest_inside({ranks, stride, devices}, unit), fewest)
            << ranks << " of stride " << stride << " on " << unit;
      }
    }
  }
}

TEST(KernelModelCollectives, OfGroupsAcrossNodesLeaveThem) {
  Machine machine = round_machine();
  for (NetworkLevel& level : machine.network) level.latency = 0.0;
  using enum Collective;
  EXPECT_DOUBLE_EQ(collective_seconds(machine, {6, 1, 48}, all_gather, 1e10),
                   5.0 / 6 / 2);
  EXPECT_DOUBLE_EQ(collective_seconds(machine, {12, 1, 48}, all_gather, 1e10),
                   11.0 / 12 / 4);
  EXPECT_DOUBLE_EQ(collective_seconds(machine, {6, 1, 6}, all_gather, 1e11), 5.0 / 6);
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
  EXPECT_EQ(fused.kernels() + fused.messages(), fused.attention);
  machine.software.attention = AttentionKind::materialised;
  const double products = product_seconds(machine.device, shape(1024, 1024, 128)) +
                          product_seconds(machine.device, shape(1024, 128, 1024));
  EXPECT_NEAR(seconds().attention, products + 9.0 * kScores / 1e12, 1e-12);
}

TEST(KernelModelTally, SortsMessages) {
  const Machine machine = round_machine();
  Places places;
  places.tensor = {8, 1};
  places.gradient = {2, 8};
  places.pipeline = {2, 16};
  Tally tally;
  tally.add(MessageTally{"tensor", "row-parallel output", "all_reduce", 2, 1000, 2000});
  tally.add(MessageTally{"pipeline", "activations", "send", 2, 1000, 2000});
  tally.add(MessageTally{"pipeline", "activations", "recv", 2, 0, 0});
  tally.add(MessageTally{"tensor", "slices of stage messages", "all_gather", 1, 10, 20});
  const TallySeconds seconds = tally_seconds(machine, places, {}, tally);
  EXPECT_DOUBLE_EQ(seconds.tensor_messages,
                   collective_seconds(machine, {8, 1}, Collective::all_reduce, 2000, 2));
  EXPECT_DOUBLE_EQ(seconds.stage_messages,
                   2 * message_seconds(machine, {2, 16}, 1000) +
                       collective_seconds(machine, {8, 1}, Collective::all_gather, 20));
  EXPECT_EQ(seconds.other_messages, 0.0);
  EXPECT_EQ(seconds.kernels(), 0.0);
}

}  // namespace
}  // namespace trireme::plan
