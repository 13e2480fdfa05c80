// A run that does not fit its device: what is said of it, for devices that are made up,
// and what settings save, against plans of decks that have them.
#include "plan/device_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "comm/self_communicator.hpp"
#include "config/load.hpp"
#include "plan/deck_memory.hpp"
#include "step/deck_model.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::plan {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

config::Deck deck_with(const std::vector<std::string>& sets, int ranks = 1) {
  return config::parse(
      "model: {kind: gpt, layers: 4, hidden: 64, heads: 4, sequence: 32, vocab: 1000}\n"
      "data: {train: corpus.h5}\n"
      "batch: {micro: 4, global: 64}\n"
      "parallel: {zero: 0}\n"
      "precision: {compute: bf16}\n"
      "run: {steps: 10}\n"
      "checkpoint: {async: false}\n",
      "deck", {.overrides = sets, .ranks = ranks});
}

std::unique_ptr<step::Replica> replica_of(const config::Deck& deck, int stage = 0) {
  return step::make_replica(deck, planned_groups(deck.parallel, stage),
                            step::sharing(deck));
}

DeviceNeed need_of(const config::Deck& deck, Carrier carrier = Carrier::host) {
  const auto replica = replica_of(deck);
  return device_need(*replica, deck, carrier);
}

TEST(DeviceMemory, IsWhatThePlanHasAndWhatCarriesMessages) {
  const config::Deck alone = deck_with({});
  EXPECT_EQ(need_of(alone, Carrier::device).messages, 0u);
  const config::Deck many = deck_with({"parallel.tensor=2", "parallel.pipeline=2"}, 8);
  EXPECT_EQ(need_of(many).messages, 0u);
  const DeviceNeed need = need_of(many, Carrier::device);
  EXPECT_EQ(need.total(), need.plan.total() + need.messages + need.tiles);
  const auto replica = replica_of(many);
  const comm::ProcessGroups& groups = replica->part().groups;
  EXPECT_EQ(carrier_of(groups), Carrier::host);  // they send nothing
  EXPECT_EQ(message_bytes(groups, Carrier::device), need.messages);
  EXPECT_EQ(message_bytes(groups, Carrier::host), 0u);
  // Tensor, gradient, pipeline and model groups, and the words that two stages have.
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  EXPECT_GT(need.messages, 5 * 441 * kMiB);
  EXPECT_LT(need.messages, 5 * 460 * kMiB);
  // A third stage makes the two ends of a ring.
  const config::Deck deeper = deck_with({"parallel.pipeline=4"}, 4);
  const config::Deck deep = deck_with({"parallel.pipeline=2"}, 2);
  EXPECT_GT(need_of(deeper, Carrier::device).messages,
            need_of(deep, Carrier::device).messages);
}

TEST(DeviceMemory, WhatFitsIsNoProblem) {
  const DeviceNeed need = need_of(deck_with({}));
  const auto total = static_cast<std::int64_t>(need.total());
  EXPECT_EQ(device_problem(need, "a GPU", {total, 2 * total}, "rank 0", {}), "");
  EXPECT_NE(device_problem(need, "a GPU", {total - 1, 2 * total}, "rank 0", {}), "");
}

TEST(DeviceMemory, WhatDoesNotFitIsToldByCategory) {
  DeviceNeed need;
  constexpr std::size_t kGiB = std::size_t{1} << 30;
  need.plan.weights = 6 * kGiB;
  need.plan.gradients = 4 * kGiB;
  need.plan.optimizer = 8 * kGiB;
  need.plan.workspace.saved = {10 * kGiB};
  need.plan.workspace.slots = {3};
  need.plan.workspace.scratch = kGiB;
  need.plan.products = kGiB / 32;
  need.messages = kGiB;
  need.tiles = kGiB;
  const std::string text =
      device_problem(need, "NVIDIA A100", {39 * kGiB, 40 * kGiB}, "rank 3 on n1",
                     {{"memory.recompute=full", 25 * kGiB},
                      {"parallel.zero=1", 45 * kGiB},
                      {"batch.micro=1", 60 * kGiB}});
  EXPECT_EQ(text,
            "the run takes 51.0 GiB of the GPU of rank 3 on n1 (NVIDIA A100), which has "
            "39.0 GiB free: 12.0 GiB too much\n"
            "  weights              6.0 GiB\n"
            "  gradients            4.0 GiB\n"
            "  optimizer state      8.0 GiB\n"
            "  activations         30.0 GiB\n"
            "  scratch              1.0 GiB\n"
            "  matrix products     32.0 MiB, cuBLASLt's workspace\n"
            "  attention's tiles    1.0 GiB, in fp32 they are in no shared memory\n"
            "  messages             1.0 GiB, NCCL's buffers, estimated\n"
            "1.0 GiB of its 40.0 GiB are in use before the run: by CUDA's contexts, by "
            "NCCL, and by whoever else is there (nvidia-smi); 128.0 MiB of them are a "
            "reserve.\n"
            "What a rank would take of its GPU with --set:\n"
            "  memory.recompute=full               25.0 GiB, which saves 26.0 GiB: it "
            "fits\n"
            "  parallel.zero=1                     45.0 GiB, which saves 6.0 GiB");
  EXPECT_THAT(device_problem(need, "a GPU", {0, 1}, "rank 0", {}),
              HasSubstr("\nTake a smaller model, or a GPU with more memory."));
}

