// Begin, go on, or do nothing: the whole table; the directory that is made; the errors
// that a user gets.
#include "report/run_history.hpp"
#include "run/run_directory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "ckpt/reader.hpp"
#include "ckpt/save.hpp"
#include "comm/self_communicator.hpp"
#include "io/atomic_file.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::run {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::slurp;
using test::spill;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunDirectoryTest : public ::testing::Test {
 protected:
  check::RunOptions options(const std::string& resume, std::int64_t steps = 1000) const {
    return {run(), run() / "checkpoints", resume, steps};
  }
  fs::path run() const { return scratch_ / "run"; }
  fs::path step(std::int64_t step) const {
    return run() / "checkpoints" / ckpt::step_name(step);
  }
  check::RunStart decide(const check::RunOptions& options) {
    return RunDirectory(*world_, options).start();
  }
  std::string refusal(const check::RunOptions& options) {
    return message_of<InputError>([&] { decide(options); });
  }
  // A checkpoint of one number, the newest of its directory.
  void put_checkpoint(const fs::path& path,
                      const std::string& tensor = "optimizer/exp_avg/one") {
    ckpt::TrainingState state;
    state.step = *ckpt::step_of(path.filename().string());
    const float one = 1.0f;
    ckpt::save_checkpoint(Exec(), *world_, path.parent_path(), state,
                          {{tensor,
                            DType::float32,
                            {1},
                            {{{0, 0, 1, 1}, 0, 1}},
                            reinterpret_cast<const std::byte*>(&one),
                            true}},
                          {.retention = {.keep = 0}});
  }
  void put_run(const std::vector<std::int64_t>& steps) {
    fs::create_directories(run() / "checkpoints");
    spill(run() / "train.jsonl", "");
    for (const std::int64_t s : steps) put_checkpoint(step(s));
  }
  void damage(const fs::path& path) {
    std::string text = slurp(path / ckpt::kManifestName);
    text.back() ^= 1;
    text[text.size() / 2] ^= 1;
    spill(path / ckpt::kManifestName, text);
  }

  test::Scratch scratch_;
  std::shared_ptr<comm::Communicator> world_ = comm::make_self_communicator("world");
};

TEST_F(RunDirectoryTest, NothingThere) {
  for (const char* resume : {"never", "auto"}) {
    const check::RunStart start = decide(options(resume));
    EXPECT_EQ(start.kind, check::StartKind::afresh);
    EXPECT_EQ(start.step, 0);
    EXPECT_THAT(start.notes, IsEmpty());
    EXPECT_FALSE(fs::exists(run())) << "a decision makes nothing";
  }
  EXPECT_THAT(refusal(options((scratch_ / "other").string())),
              AllOf(HasSubstr("--resume"), HasSubstr("other"),
                    HasSubstr("a checkpoint that exists")));
}

TEST_F(RunDirectoryTest, OtherFilesAreNoRun) {
  fs::create_directories(run() / "checkpoints");
  spill(run() / "slurm-1.out", "");
  EXPECT_EQ(decide(options("never")).kind, check::StartKind::afresh);
}

TEST_F(RunDirectoryTest, ExistingRunIsRefusedWithAdvice) {
  for (const char* name : {"deck.yaml", "environment.json", "train.jsonl"}) {
    fs::create_directories(run());
    spill(run() / name, "");
    EXPECT_THAT(
        refusal(options("never")),
        AllOf(HasSubstr(run().string()), HasSubstr("holds a run already"),
              HasSubstr(name), HasSubstr("--resume auto"), HasSubstr("--run-dir DIR")));
    fs::remove_all(run());
  }
  put_run({500});
  EXPECT_THAT(refusal(options("never")),
              HasSubstr("train.jsonl, 1 checkpoint in '" + run().string()));
  // Checkpoints elsewhere would be mixed up just as well.
  check::RunOptions elsewhere = options("never");
  elsewhere.path = scratch_ / "new";
  EXPECT_THAT(refusal(elsewhere), HasSubstr("1 checkpoint in"));
}

