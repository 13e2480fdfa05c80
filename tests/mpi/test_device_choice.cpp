// Ranks agree on their devices, and on what is refused, from lists that stand in for what
// a CUDA runtime would tell each of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "comm/device_of_rank.hpp"
#include "comm/mpi_communicator.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::comm {
namespace {

using ::testing::HasSubstr;

class DeviceChoice : public ::testing::Test {
 protected:
  // All see as many devices as there are ranks.
  DeviceChoice() {
    for (int number = 0; number < world_->size(); ++number) {
      mine_.visible.push_back({.name = "NVIDIA H100 80GB HBM3",
                               .uuid = "GPU-" + std::to_string(number),
                               .address = fmt::format("0000:{:02x}:00.0", number),
                               .capability = 90,
                               .multiprocessors = 132,
                               .memory_bytes = std::int64_t{80} << 30});
    }
    mine_.host = "a node";
    mine_.binding = "CUDA_VISIBLE_DEVICES=0\n1";
  }
  int choice(DeviceRules rules = {}) { return device_of_rank(*world_, mine_, rules); }
  // The same on all ranks.
  std::string refusal(DeviceRules rules = {}) {
    const std::string text = test::message_of<InputError>([&] { choice(rules); });
    for (const std::string& other : world_->gather(text)) EXPECT_EQ(other, text);
    return text;
  }

  std::shared_ptr<Communicator> world_ = make_mpi_world();
  RankDevices mine_;
};

TEST_F(DeviceChoice, IsTheRanksNumberOnTheNode) {
  EXPECT_EQ(choice({.capability = 90}), world_->rank());
}

TEST_F(DeviceChoice, OfABoundRankIsTheOneThatItSees) {
  mine_.visible = {mine_.visible[static_cast<std::size_t>(world_->rank())]};
  EXPECT_EQ(choice(), 0);
}

TEST_F(DeviceChoice, IsRefusedTogether) {
  mine_.visible.resize(1);
  EXPECT_THAT(refusal(), HasSubstr(fmt::format("ranks 0-{} on a node all see one GPU "
                                               "alone, NVIDIA H100 80GB HBM3",
                                               world_->size() - 1)));
}

// One rank says so, and it holds for all.
TEST_F(DeviceChoice, MayBeSharedWhereARankSaysSo) {
  mine_.visible.resize(1);
  EXPECT_EQ(choice({.may_share = world_->rank() == 1}), 0);
}

TEST_F(DeviceChoice, OfOneRankThatSeesNoneIsRefusedByAll) {
  if (world_->rank() == 1) mine_.visible.clear();
  EXPECT_THAT(refusal(),
              HasSubstr("rank 1 on a node sees no GPU (CUDA_VISIBLE_DEVICES=0 1)"));
}

TEST_F(DeviceChoice, OfAnotherGenerationIsRefusedByAll) {
  if (world_->rank() == 1) mine_.visible[1].capability = 80;
  EXPECT_THAT(refusal({.capability = 90}), HasSubstr("rank 1 on a node has NVIDIA H100"));
}

}  // namespace
}  // namespace trireme::comm