// The workspace of products is in use already, and in the plan.
TEST(DeviceMemory, LeavesAReserve) {
  const auto reserve = static_cast<std::int64_t>(kReserveBytes);
  const DeviceBytes usable = usable_bytes({5 * reserve, 9 * reserve}, 2 * kReserveBytes);
  EXPECT_EQ(usable.free, 6 * reserve);
  EXPECT_EQ(usable.total, 9 * reserve);
  EXPECT_EQ(usable_bytes({reserve / 2, reserve}, 0).free, 0);
}

auto setting(const std::string& text) {
  return Contains(Field(&Saving::setting, text));
}

// Each is what the plan of a deck with that setting says.
TEST(DeviceMemory, SettingsSaveWhatTheirOwnPlansSay) {
  const config::Deck deck = deck_with({"parallel.data=4"}, 4);
  const std::vector<Saving> all = savings(deck, Carrier::host);
  EXPECT_THAT(all, AllOf(setting("memory.recompute=full"), setting("parallel.zero=3"),
                         setting("batch.micro=2"), setting("precision.gradients=bf16"),
                         setting("parallel.tensor=2 parallel.data=2")));
  EXPECT_THAT(all, Not(setting("parallel.sequence=true")));  // one tensor rank
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, &Saving::total));
  const std::size_t now = need_of(deck).total();
  for (const Saving& saving : all) {
    SCOPED_TRACE(saving.setting);
    EXPECT_LT(saving.total, now);
    std::vector<std::string> sets = {"parallel.data=4"};
    const std::size_t blank = saving.setting.find(' ');
    sets.push_back(saving.setting.substr(0, blank));
    if (blank != std::string::npos) sets.push_back(saving.setting.substr(blank + 1));
    const config::Deck changed = deck_with(sets, 4);
    std::size_t most = need_of(changed).total();
    if (changed.parallel.pipeline > 1) {
      const auto last = replica_of(changed, changed.parallel.pipeline - 1);
      most = std::max(most, device_need(*last, changed, Carrier::host).total());
    }
    EXPECT_EQ(saving.total, most);
  }
}

// Four heads are not for eight tensor ranks.
// Of layers that take more than all else, whatever computes them.
TEST(DeviceMemory, SettingsThatCannotBeAreLeftOut) {
  const config::Deck deck = deck_with(
      {"parallel.tensor=4", "model.layers=16", "model.hidden=256", "model.sequence=256"},
      8);
  EXPECT_THAT(savings(deck, Carrier::host), Not(setting("parallel.tensor=8")));
  EXPECT_THAT(savings(deck, Carrier::host), setting("parallel.sequence=true"));
}

TEST(DeviceMemory, IsRequiredBeforeTheFirstStep) {
  const config::Deck deck = deck_with({});
  const auto world = comm::make_self_communicator("world");
  const auto replica =
      step::make_replica(deck, comm::make_groups_of_one(), step::sharing(deck));
  const auto total = static_cast<std::int64_t>(need_of(deck).total());
  const auto refusal = [&](std::int64_t free) {
    return test::message_of<InputError>([&] {
      require_device_memory(*world, "n7", deck, *replica, "NVIDIA H100",
                            {.free = free, .total = 2 * total});
    });
  };
  require_device_memory(*world, "n7", deck, *replica, "NVIDIA H100",
                        {.free = total, .total = 2 * total});
  EXPECT_THAT(refusal(total / 2),
              AllOf(HasSubstr("of the GPU of rank 0 on n7 (NVIDIA H100)"),
                    HasSubstr("\n  memory.recompute=full")));
}

}  // namespace
}  // namespace trireme::plan