TEST_F(RunDirectoryTest, AutoBeginsAnewWhereNoCheckpointWasWritten) {
  put_run({});
  const check::RunStart start = decide(options("auto"));
  EXPECT_EQ(start.kind, check::StartKind::afresh);
  EXPECT_THAT(start.notes, ElementsAre(HasSubstr("has no checkpoint yet (train.jsonl)")));
}

TEST_F(RunDirectoryTest, AutoDoesNotGiveUpCheckpointsThatTheDeckNoLongerNames) {
  put_run({500, 600});
  fs::rename(run() / "checkpoints", scratch_ / "old");
  fs::create_directory_symlink(scratch_ / "old", run() / "checkpoints");
  check::RunOptions moved = options("auto");
  moved.checkpoints = scratch_ / "new";
  EXPECT_THAT(refusal(moved), AllOf(HasSubstr((scratch_ / "old").string()),
                                    HasSubstr("2, the newest is step_00000600"),
                                    HasSubstr("checkpoint.dir"), HasSubstr("mv ")));
  fs::rename(scratch_ / "old", scratch_ / "new");
  EXPECT_EQ(decide(moved).step, 600) << "they were moved, and the link leads nowhere";
}

// A start that was killed before it saved left a directory with its lock; the next saved
// elsewhere, and the one after it is not told where.
TEST_F(RunDirectoryTest, AutoDoesNotGiveUpARunThatHasSaved) {
  check::RunOptions elsewhere = options("auto");
  elsewhere.checkpoints = scratch_ / "elsewhere";
  RunDirectory(*world_, options("auto")).begin();
  ASSERT_TRUE(fs::exists(run() / "checkpoints/.lock"));
  RunDirectory(*world_, elsewhere).begin();
  EXPECT_TRUE(fs::is_symlink(run() / "checkpoints")) << "it leads there from now on";
  EXPECT_EQ(decide(options("auto")).kind, check::StartKind::afresh)
      << "nothing is lost yet";

  report::RunHistory history(run());
  history.begin(1000.0, 0, "");
  history.note_saved(20, 1.0, 0.1);
  EXPECT_THAT(refusal(options("auto")),
              AllOf(HasSubstr("has saved step 20"), HasSubstr("checkpoint.dir"),
                    HasSubstr("deck.yaml"), HasSubstr("starts.jsonl")));
  put_checkpoint(scratch_ / "elsewhere" / ckpt::step_name(20));
  EXPECT_EQ(decide(options("auto")).step, 20);
}

TEST_F(RunDirectoryTest, AutoGoesOnFromTheNewest) {
  put_run({500, 600});
  const check::RunStart start = decide(options("auto"));
  EXPECT_EQ(start.kind, check::StartKind::resume);
  EXPECT_EQ(start.checkpoint.filename(), "step_00000600");
  EXPECT_EQ(start.step, 600);
  EXPECT_THAT(start.superseded, IsEmpty());
}

TEST_F(RunDirectoryTest, AutoLeavesOutWhatIsDamagedAndSaysSo) {
  put_run({500, 600});
  damage(step(600));
  const check::RunStart start = decide(options("auto"));
  EXPECT_EQ(start.step, 500);
  EXPECT_THAT(start.notes,
              ElementsAre(HasSubstr("left out a checkpoint: step_00000600")));
}

// It may well be whole, and an older one would lose steps: of the rest one is passed
// over.
TEST_F(RunDirectoryTest, AutoDoesNotPassOverTheNewestThatCannotBeRead) {
  put_run({400, 500, 600});
  const auto hide = [&](std::int64_t number) {
    fs::remove(step(number) / ckpt::kManifestName);
    fs::create_symlink(ckpt::kManifestName, step(number) / ckpt::kManifestName);
  };
  hide(500);
  EXPECT_EQ(decide(options("auto")).step, 600);
  hide(600);
  EXPECT_THAT(refusal(options("auto")),
              AllOf(HasSubstr("step_00000600"), HasSubstr("symbolic links"),
                    HasSubstr("--resume '" + step(400).string())));
  EXPECT_EQ(decide(options(step(400).string())).step, 400);
}

