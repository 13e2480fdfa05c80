// Choosing and purging: the newest whole checkpoint is found, what is skipped is named,
// and nothing that a rule keeps is removed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/ckpt/sample.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::int64_t> steps_in(const fs::path& directory) {
  std::vector<std::int64_t> steps;
  for (const ckpt::Listed& listed : ckpt::list_checkpoints(directory)) {
    steps.push_back(listed.step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

TEST(Directory, Names) {
  EXPECT_EQ(ckpt::step_name(1000), "step_00001000");
  EXPECT_EQ(ckpt::step_of("step_00001000"), 1000);
  EXPECT_EQ(ckpt::step_of("step_123456789012"), 123456789012);
  for (const char* name :
       {"step_", "step_x", "step_1x", "step_-1", "latest", ".step_1"}) {
    EXPECT_FALSE(ckpt::step_of(name).has_value()) << name;
  }
}

TEST(Directory, EveryWayToNameACheckpoint) {
  const test::Scratch scratch;
  const fs::path run = fs::canonical(scratch.path()) / "run";
  test::save_as(1, run / "checkpoints", 5);
  test::save_as(1, run / "checkpoints", 9);
  const fs::path newest = run / "checkpoints/step_00000009";
  for (const char* name :
       {"run", "run/checkpoints", "run/checkpoints/latest",
        "run/checkpoints/step_00000009", "run/checkpoints/step_00000009/"}) {
    EXPECT_EQ(ckpt::find_newest(scratch / name).found, newest) << name;
  }
  EXPECT_EQ(ckpt::require_newest(run / "checkpoints/step_00000005").filename(),
            "step_00000005");
}

TEST(Directory, FallsBackAndSaysWhy) {
  const test::Scratch scratch;
  for (const std::int64_t step : {1, 2, 3, 4, 5})
    test::save_as(2, scratch.path(), step, {{0}});
  fs::remove(scratch / "step_00000005/shard_00001.h5");
  fs::resize_file(scratch / "step_00000004/shard_00000.h5", 100);
  fs::remove(scratch / "step_00000003/manifest.json");
  std::string index = test::slurp(scratch / "step_00000002/index.h5");
  index[index.size() / 2] ^= 1;
  test::spill(scratch / "step_00000002/index.h5", index);

  const ckpt::Search search = ckpt::find_newest(scratch.path());
  EXPECT_EQ(search.found->filename(), "step_00000001");
  ASSERT_EQ(search.skipped.size(), 4u);
  EXPECT_THAT(search.skipped[0], AllOf(HasSubstr("step_00000003: "),
                                       HasSubstr("manifest.json' does not exist")));
  EXPECT_THAT(search.skipped[1], AllOf(HasSubstr("step_00000005: "),
                                       HasSubstr("shard_00001.h5' does not exist")));
  EXPECT_THAT(search.skipped[2],
              AllOf(HasSubstr("shard_00000.h5' is truncated: expected "),
                    HasSubstr("bytes, found 100")));
  EXPECT_THAT(search.skipped[3], AllOf(HasSubstr("index.h5' is damaged: expected XXH3 "),
                                       HasSubstr(", found ")));
  // By its own name a damaged one is an error, not a reason to take another.
  EXPECT_THAT(message_of<InputError>([&] { ckpt::require_newest(scratch / "latest"); }),
              AllOf(HasSubstr("holds no whole checkpoint"), HasSubstr("shard_00001.h5")));
  fs::remove_all(scratch / "step_00000001");
  EXPECT_FALSE(ckpt::find_newest(scratch.path()).found.has_value());
}

TEST(Directory, NewestIsThePublishedLast) {
  const test::Scratch scratch;
  test::save_as(1, scratch.path(), 100);
  test::save_as(1, scratch.path(), 60);  // a run that went on from step 50
  EXPECT_EQ(ckpt::find_newest(scratch.path()).found->filename(), "step_00000060");
}

TEST(Directory, NothingThere) {
  const test::Scratch scratch;
  EXPECT_THAT(message_of<InputError>([&] { ckpt::find_newest(scratch / "none"); }),
              HasSubstr("there is no checkpoint"));
  test::spill(scratch / "file", "");
  EXPECT_THAT(message_of<InputError>([&] { ckpt::find_newest(scratch / "file"); }),
              HasSubstr("is a file; a checkpoint is a directory"));
  EXPECT_FALSE(ckpt::find_newest(scratch.path()).found.has_value());
  EXPECT_THAT(message_of<InputError>([&] { ckpt::require_newest(scratch.path()); }),
              HasSubstr("holds no checkpoint (no step_*)"));
}

TEST(Directory, PurgeKeepsWhatTheRuleSays) {
  const test::Scratch scratch;
  ckpt::SaveOptions options;
  options.retention.keep = 2;
  options.retention.keep_every = 40;
  options.retention.keep_best = 30;
  for (std::int64_t step = 10; step <= 100; step += 10) {
    test::save_as(1, scratch.path(), step, options);
  }
  EXPECT_THAT(steps_in(scratch.path()), ElementsAre(30, 40, 80, 90, 100));
  EXPECT_THAT(ckpt::purge(scratch.path(), {}).removed, ::testing::SizeIs(2));
  EXPECT_THAT(steps_in(scratch.path()), ElementsAre(80, 90, 100));
  EXPECT_THAT(ckpt::purge(scratch.path(), {0}).removed, IsEmpty());
}

TEST(Directory, PurgeCountsWholeOnesOnly) {
  const test::Scratch scratch;
  for (const std::int64_t step : {1, 2, 3, 4})
    test::save_as(1, scratch.path(), step, {{0}});
  fs::remove(scratch / "step_00000004/shard_00000.h5");
  fs::resize_file(scratch / "step_00000003/index.h5", 10);
  ckpt::purge(scratch.path(), {2});
  EXPECT_THAT(steps_in(scratch.path()), ElementsAre(1, 2, 3, 4));
  test::save_as(1, scratch.path(), 5, {{2}});
  EXPECT_THAT(steps_in(scratch.path()), ElementsAre(2, 3, 4, 5))
      << "1 is the third whole one";
}

// A name so long that there is no temporary one for it stands for whatever may not be
// renamed: it works for root too.
TEST(Directory, PurgeOfWhatCannotBeRemovedIsAWarning) {
  const test::Scratch scratch;
  test::save_as(1, scratch.path(), 1, {{0}});
  const std::string stuck = "step_" + std::string(249, '0') + "2";
  fs::copy(scratch / "step_00000001", scratch / stuck, fs::copy_options::recursive);
  test::save_as(1, scratch.path(), 3, {{0}});
  const ckpt::Saved saved = test::save_as(1, scratch.path(), 4, {{1}});
  EXPECT_EQ(saved.path.filename(), "step_00000004");
  EXPECT_THAT(saved.warning, AllOf(HasSubstr("step_00000004' is saved"), HasSubstr(stuck),
                                   HasSubstr("File name too long")));
  EXPECT_EQ(ckpt::find_newest(scratch.path()).found, fs::canonical(saved.path));
  EXPECT_THAT(steps_in(scratch.path()), ElementsAre(2, 4)) << "1 and 3 are removed";
  const ckpt::Purged purged = ckpt::purge(scratch.path(), {1});
  EXPECT_THAT(purged.removed, IsEmpty());
  EXPECT_THAT(purged.problems, ElementsAre(HasSubstr("File name too long")));
  fs::remove_all(scratch / stuck);
  EXPECT_EQ(test::save_as(1, scratch.path(), 5, {{1}}).warning, "");
}

TEST(Directory, PurgeSparesWhatLatestNames) {
  const test::Scratch scratch;
  for (const std::int64_t step : {1, 2, 3}) test::save_as(1, scratch.path(), step, {{0}});
  io::Path(scratch / "latest");
  fs::remove(scratch / "latest");
  fs::create_symlink("step_00000001", scratch / "latest");
  ckpt::purge(scratch.path(), {1});
  EXPECT_THAT(steps_in(scratch.path()), ElementsAre(1, 3));
}

}  // namespace
}  // namespace trireme
