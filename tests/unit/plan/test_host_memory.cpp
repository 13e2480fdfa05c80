// What a run on GPUs keeps in host memory, and what is said where a node that is made up
// has too little of it.
#include "plan/host_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "comm/self_communicator.hpp"
#include "config/load.hpp"
#include "plan/deck_memory.hpp"
#include "step/deck_model.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::plan {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kGiB = std::size_t{1} << 30;

HostNeed need_of(const std::string& set) {
  const config::Deck deck = config::parse(
      "model: {kind: gpt, layers: 2, hidden: 64, heads: 4, sequence: 32, vocab: 1000}\n"
      "data: {train: corpus.h5}\n"
      "batch: {micro: 4, global: 64}\n"
      "run: {steps: 10}\n",
      "deck", {.overrides = {set}, .ranks = 1});
  const auto replica =
      step::make_replica(deck, planned_groups(deck.parallel, 0), step::sharing(deck));
  EXPECT_EQ(host_need(*replica, deck).total(),
            plan_memory(*replica, deck).checkpoint_copy);
  return host_need(*replica, deck);
}

TEST(HostMemory, IsTheCopyOfACheckpoint) {
  const HostNeed need = need_of("checkpoint.async=true");
  EXPECT_GT(need.weights, 0u);
  EXPECT_EQ(need.optimizer, 2 * need.weights);  // two moments
  EXPECT_EQ(need_of("checkpoint.async=false").total(), 0u);
}

TEST(HostMemory, ThatDoesNotFitIsToldByCategory) {
  const HostNeed node{.weights = 62 * kGiB, .optimizer = 124 * kGiB};
  EXPECT_EQ(host_problem(node, 4, "node7", 120 * kGiB),
            "the run takes 186.0 GiB of the host memory of node7 (4 ranks there), which "
            "has 120.0 GiB free: 66.0 GiB too much\n"
            "  copy of weights           62.0 GiB\n"
            "  copy of optimizer state  124.0 GiB\n"
            "It is the copy that a checkpoint is written from while training goes on; it "
            "is page-locked, for the GPU to write to.\n"
            "What helps: checkpoint.async=false (no copy, and training waits while a "
            "checkpoint is written); all of the node's memory for the job (sbatch "
            "--mem=0); more nodes, which share the copy; fewer ranks on a node");
  EXPECT_EQ(host_problem(node, 4, "node7", 186 * kGiB), "");
  EXPECT_NE(host_problem(node, 4, "node7", 186 * kGiB - 1), "");
  EXPECT_EQ(host_problem(node, 4, "node7", 0), "");  // not known
}

TEST(HostMemory, IsRequiredBeforeTheFirstStep) {
  const auto world = comm::make_self_communicator("world");
  const HostNeed need{.weights = kGiB, .optimizer = 2 * kGiB};
  require_host_memory(*world, "n7", need, 3 * kGiB);
  EXPECT_THAT(test::message_of<InputError>(
                  [&] { require_host_memory(*world, "n7", need, 3 * kGiB - 1); }),
              HasSubstr("of the host memory of n7 (1 rank there)"));
}

}  // namespace
}  // namespace trireme::plan