TEST_F(RunDirectoryTest, AutoDoesNotGiveUpARunWhoseCheckpointsAreAllDamaged) {
  put_run({500, 600});
  damage(step(500));
  damage(step(600));
  EXPECT_THAT(refusal(options("auto")),
              AllOf(HasSubstr("no checkpoint in"), HasSubstr("step_00000500: "),
                    HasSubstr("step_00000600: "), HasSubstr("--run-dir DIR")));
}

TEST_F(RunDirectoryTest, FinishedRun) {
  put_run({500, 1000});
  EXPECT_EQ(decide(options("auto", 1000)).kind, check::StartKind::finished);
  EXPECT_EQ(decide(options("auto", 999)).kind, check::StartKind::finished);
  EXPECT_EQ(decide(options("auto", 1001)).kind, check::StartKind::resume);
  EXPECT_EQ(decide(options(run().string(), 1000)).kind, check::StartKind::finished);
}

TEST_F(RunDirectoryTest, EveryNameOfACheckpoint) {
  put_run({500, 600});
  for (const fs::path& name :
       {run(), run() / "checkpoints", run() / "checkpoints/latest", step(600)}) {
    const check::RunStart start = decide(options(name.string()));
    EXPECT_EQ(start.kind, check::StartKind::resume) << name;
    EXPECT_EQ(start.step, 600) << name;
    EXPECT_THAT(start.superseded, IsEmpty()) << name;
  }
  damage(step(600));
  EXPECT_EQ(decide(options(run().string())).step, 500);
  EXPECT_THAT(refusal(options(step(600).string())), HasSubstr("step_00000600"));
}

TEST_F(RunDirectoryTest, BackToAnOlderCheckpoint) {
  put_run({500, 600, 700});
  const check::RunOptions back = options(step(500).string());
  const check::RunStart start = decide(back);
  EXPECT_EQ(start.kind, check::StartKind::resume);
  EXPECT_EQ(start.step, 500);
  EXPECT_EQ(start.superseded.size(), 2u);
  EXPECT_EQ(start.notes.size(), 2u);
  EXPECT_TRUE(fs::exists(step(700)));
  RunDirectory(*world_, back).begin();
  EXPECT_FALSE(fs::exists(step(600)));
  EXPECT_TRUE(fs::exists(run() / "checkpoints/set_aside/step_00000700/manifest.json"));
  EXPECT_EQ(fs::read_symlink(run() / "checkpoints/latest"), "step_00000500");
  // Killed before it publishes anything, it still does not fall back to the old branch.
  EXPECT_EQ(decide(options("auto")).step, 500);
  // A second time, the names in set_aside are taken.
  put_checkpoint(step(600));
  RunDirectory(*world_, back).begin();
  EXPECT_TRUE(fs::exists(run() / "checkpoints/set_aside/step_00000600-2"));
}

TEST_F(RunDirectoryTest, WeightsAreNoRunToGoOnWith) {
  put_checkpoint(scratch_ / "weights/step_00000000", "model/one");
  EXPECT_THAT(refusal(options((scratch_ / "weights").string())),
              AllOf(HasSubstr("weights only"), HasSubstr("--init-from")));
}

TEST_F(RunDirectoryTest, BranchingOff) {
  put_run({500});
  check::RunOptions branch = options(run().string());
  branch.path = scratch_ / "branch";
  branch.checkpoints = branch.path / "checkpoints";
  const check::RunStart start = decide(branch);
  EXPECT_EQ(start.kind, check::StartKind::resume);
  EXPECT_EQ(start.step, 500);
  // Nothing to do there, and saying "done" would be wrong.
  branch.steps = 500;
  EXPECT_THAT(refusal(branch), AllOf(HasSubstr("nothing to train"), HasSubstr("step 500"),
                                     HasSubstr("run.steps")));
  // A directory with a run of its own is not overwritten.
  branch.steps = 1000;
  fs::create_directories(branch.path);
  spill(branch.path / "train.jsonl", "");
  EXPECT_THAT(refusal(branch), HasSubstr("is not one of its checkpoints"));
}

