// The file of a machine that was measured, and what is measured.
#include "plan/measure_machine.hpp"

#include <gtest/gtest.h>

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

// What is found is a machine that files may describe, on which steps can be predicted.
TEST(MeasureMachine, IsThisHost) {
  const auto world = comm::make_self_communicator("world");
  if constexpr (!kHostExecution) {
    EXPECT_THROW(measure_machine(world), InputError);
    return;
  }
  const Machine machine = measure_machine(world);
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
