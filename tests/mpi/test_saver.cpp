// Saves beside training: what is saved is what there was when the save began, in as many
// files as were asked for; a failure of one rank is everybody's, and the next save goes
// on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/late_queue.hpp"
#include "ckpt/saver.hpp"
#include "comm/mpi_communicator.hpp"
#include "unit/ckpt/sample.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SaverTogether : public ::testing::Test {
 protected:
  SaverTogether() {
    std::string path;
    if (world_->rank() == 0) {
      scratch_ = std::make_unique<test::Scratch>();
      path = scratch_->path();
    }
    world_->broadcast(path);
    directory_ = path;
  }
  ~SaverTogether() override { world_->barrier(); }

  // Every other rank is of another node.
  std::string host() const { return world_->rank() % 2 == 0 ? "a" : "b"; }

  std::size_t shards(const fs::path& step) const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(step)) {
      count += entry.path().filename().string().starts_with("shard_") ? 1 : 0;
    }
    return count;
  }

  void expect_whole(const fs::path& step) {
    EXPECT_THAT(ckpt::problems_of(step, ckpt::Depth::checksums), ::testing::IsEmpty());
    test::RankMemory back(world_->rank(), world_->size(), false);
    back.read(ckpt::CheckpointReader(step));
    EXPECT_EQ(back.arrays(),
              test::RankMemory(world_->rank(), world_->size(), true).arrays());
    world_->barrier();
  }

  std::shared_ptr<comm::Communicator> world_ = comm::make_mpi_world();
  std::unique_ptr<test::Scratch> scratch_;  // of rank 0
  fs::path directory_;
};

TEST_F(SaverTogether, WritesAsManyFilesAsItIsTold) {
  const auto ranks = static_cast<std::size_t>(world_->size());
  std::int64_t step = 0;
  for (const auto& [writers, files] : std::vector<std::pair<index_t, std::size_t>>{
           {config::kWriterPerRank, ranks},
           {config::kWriterPerNode, std::min<std::size_t>(ranks, 2)},
           {1, 1},
           {2, std::min<std::size_t>(ranks, 2)},
           {100, ranks}}) {
    for (const bool in_background : {true, false}) {
      SCOPED_TRACE(fmt::format("writers {}, in background {}", writers, in_background));
      ckpt::Saver saver(
          *world_, host(),
          {.directory = directory_, .writers = writers, .in_background = in_background});
      auto memory =
          std::make_unique<test::RankMemory>(world_->rank(), world_->size(), true);
      saver.begin(Exec(), memory->parts(), test::sample_state(++step), {.keep = 0});
      EXPECT_TRUE(saver.is_under_way());
      if (in_background) memory.reset();  // training goes on
      const ckpt::SaveReport report = saver.finish();
      EXPECT_EQ(report.error, "");
      EXPECT_EQ(report.step, step);
      EXPECT_EQ(report.path, directory_ / ckpt::step_name(step));
      EXPECT_GT(report.bytes, 0u);
      EXPECT_GT(report.busy_seconds, 0.0);
      EXPECT_FALSE(saver.is_under_way());
      EXPECT_FALSE(saver.advance().has_value());
      EXPECT_EQ(shards(report.path), files);
      expect_whole(report.path);
    }
  }
}

// On a device the copy is under way when begin() returns: the next update waits for it on
// the device, and who writes the file on the host.
TEST_F(SaverTogether, SavesWhatWasThereBeforeTheNextUpdate) {
  const Exec exec;
  make_late(exec);
  for (const index_t writers : {config::kWriterPerRank, index_t{1}}) {
    ckpt::Saver saver(*world_, host(), {.directory = directory_, .writers = writers});
    for (std::int64_t step = 1; step <= 3; ++step) {
      test::DeviceMemory memory(world_->rank(), world_->size());
      saver.begin(exec, memory.parts(), test::sample_state(step), {.keep = 0});
      if (step != 2) {  // else nobody but the writer waits
        saver.copied().hold_up(exec);
        memory.overwrite(exec);
      }
      const ckpt::SaveReport report = saver.finish();
      EXPECT_EQ(report.error, "");
      expect_whole(report.path);
    }
  }
}