TEST_F(RunDirectoryTest, AFileInThePlaceOfTheRun) {
  spill(run(), "");
  for (const char* resume : {"never", "auto"}) {
    EXPECT_THAT(refusal(options(resume)),
                AllOf(HasSubstr("exists and is a file"), HasSubstr("--run-dir DIR")));
  }
}

TEST_F(RunDirectoryTest, UnwritableDirectories) {
  const auto opening = [&](const check::RunOptions& options) {
    return message_of<InputError>([&] { RunDirectory(*world_, options); });
  };
  check::RunOptions bad = options("never");
  spill(scratch_ / "file", "");
  bad.path = scratch_ / "file/run";
  EXPECT_THAT(opening(bad), AllOf(HasSubstr("cannot create the run directory"),
                                  HasSubstr("Not a directory"), HasSubstr("run.dir")));
  bad = options("never");
  bad.checkpoints = scratch_ / "file";
  EXPECT_THAT(opening(bad),
              AllOf(HasSubstr("checkpoint directory"), HasSubstr("checkpoint.dir")));
  bad = options("never");
  bad.path = "/proc/run";
  EXPECT_THAT(opening(bad), HasSubstr("cannot create the run directory '/proc/run'"));
  bad.path = "/proc";  // it exists, and not even root can make a file there
  EXPECT_THAT(opening(bad), AllOf(HasSubstr("'/proc"), HasSubstr("run.dir")));
}

TEST_F(RunDirectoryTest, OneProcessAtATime) {
  RunDirectory first(*world_, options("never"));
  EXPECT_THAT(message_of<InputError>([&] { RunDirectory(*world_, options("auto")); }),
              AllOf(HasSubstr("another process trains in '" + run().string()),
                    HasSubstr(fmt::format("process {} on ", ::getpid())),
                    HasSubstr("--run-dir DIR")));
}

// Who reads the checkpoint need not read its manifest again.
TEST_F(RunDirectoryTest, TheManifestIsHandedOnOnce) {
  put_run({500});
  for (const std::string& resume : {std::string("auto"), step(500).string()}) {
    RunDirectory directory(*world_, options(resume));
    const auto manifest = directory.take_manifest();
    EXPECT_FALSE(directory.start().manifest);
    ASSERT_TRUE(manifest);
    fs::rename(step(500) / ckpt::kManifestName, scratch_ / "manifest");
    EXPECT_EQ(ckpt::CheckpointReader(*world_, step(500), manifest).state().step, 500);
    EXPECT_THROW(ckpt::CheckpointReader(*world_, step(500)), InputError);
    fs::rename(scratch_ / "manifest", step(500) / ckpt::kManifestName);
  }
}

// What is made for the lock goes again where the start is not to be.
TEST_F(RunDirectoryTest, ARefusedStartLeavesNothing) {
  check::RunOptions deep = options("never");
  deep.path = scratch_ / "many/runs/run";
  deep.checkpoints = scratch_ / "elsewhere/checkpoints";
  {
    RunDirectory refused(*world_, deep);
    EXPECT_TRUE(fs::exists(deep.path / ".lock"));
    EXPECT_TRUE(fs::exists(deep.checkpoints / ".lock"));
  }
  EXPECT_FALSE(fs::exists(scratch_ / "many"));
  EXPECT_FALSE(fs::exists(scratch_ / "elsewhere"));
  {
    RunDirectory refused(*world_, deep);
    spill(scratch_ / "many/note", "");  // of somebody else
  }
  EXPECT_FALSE(fs::exists(scratch_ / "many/runs"));
  EXPECT_TRUE(fs::exists(scratch_ / "many/note"));
  deep.resume = (scratch_ / "nowhere").string();
  EXPECT_THAT(refusal(deep), HasSubstr("a checkpoint that exists"));
  EXPECT_FALSE(fs::exists(scratch_ / "many/runs"));
  RunDirectory(*world_, options("never")).begin();
  EXPECT_TRUE(fs::exists(run() / "checkpoints/.lock"));
}

