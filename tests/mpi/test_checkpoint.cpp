// Several ranks save one checkpoint: each its shard; what one of them cannot write, all
// say, and nothing appears under a final name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "comm/mpi_communicator.hpp"
#include "unit/ckpt/sample.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// The world, and a directory that all ranks see and rank 0 removes.
class CheckpointTogether : public ::testing::Test {
 protected:
  CheckpointTogether() {
    std::string name;
    if (world_->rank() == 0) {
      scratch_ = std::make_unique<test::Scratch>();
      name = scratch_->path().string();
    }
    world_->broadcast(name);
    directory_ = fs::path(name) / "checkpoints";
  }
  ~CheckpointTogether() override { world_->barrier(); }

  std::shared_ptr<comm::Communicator> world_ = comm::make_mpi_world();
  std::unique_ptr<test::Scratch> scratch_;
  fs::path directory_;
};

TEST_F(CheckpointTogether, SavesAndReads) {
  const int rank = world_->rank();
  const int ranks = world_->size();
  const test::RankMemory memory(rank, ranks, true);
  const ckpt::Saved saved = ckpt::save_checkpoint(Exec(), *world_, directory_,
                                                  test::sample_state(7), memory.parts());
  EXPECT_EQ(saved.path, directory_ / "step_00000007");
  EXPECT_TRUE(ckpt::problems_of(saved.path, ckpt::Depth::checksums).empty());
  EXPECT_EQ(ckpt::read_manifest(saved.path).files.size(),
            static_cast<std::size_t>(ranks) + 1);
  // Each rank reads another's part, and the whole.
  for (const auto& [part, parts] :
       {std::pair{(rank + 1) % ranks, ranks}, std::pair{0, 1}}) {
    test::RankMemory back(part, parts, false);
    back.read(ckpt::CheckpointReader(directory_ / "latest"));
    EXPECT_EQ(back.arrays(), test::RankMemory(part, parts, true).arrays());
  }
}

TEST_F(CheckpointTogether, OneFailsAllFail) {
  const test::RankMemory memory(world_->rank(), world_->size(), true);
  const auto save = [&](std::int64_t step, const ckpt::SaveOptions& options) {
    return test::message_of<Error>([&] {
      ckpt::save_checkpoint(Exec(), *world_, directory_, test::sample_state(step),
                            memory.parts(), options);
    });
  };
  EXPECT_EQ(save(1, {}), "(nothing thrown)");
  for (const char* phase : {"ckpt.stage", "ckpt.begin", "ckpt.layout", "ckpt.write",
                            "ckpt.flush", "ckpt.index", "ckpt.manifest", "ckpt.rename"}) {
    const std::set<std::string> by_each = {"ckpt.stage", "ckpt.layout", "ckpt.write",
                                           "ckpt.flush"};
    const bool by_all = by_each.count(phase) > 0;
    const int guilty = by_all ? world_->size() - 1 : 0;
    ckpt::SaveOptions options;
    options.hook = [&](std::string_view now) {
      if (now == phase && world_->rank() == guilty) throw Error("the disk is on fire");
      return Fault::none;
    };
    EXPECT_THAT(save(2, options), ::testing::HasSubstr("the disk is on fire"));
    if (by_all) {
      EXPECT_THAT(save(2, options),
                  ::testing::HasSubstr("rank " + std::to_string(guilty)));
    }
    EXPECT_FALSE(fs::exists(directory_ / "step_00000002"));
    EXPECT_EQ(ckpt::require_newest(directory_).filename(), "step_00000001");
    world_->barrier();
  }
  EXPECT_EQ(save(3, {}), "(nothing thrown)");
  EXPECT_EQ(ckpt::require_newest(directory_).filename(), "step_00000003");
}

}  // namespace
}  // namespace trireme