TEST_F(SaverTogether, FailuresAreOfAllAndPass) {
  const test::RankMemory memory(world_->rank(), world_->size(), true);
  for (const index_t writers : {config::kWriterPerRank, index_t{1}}) {
    for (const char* phase :
         {"ckpt.stage", "ckpt.begin", "ckpt.layout", "ckpt.write", "ckpt.flush",
          "ckpt.index", "ckpt.manifest", "ckpt.rename"}) {
      SCOPED_TRACE(phase);
      bool fails = true;
      ckpt::Saver saver(*world_, host(),
                        {.directory = directory_,
                         .writers = writers,
                         .hook = [&](std::string_view now) {
                           return fails && now == phase ? Fault::io_error : Fault::none;
                         }});
      saver.begin(Exec(), memory.parts(), test::sample_state(7), {});
      const ckpt::SaveReport failed = saver.finish();
      EXPECT_THAT(failed.error, HasSubstr("nput/output error"));
      EXPECT_THAT(failed.error, HasSubstr("rank 0"));
      world_->barrier();
      EXPECT_FALSE(fs::exists(directory_ / "step_00000007"));
      world_->barrier();
      fails = false;
      saver.begin(Exec(), memory.parts(), test::sample_state(8), {});
      EXPECT_EQ(saver.finish().error, "");
      expect_whole(directory_ / "step_00000008");
    }
  }
}

TEST_F(SaverTogether, OneAtATime) {
  const test::RankMemory memory(world_->rank(), world_->size(), true);
  ckpt::Saver saver(*world_, host(), {.directory = directory_});
  EXPECT_FALSE(saver.is_prepared());
  saver.reserve(Exec(), memory.parts());
  EXPECT_TRUE(saver.is_prepared());  // no save takes memory of a device
  EXPECT_EQ(saver.staging_bytes(), ckpt::Snapshot::bytes_of(memory.parts()));
  saver.begin(Exec(), memory.parts(), test::sample_state(1), {});
  EXPECT_THAT(test::message_of<Error>([&] {
                saver.begin(Exec(), memory.parts(), test::sample_state(2), {});
              }),
              HasSubstr("the save of step 1 is under way still"));
  EXPECT_EQ(saver.finish().error, "");
}

// A file system that hangs under the last rank.
TEST_F(SaverTogether, GivesUpOnASaveWithoutAnEnd) {
  const test::RankMemory memory(world_->rank(), world_->size(), true);
  const int last = world_->size() - 1;
  std::atomic<bool> hangs{true};
  ckpt::Saver saver(*world_, host(),
                    {.directory = directory_, .hook = [&](std::string_view phase) {
                       while (phase == "ckpt.flush" && world_->rank() == last && hangs) {
                         std::this_thread::sleep_for(std::chrono::milliseconds(5));
                       }
                       return Fault::none;
                     }});
  saver.begin(Exec(), memory.parts(), test::sample_state(1), {});
  EXPECT_THAT(test::message_of<Error>([&] { saver.finish(0.3); }),
              AllOf(HasSubstr("the checkpoint of step 1 is still being written"),
                    HasSubstr("by rank " + std::to_string(last) + ": does the file")));
  EXPECT_TRUE(saver.has_given_up());
  hangs = false;
  EXPECT_EQ(saver.finish().error, "");  // here it ends after all, and so does the thread
}

// Whoever gives up in the middle leaves nothing under a final name.
TEST_F(SaverTogether, UnfinishedIsUnpublished) {
  const test::RankMemory memory(world_->rank(), world_->size(), true);
  {
    ckpt::Saver saver(*world_, host(), {.directory = directory_});
    saver.begin(Exec(), memory.parts(), test::sample_state(1), {});
  }
  world_->barrier();
  EXPECT_FALSE(fs::exists(directory_ / "step_00000001"));
  EXPECT_FALSE(fs::exists(directory_ / "latest"));
}

}  // namespace
}  // namespace trireme