// Removed and made again under the lock's eyes: the second process must not take it.
TEST_F(RunDirectoryTest, WhoLosesTheDirectoryIsTold) {
  RunDirectory directory(*world_, options("never"));
  directory.begin();
  EXPECT_NO_THROW(directory.require_held());
  fs::rename(run(), scratch_ / "moved");
  EXPECT_THAT(message_of<Error>([&] { directory.require_held(); }),
              AllOf(HasSubstr(run().string()), HasSubstr("was moved to"),
                    HasSubstr((scratch_ / "moved").string())));
  RunDirectory second(*world_, options("never"));
  EXPECT_THAT(message_of<Error>([&] { directory.require_held(); }),
              HasSubstr("another directory has its name"));
}

TEST_F(RunDirectoryTest, TheLockGoesWithItsProcess) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto* leaked = new RunDirectory(*world_, options("never"));
    static_cast<void>(leaked);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(fs::exists(run() / ".lock"));
  EXPECT_NO_THROW(RunDirectory(*world_, options("auto")));
  EXPECT_EQ(decide(options("never")).kind, check::StartKind::afresh)
      << "a lock is no run";
}

TEST_F(RunDirectoryTest, WhatKilledStartsLeftGoes) {
  put_run({500});
  const fs::path leftovers[] = {
      run() / ".environment.json.tmp-node-1", run() / ".seen.tmp-node-1",
      run() / "..seen.tmp-node-1.tmp-node-1", run() / ".preflight.tmp-node-1-3",
      run() / "checkpoints" / ".seen.tmp-node-2-7"};
  const fs::path others[] = {run() / ".notes", run() / "x.tmp-y",
                             step(500) / ckpt::kManifestName};
  for (const fs::path& path : leftovers) spill(path, "");
  for (const fs::path& path : {others[0], others[1]}) spill(path, "");
  RunDirectory(*world_, options("auto")).begin();
  for (const fs::path& path : leftovers) EXPECT_FALSE(fs::exists(path)) << path;
  for (const fs::path& path : others) EXPECT_TRUE(fs::exists(path)) << path;
}

TEST_F(RunDirectoryTest, DecksAreKept) {
  RunDirectory directory(*world_, options("never"));
  directory.begin();
  directory.write_deck("a: 1\n");
  directory.write_deck("a: 1\n");
  directory.write_deck("a: 2\n");
  directory.write_deck("a: 3\n");
  EXPECT_EQ(slurp(run() / "deck.yaml"), "a: 3\n");
  EXPECT_EQ(slurp(run() / "deck.1.yaml"), "a: 1\n");
  EXPECT_EQ(slurp(run() / "deck.2.yaml"), "a: 2\n");
  EXPECT_FALSE(fs::exists(run() / "deck.3.yaml"));
}

TEST_F(RunDirectoryTest, EnvironmentOfEveryStart) {
  RunDirectory directory(*world_, options("never"));
  directory.begin();
  nlohmann::ordered_json environment = {{"build", {{"mpi", "MPICH 4.0.2"}}},
                                        {"hosts", {"node01", "node02"}},
                                        {"command_line", "trireme train \"x\" \xff"}};
  for (const char* started : {"first", "second", "third"}) {
    environment["started"] = started;
    directory.write_environment(environment);
  }
  const auto json = nlohmann::json::parse(slurp(run() / "environment.json"));
  EXPECT_EQ(json.at("started"), "third");
  EXPECT_EQ(json.at("build").at("mpi"), "MPICH 4.0.2");
  EXPECT_EQ(json.at("hosts").size(), 2u);
  ASSERT_EQ(json.at("earlier_starts").size(), 2u);
  EXPECT_EQ(json.at("earlier_starts").at(0).at("started"), "first");
  EXPECT_FALSE(json.at("earlier_starts").at(1).contains("earlier_starts"));
  spill(run() / "environment.json",
        "{\"earlier_starts\":" + test::nested_json(100000) + "}");
  directory.write_environment(environment);
  EXPECT_FALSE(nlohmann::json::parse(slurp(run() / "environment.json"))
                   .contains("earlier_starts"));
}

}  // namespace
}  // namespace trireme::run
