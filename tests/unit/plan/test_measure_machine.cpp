// The file of a machine that was measured, and what is measured.
#include "plan/measure_machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/exec.hpp"
#include "comm/self_communicator.hpp"
#include "config/load.hpp"
#include "unit/plan/published_rows.hpp"

namespace trireme::plan {
namespace {

// All that machine_text() writes is read again, bit by bit.
void expect_same(const Machine& a, const Machine& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.device.name, b.device.name);
  EXPECT_EQ(a.device.memory, b.device.memory);
  EXPECT_EQ(a.device.multiprocessors, b.device.multiprocessors);
  EXPECT_EQ(a.device.nominal_peak.fp32, b.device.nominal_peak.fp32);
  EXPECT_EQ(a.device.gemm_peak.fp32, b.device.gemm_peak.fp32);
  EXPECT_EQ(a.device.gemm_peak.bf16, b.device.gemm_peak.bf16);
  EXPECT_EQ(a.device.gemm_peak.fp16, b.device.gemm_peak.fp16);
  for (const DType type : {DType::float32, DType::bfloat16, DType::float16}) {
    if (a.device.gemm_peak.of(type) == 0.0) continue;
    EXPECT_EQ(a.device.gemm_share.of(type), b.device.gemm_share.of(type));
    EXPECT_EQ(a.device.attention_share.of(type), b.device.attention_share.of(type));
    EXPECT_EQ(a.device.row_share.of(type), b.device.row_share.of(type));
    EXPECT_EQ(a.device.update_share.of(type), b.device.update_share.of(type));
  }
  EXPECT_EQ(a.device.tiles.size(), b.device.tiles.size());
  EXPECT_EQ(a.device.launch, b.device.launch);
  EXPECT_EQ(a.device.bandwidth, b.device.bandwidth);
  ASSERT_EQ(a.network.size(), b.network.size());
  for (std::size_t i = 0; i < a.network.size(); ++i) {
    EXPECT_EQ(a.network[i].name, b.network[i].name);
    EXPECT_EQ(a.network[i].devices, b.network[i].devices);
    EXPECT_EQ(a.network[i].bandwidth, b.network[i].bandwidth);
    EXPECT_EQ(a.network[i].latency, b.network[i].latency);
  }
}

TEST(MeasureMachineText, IsReadAgain) {
  Machine machine = test::machine_named("dgx2-v100");
  machine.software = {};
  machine.device.reserved = 0.0;
  machine.device.gemm_share = {.fp32 = 1.0 / 3.0, .bf16 = 0.7, .fp16 = 0.6};
  expect_same(parse_machine(machine_text(machine), "measured.yaml"), machine);
}

// What was measured keeps three digits; what is known exactly, the memory, all of them.
TEST(MeasureMachineText, HasAsManyDigitsAsAMeasurement) {
  Machine machine = test::machine_named("epyc-2-cores");
  machine.device.memory = 12345678912.0;
  machine.device.gemm_peak.fp32 = machine.device.nominal_peak.fp32 = 106612345678.9;
  machine.device.gemm_share.bf16 = 2.0 / 3.0;
  machine.device.launch = 3.8149e-07;
  machine.network = {{"ranks", 2, 3939393939.39, 7.77777e-07}};
  round_measured(machine);
  EXPECT_EQ(machine.device.gemm_peak.fp32, 107e9);
  EXPECT_EQ(machine.device.gemm_share.bf16, 0.667);
  EXPECT_EQ(machine.network.front().latency, 7.78e-07);
  const std::string text = machine_text(machine);
  for (const char* const part :
       {"memory: 12345678912", "gemm_peak: {fp32: 107000000000, ", "bf16: 0.667",
        "launch: 3.81e-07", "bandwidth: 3940000000, latency: 7.78e-07"}) {
    EXPECT_THAT(text, ::testing::HasSubstr(part));
  }
}

Device device_of_host() {
  Device device;
  device.tiles = {{.rows = 16, .columns = 16, .share = 1.0}};
  device.launch = 1e-6;
  device.bandwidth = 2e10;
  return device;
}

// What the model says of a layer on a machine.
double layer_seconds(const Device& device, int width, int sequence, int micro) {
  const config::Deck deck = config::parse(
      fmt::format("model: {{kind: gpt, layers: 1, hidden: {}, heads: {}, sequence: {}, "
                  "vocab: 1000}}\ndata: {{train: none}}\nbatch: {{micro: {}, global: "
                  "{}}}\nprecision: {{compute: bf16}}\n",
                  width, width / 64, sequence, micro, micro),
      "deck");
  Machine machine;
  machine.device = device;
  Workloads workloads(deck);
  const PassWork& passes = workloads.layer(workload_key(deck), 0).passes;
  return tally_seconds(
             machine, {},
             {.sequence = sequence, .head_elements = 64, .type = DType::bfloat16},
             passes.forward + passes.backward)
      .kernels();
}

// Shares are found again from the times that follow from them; another type keeps its
// own.
TEST(MeasureMachineShares, AreThoseOfTheTimesThatWereMeasured) {
  Device device = device_of_host();
  device.gemm_peak.bf16 = 1e11;
  device.gemm_share.bf16 = 0.8;
  device.row_share.bf16 = 0.3;
  device.attention_share.bf16 = 0.6;
  const TypeTimes times{.peak = 1e11,
                        .layer_products = 8e10,
                        .update = 1e10,
                        .shallow = layer_seconds(device, 512, 64, 16),
                        .deep = layer_seconds(device, 256, 1024, 1)};
  Device found = device_of_host();
  EXPECT_THAT(set_shares(found, times, config::Precision::bf16), ::testing::IsEmpty());
  EXPECT_EQ(found.gemm_peak.bf16, 1e11);
  EXPECT_EQ(found.gemm_share.bf16, 0.8);
  EXPECT_EQ(found.update_share.bf16, 0.5);
  EXPECT_NEAR(found.row_share.bf16, 0.3, 0.003);
  EXPECT_NEAR(found.attention_share.bf16, 0.6, 0.006);
  EXPECT_EQ(found.row_share.fp32, 1.0);
}

// Layers that take less than their products are a measurement that was disturbed.
TEST(MeasureMachineShares, SayWhatCannotBe) {
  Device device = device_of_host();
  const TypeTimes times{.peak = 1e11,
                        .layer_products = 1e10,
                        .update = 1e12,
                        .shallow = 1e-3,
                        .deep = 1e-3};
  EXPECT_THAT(set_shares(device, times, config::Precision::fp32),
              ::testing::ElementsAre("attention_share.fp32", "row_share.fp32",
                                     "update_share.fp32"));
  EXPECT_EQ(device.row_share.fp32, 20.0);
  EXPECT_THAT(machine_text(Machine{}, {"row_share.fp32"}),
              ::testing::HasSubstr("Measure again: row_share.fp32."));
}

// Ranks of other hosts take nothing of this one's memory.
TEST(MeasureMachine, SharesAHostsMemoryAmongItsOwnRanks) {
  const std::vector<std::string> hosts = {"a", "a", "b", "a"};
  EXPECT_EQ(memory_of_rank(12e9, hosts, 0), 4e9);
  EXPECT_EQ(memory_of_rank(12e9, hosts, 3), 4e9);
  EXPECT_EQ(memory_of_rank(12e9, hosts, 2), 12e9);
}

// What is found is a machine that files may describe, on which steps can be predicted.
TEST(MeasureMachine, IsThisHost) {
  const auto world = comm::make_self_communicator("world");
  if constexpr (!kHostExecution) {
    EXPECT_THROW(measure_machine(world), InputError);
    return;
  }
  const MeasuredMachine measured = measure_machine(world, 1);
  const Machine& machine = measured.machine;
  Machine rounded = machine;
  round_measured(rounded);
  expect_same(rounded, machine);
  expect_same(parse_machine(machine_text(machine, {"row_share.fp32"}), "measured.yaml"),
              machine);
  expect_same(parse_machine(machine_text(machine), "measured.yaml"), machine);
  EXPECT_EQ(machine.network.back().devices, 1);
  EXPECT_GT(machine.device.gemm_peak.fp32, 1e9);
  const config::Deck deck = config::parse(
      "model: {kind: gpt, layers: 2, hidden: 128, heads: 4, sequence: 64, vocab: 1000}\n"
      "data: {train: none}\n"
      "batch: {global: 4}\n",
      "deck");
  EXPECT_GT(PerformanceModel(machine, deck).predict(deck, Schedule::by_rule).seconds(),
            0.0);
}

}  // namespace
}  // namespace trireme::plan
