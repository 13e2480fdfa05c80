// Disks that fill up, fail, or lose what was written: training goes on, says what
// happened, ends with the right status, and a restart takes the newest checkpoint that is
// whole. Injected, and as far as the system lets us, met.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <stdexcept>

#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;

class FaultsOfDisks : public TrainingRuns {
 protected:
  RunResult start(const std::string& run, const std::string& faults = "",
                  const Arguments& keys = {}) const {
    return start_with(options(1), run, "auto", faults, keys);
  }
  RunResult start_with(const RunOptions& options, const std::string& run,
                       const std::string& resume, const std::string& faults,
                       const Arguments& keys) const {
    Arguments arguments = {"train",    "deck.yaml",    "--run-dir", run,
                           "--resume", resume,         "--set",     "run.sample_every=0",
                           "--set",    "batch.micro=1"};
    for (const std::string& key : keys) arguments.insert(arguments.end(), {"--set", key});
    if (!faults.empty()) arguments.insert(arguments.end(), {"--fault", faults});
    return trireme_on_ranks(2, arguments, options);
  }

  // What `latest` names: "step_00000005".
  std::string latest(const std::string& run) const {
    return std::filesystem::read_symlink(scratch_ / run / "checkpoints/latest").string();
  }
};

// The save of step 5 fails in each phase that writes; those of 10 and 13 do not.
TEST_F(FaultsOfDisks, AreReportedAndTriedAgain) {
  ASSERT_EQ(start("whole").status, 0);
  for (const char* plan :
       {"enospc:phase=ckpt.write,rank=1,step=5", "eio:phase=ckpt.write,step=5",
        "enospc:phase=ckpt.layout,rank=0,step=5", "eio:phase=ckpt.flush,rank=1,step=5",
        "eio:phase=ckpt.index,step=5", "enospc:phase=ckpt.manifest,step=5",
        "eio:phase=ckpt.rename,step=5", "enospc:phase=ckpt.begin,step=5"}) {
    SCOPED_TRACE(plan);
    std::filesystem::remove_all(scratch_ / "run");
    const RunResult result = start("run", plan);
    EXPECT_EQ(result.status, 0) << result.err;
    const bool is_full = std::string(plan).starts_with("enospc");
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("the checkpoint of step 5 could not be written"),
                      HasSubstr(is_full ? "No space left on device" : "put/output error"),
                      HasSubstr("Training goes on"), Not(HasSubstr("HDF5-DIAG"))));
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "run/checkpoints/step_00000005"));
    expect_same_checkpoint(newest("whole"), newest("run"));
    expect_same_metrics("whole", "run", 13);
  }
}

TEST_F(FaultsOfDisks, EndARunOnlyAfterSeveral) {
  const Arguments often = {"checkpoint.every=2"};
  const RunResult third = start("three", "enospc:phase=ckpt.write,times=0", often);
  EXPECT_EQ(third.status, 1);
  EXPECT_THAT(third.err, AllOf(HasSubstr("this was the 3. in a row"),
                               HasSubstr("None is published yet")));
  // Not even the last: no success.
  const RunResult last = start("last", "enospc:phase=ckpt.write,times=0",
                               {"checkpoint.every=0", "checkpoint.max_misses=0"});
  EXPECT_EQ(last.status, 1);
  EXPECT_THAT(last.err,
              HasSubstr("the last checkpoint, of step 13, could not be written"));
  // The last is worth some tries.
  const RunResult patient =
      start("patient", "enospc:phase=ckpt.write,times=2", {"checkpoint.every=0"});
  EXPECT_EQ(patient.status, 0) << patient.err;
  EXPECT_EQ(newest("patient").filename(), "step_00000013");
}

// What no system call tells: found when it is read, and left for the one before.
TEST_F(FaultsOfDisks, ThatNothingTellsAreFoundAtARestart) {
  ASSERT_EQ(start("whole").status, 0);
  for (const char* plan : {"bit_flip:phase=ckpt.write,rank=1,step=10",
                           "short_write:phase=ckpt.write,step=10",
                           "bit_flip:phase=ckpt.write,after=3,step=10"}) {
    SCOPED_TRACE(plan);
    std::filesystem::remove_all(scratch_ / "run");
    const Arguments few = {"run.steps=10"};
    ASSERT_EQ(start("run", plan, few).status, 0);
    ASSERT_EQ(newest("run").filename(), "step_00000005");
    const RunResult rest = start("run");
    EXPECT_EQ(rest.status, 0) << rest.err;
    EXPECT_THAT(rest.err,
                AllOf(HasSubstr("step_00000010/shard_"), HasSubstr("expected XXH3"),
                      HasSubstr("Going on from an older one"), HasSubstr("of '")));
    expect_same_checkpoint(newest("whole"), newest("run"));
    expect_same_metrics("whole", "run", 13);
  }
}

// A finished run whose last checkpoint is damaged is not finished.
TEST_F(FaultsOfDisks, AtTheEndAreFoundToo) {
  ASSERT_EQ(start("run", "bit_flip:phase=ckpt.write,step=13").status, 0);
  const RunResult again = start("run");
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("Going on from an older one"));
  EXPECT_EQ(newest("run").filename(), "step_00000013");
  EXPECT_THAT(start("run").out, HasSubstr("nothing to train"));
}

TEST_F(FaultsOfDisks, LostShardIsNamed) {
  ASSERT_EQ(start("run", "", {"run.steps=10"}).status, 0);
  std::filesystem::remove(scratch_ / "run/checkpoints/step_00000010/shard_00001.h5");
  const RunResult rest = start("run");
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.out + rest.err, HasSubstr("step_00000010/shard_00001.h5"));
}

// The link goes back where it must, then forward only, and what the program makes it name
// is whole: through starts that are killed before they save, in the middle of lower
// steps, and in the middle of the damaged one's own.
TEST_F(FaultsOfDisks, LatestGoesBackNoFurtherThanItMust) {
  const auto expect_whole = [&](const std::string& checkpoint) {
    EXPECT_THAT(ckpt::problems_of(scratch_ / "run/checkpoints" / checkpoint,
                                  ckpt::Depth::checksums),
                ::testing::IsEmpty())
        << checkpoint;
  };
  ASSERT_EQ(start("whole").status, 0);
  ASSERT_EQ(
      start("run", "bit_flip:phase=ckpt.write,rank=1,step=10", {"run.steps=10"}).status,
      0);
  ASSERT_EQ(latest("run"), "step_00000010");  // nothing told

  const RunResult idle = start("run", "kill:phase=step,step=7");
  // Not by the status: some launchers' is 0 for killed ranks (MPICH 4.2.1).
  EXPECT_THAT(idle.err, HasSubstr("fault: 'kill"));
  EXPECT_THAT(idle.err, HasSubstr("Going on from an older one"));
  // Untouched, or moved to what the run went on from.
  EXPECT_THAT(latest("run"), AnyOf(Eq("step_00000010"), Eq("step_00000005")));
  expect_whole("step_00000005");

  // That of step 6 is published before that of step 8 begins.
  const RunResult lower = start("run", "kill:phase=step,step=9", {"checkpoint.every=2"});
  EXPECT_THAT(lower.err, HasSubstr("fault: 'kill"));
  EXPECT_THAT(lower.err, HasSubstr("Going on from an older one"));
  const std::string reached = latest("run");
  EXPECT_THAT(reached, AnyOf(Eq("step_00000006"), Eq("step_00000008")));
  expect_whole(reached);
  EXPECT_THAT(ckpt::find_newest(scratch_ / "run").skipped, ::testing::IsEmpty());

  // Killed with the new one of step 10 in place, and the link not moved yet.
  const RunResult again = start("run", "kill:phase=ckpt.publish,step=10");
  EXPECT_THAT(again.err, HasSubstr("fault: 'kill"));
  EXPECT_THAT(again.err, Not(HasSubstr("Going on from an older one")));
  EXPECT_THAT(latest("run"), AnyOf(Eq(reached), Eq("step_00000008")));
  expect_whole(latest("run"));
  expect_whole("step_00000010");

  const RunResult rest = start("run");
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.out + rest.err, Not(HasSubstr("damaged")));
  EXPECT_EQ(latest("run"), "step_00000013");
  expect_same_checkpoint(newest("whole"), newest("run"));
  expect_same_metrics("whole", "run", 13);
}

// What is done to the directory of checkpoints, or to the process that writes there, by
// words of the shell; and what the run says of it.
struct Trouble {
  const char* name;
  std::string make, mend;
  const char* cause;
};

class FaultsThatAreMet : public FaultsOfDisks {
 protected:
  // One rank, which holds itself (SIGSTOP) at the beginning of each of these steps; what
  // belongs to the step is done meanwhile, so that no time is measured.
  using Meanwhile = std::vector<std::pair<int, std::string>>;
  RunResult start_alone(const Meanwhile& meanwhile, const Arguments& keys) const {
    std::string script = "\"$@\" & child=$!\n", plan;
    for (const auto& [step, words] : meanwhile) {
      plan +=
          (plan.empty() ? "" : ";") + ("stop:phase=step,step=" + std::to_string(step));
      script +=
          "until grep -q '^State:.[TZ]' /proc/$child/status; do sleep 0.01; done\n" +
          words + "\nkill -CONT $child\n";
    }
    Arguments command = unprivileged_;
    for (const std::string& word :
         {std::string("sh"), std::string("-c"), script + "wait $child", std::string("sh"),
          std::string(std::getenv("TRIREME_BINARY")), std::string("train"),
          std::string("deck.yaml"), std::string("--run-dir"), std::string("run"),
          std::string("--resume"), std::string("auto"), std::string("--fault"), plan,
          std::string("--set"), std::string("run.sample_every=0"), std::string("--set"),
          std::string("checkpoint.dir=disk/checkpoints")}) {
      command.push_back(word);
    }
    for (const std::string& key : keys) command.insert(command.end(), {"--set", key});
    return run(command, options(1));
  }

  void expect_untouched() const {
    EXPECT_EQ(latest("run"), "step_00000005");
    const RunResult verified = trireme({"inspect", "run", "--verify"}, options(1));
    EXPECT_EQ(verified.status, 0) << verified.err;
    expect_same_checkpoint(scratch_ / "whole/checkpoints/step_00000005", newest("run"),
                           Place::middle);
    std::size_t others = 0;  // nothing half written either
    for (const auto& entry :
         std::filesystem::directory_iterator(scratch_ / "disk/checkpoints")) {
      const std::string name = entry.path().filename();
      if (name != "latest" && name != "step_00000005" && name != ".lock") ++others;
    }
    EXPECT_EQ(others, 0u);
  }

  // Permissions do not bind root, other than without this capability.
  void be_bound_by_permissions() {
    if (::geteuid() != 0) return;
    unprivileged_ = {"setpriv", "--bounding-set=-dac_override"};
  }
  bool is_bound_by_permissions() const {
    Arguments command = unprivileged_;
    command.insert(command.end(), {"sh", "-c",
                                   "mkdir closed && chmod 555 closed && ! touch closed/a "
                                   "2>/dev/null && rmdir closed"});
    const RunResult result = run(command, options(1));
    if (result.status != 0) {
      std::fprintf(stderr, "not tested with a directory that is read only: %s\n",
                   result.err.c_str());
    }
    return result.status == 0;
  }

  Arguments unprivileged_;
};

// From its sixth step on a run cannot save: it trains to the end, says so, and ends with
// status 1. Another meets the same, but for some steps only.
TEST_F(FaultsThatAreMet, LeaveWhatThereIs) {
  ASSERT_EQ(train("whole", {"--set", "run.sample_every=0"}).status, 0);
  const SmallDisk disk(scratch_ / "disk", 4 << 20);
  std::vector<Trouble> troubles = {
      {"a limit on the size of files",  // the metrics fit below it
       "before=$(prlimit --pid $child --fsize --raw --noheadings --output SOFT)\n"
       "prlimit --pid $child --fsize=65536:",
       "prlimit --pid $child --fsize=$before:", "File too large"}};
  if (disk.is_mounted()) {
    troubles.push_back({"a full disk",
                        "dd if=/dev/zero of=disk/filler bs=4096 2>/dev/null || true",
                        "rm disk/filler", "No space left on device"});
  }
  be_bound_by_permissions();
  if (is_bound_by_permissions()) {
    troubles.push_back({"read only", "chmod 555 disk/checkpoints",
                        "chmod 755 disk/checkpoints", "Permission denied"});
  }
  for (const Trouble& trouble : troubles) {
    SCOPED_TRACE(trouble.name);
    for (const char* old : {"run", "disk/checkpoints"}) {
      std::filesystem::remove_all(scratch_ / old);
    }
    ASSERT_EQ(start_alone({}, {"run.steps=5"}).status, 0);
    const RunResult failed = start_alone({{6, trouble.make}}, {});
    EXPECT_EQ(failed.status, 1) << failed.err;
    EXPECT_THAT(failed.err,
                AllOf(HasSubstr("the checkpoint of step 10 could not be written"),
                      HasSubstr(trouble.cause),
                      HasSubstr("the last checkpoint, of step 13, could not be written"),
                      Not(HasSubstr("HDF5-DIAG"))));
    // The limit ended with the process.
    if (trouble.mend.find("$child") == std::string::npos) {
      ASSERT_EQ(run({"sh", "-c", trouble.mend}, options(1)).status, 0);
    }
    expect_untouched();
    // Not beside the steps: what is mended in the twelfth has failed in the tenth.
    const RunResult rest =
        start_alone({{6, trouble.make}, {12, trouble.mend}}, {"checkpoint.async=false"});
    EXPECT_EQ(rest.status, 0) << rest.err;
    EXPECT_THAT(rest.err,
                AllOf(HasSubstr("the checkpoint of step 10 could not be written"),
                      HasSubstr(trouble.cause), HasSubstr("Training goes on"),
                      Not(HasSubstr("of step 13"))));
    EXPECT_EQ(latest("run"), "step_00000013");
    expect_same_checkpoint(newest("whole"), newest("run"));
    expect_same_metrics("whole", "run", 13);
  }
}

// What the ranks do is noted in a file that they map: a run needs none.
TEST_F(FaultsThatAreMet, CutBoardIsGivenUp) {
  const RunResult cut =
      start_alone({{6, "for f in run/ranks.*; do : >\"$f\"; done"}}, {});
  EXPECT_EQ(cut.status, 0) << cut.err;
  EXPECT_THAT(cut.err, testing::ContainsRegex("warning: 'run/ranks\\..*' was cut short"));
  const std::size_t first = cut.err.find("was cut short");
  EXPECT_EQ(cut.err.find("was cut short", first + 1), std::string::npos) << cut.err;
  EXPECT_THAT(slurp(scratch_ / "run/log.txt"), HasSubstr("was cut short"));
  EXPECT_EQ(latest("run"), "step_00000013");
  const RunResult again = start_alone({}, {"run.steps=14"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out + again.err, Not(HasSubstr("did not end cleanly")));
}

// Nothing is trained on in its place.
TEST_F(FaultsThatAreMet, CutCorpusEndsTheRun) {
  const RunResult cut = start_alone({{6, ": >corpus.h5"}}, {"checkpoint.async=false"});
  EXPECT_EQ(cut.status, 1) << cut.err;
  EXPECT_THAT(cut.err, HasSubstr("'corpus.h5' was cut short while it was read"));
  EXPECT_EQ(latest("run"), "step_00000005");
}

// What cannot be mended under a run: its directory is another one, or none.
TEST_F(FaultsThatAreMet, AFileInThePlaceOfTheDirectoryEndsTheRun) {
  const SmallDisk disk(scratch_ / "disk", 4 << 20);
  ASSERT_EQ(train("whole", {"--set", "run.sample_every=0"}).status, 0);
  ASSERT_EQ(start_alone({}, {"run.steps=5"}).status, 0);
  const RunResult failed =
      start_alone({{6, "mv disk/checkpoints disk/kept && : >disk/checkpoints"}}, {});
  EXPECT_EQ(failed.status, 1) << failed.err;
  EXPECT_THAT(failed.err, HasSubstr("'disk/checkpoints' was moved to"));
  ASSERT_EQ(run({"sh", "-c", "rm disk/checkpoints && mv disk/kept disk/checkpoints"},
                options(1))
                .status,
            0);
  expect_untouched();
}

// Two ranks that write to one file, on a disk that has room for half of it.
TEST_F(FaultsThatAreMet, ByAllRanks) {
  const SmallDisk disk(scratch_ / "disk", 4 << 20);
  if (!disk.is_mounted()) return;  // which is said
  const Arguments keys = {"checkpoint.dir=disk/checkpoints",
                          "checkpoint.writers=per_node"};
  ASSERT_EQ(start("whole", "", {"checkpoint.writers=per_node"}).status, 0);
  Arguments few = keys;
  few.push_back("run.steps=5");
  ASSERT_EQ(start("run", "", few).status, 0);
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(newest("run"))) {
    bytes += entry.file_size();
  }
  const auto space = std::filesystem::space(scratch_ / "disk");
  spill(scratch_ / "disk/filler", std::string(space.available - bytes / 2, 'x'));
  const RunResult failed = start("run", "", keys);
  EXPECT_EQ(failed.status, 1) << failed.err;
  EXPECT_THAT(failed.err,
              AllOf(HasSubstr("the checkpoint of step 10 could not be written"),
                    HasSubstr("No space left on device"), HasSubstr(" needed)"),
                    HasSubstr("the last checkpoint, of step 13, could not be written")));
  expect_untouched();
  std::filesystem::remove(scratch_ / "disk/filler");
  const RunResult rest = start("run", "", keys);
  EXPECT_EQ(rest.status, 0) << rest.err;
  expect_same_checkpoint(newest("whole"), newest("run"));
  expect_same_metrics("whole", "run", 13);
}

// Reads that fail on whole files (fail_reads.c, preloaded): a disk or a file server that
// is away. Nothing is known to be damaged then, so nothing is given up for it.
class FaultsOfReads : public FaultsOfDisks {
 protected:
  // Reads of files whose paths contain `part` fail.
  RunOptions without(const std::string& part) const {
    return preloaded({{"TRIREME_TEST_FAIL_READS", part}});
  }
  RunOptions preloaded(const std::map<std::string, std::string>& variables) const {
    const char* library = std::getenv("TRIREME_FAIL_READS_LIBRARY");
    if (library == nullptr) {
      throw std::runtime_error("TRIREME_FAIL_READS_LIBRARY is not set");
    }
    RunOptions broken = options(1);
    broken.environment = variables;
    broken.environment.insert({{"LD_PRELOAD", library}, {"OMP_NUM_THREADS", "1"}});
    // The address sanitizer wants to be the first library.
    const char* wishes = std::getenv("ASAN_OPTIONS");
    broken.environment.insert(
        {"ASAN_OPTIONS",
         std::string(wishes == nullptr ? "" : wishes) + ":verify_asan_link_order=0"});
    broken.timeout = 60.0;  // tries of a second or so, and a start
    return broken;
  }
  RunResult start_without(const std::string& part, const Arguments& keys = {},
                          const std::string& resume = "auto") const {
    return start_with(without(part), "run", resume, "", keys);
  }

  // Two runs: one of 13 steps, and one that has saved its steps 5 and 10 only.
  void make_runs() {
    ASSERT_EQ(start("whole").status, 0);
    ASSERT_EQ(start("run", "", {"run.steps=10"}).status, 0);
    ASSERT_EQ(latest("run"), "step_00000010");
  }

  // What there is of the run's checkpoints and metrics, and when it was written.
  using Contents = std::map<std::string, std::filesystem::file_time_type>;
  Contents contents() const {
    Contents found;
    const io::Path metrics_log = scratch_ / "run/train.jsonl";
    found[metrics_log] = std::filesystem::last_write_time(metrics_log);
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(scratch_ / "run/checkpoints")) {
      if (entry.is_regular_file() && entry.path().filename() != ".lock") {
        found[entry.path()] = entry.last_write_time();
      }
    }
    return found;
  }

  // The start that cannot read this file of the newest checkpoint says so and what to do,
  // and leaves everything as it is; the next goes on as if there had been none.
  void expect_kept(const std::string& file) {
    SCOPED_TRACE(file);
    const Contents before = contents();
    const RunResult failed = start_without(file);
    EXPECT_EQ(failed.status, 1) << failed.err;  // -1: it hangs
    EXPECT_THAT(
        failed.err,
        AllOf(HasSubstr("Input/output error"), HasSubstr(file), HasSubstr("--resume"),
              HasSubstr("checkpoints/step_00000005"),
              Not(HasSubstr("Going on from an older one")), Not(HasSubstr("HDF5-DIAG"))));
    EXPECT_EQ(contents(), before);
    EXPECT_EQ(latest("run"), "step_00000010");
  }
  void expect_to_go_on() {
    const RunResult rest = start("run");
    EXPECT_EQ(rest.status, 0) << rest.err;
    EXPECT_EQ(latest("run"), "step_00000013");
    expect_same_checkpoint(newest("whole"), newest("run"));
    expect_same_metrics("whole", "run", 13);
  }
};

// Nor does an old checkpoint keep newer ones from being saved, or removed.
TEST_F(FaultsOfReads, OfAnOldCheckpointDoNotMatter) {
  make_runs();
  const std::string old = "step_00000005/manifest.json";
  const RunResult more = start_without(old, {"run.steps=12", "checkpoint.every=1"});
  EXPECT_EQ(more.status, 0) << more.err;
  EXPECT_THAT(more.err, Not(HasSubstr("could not be written")));
  for (const char* step : {"step_00000011", "step_00000012"}) {
    EXPECT_TRUE(std::filesystem::exists(scratch_ / "run/checkpoints" / step)) << step;
  }
  EXPECT_EQ(latest("run"), "step_00000012");
  const RunResult rest = start_without(old, {"checkpoint.keep=2"});
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.err, Not(HasSubstr("could not be written")));
  EXPECT_EQ(latest("run"), "step_00000013");
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "run/checkpoints/step_00000012"));
  expect_same_checkpoint(newest("whole"), newest("run"));
  expect_same_metrics("whole", "run", 13);
}

TEST_F(FaultsOfReads, OfTheNewestManifestEndTheStart) {
  make_runs();
  expect_kept("step_00000010/manifest.json");
  expect_to_go_on();
}

// Which one rank only may meet, and all learn of.
TEST_F(FaultsOfReads, OfOneFileEndTheStart) {
  make_runs();
  ASSERT_GE(shards_of(newest("run")), 2u);
  expect_kept("step_00000010/shard_00001.h5");
  expect_kept("step_00000010/" + std::string(ckpt::kIndexName));
  expect_to_go_on();
}

// What is offered instead works while the newest stays as it is.
TEST_F(FaultsOfReads, LeaveTheCheckpointBefore) {
  make_runs();
  const RunResult rest = start_without("step_00000010/shard_00001.h5", {},
                                       scratch_ / "run/checkpoints/step_00000005");
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(latest("run"), "step_00000013");
  expect_same_checkpoint(newest("whole"), newest("run"));
  expect_same_metrics("whole", "run", 13);
}

TEST_F(FaultsOfReads, AreReportedByInspect) {
  make_runs();
  const auto inspect = [&](const std::string& part) {
    return run({std::getenv("TRIREME_BINARY"), "inspect", "--verify", "run"},
               without(part));
  };
  const RunResult whole = inspect("no such file");
  EXPECT_EQ(whole.status, 0) << whole.err;
  for (const char* name : {"shard_00001.h5", "manifest.json"}) {
    for (const auto& [broken, other] : std::map<std::string, std::string>{
             {"step_00000005", "step_00000010"}, {"step_00000010", "step_00000005"}}) {
      SCOPED_TRACE(broken + "/" + name);
      const RunResult seen = inspect(broken + "/" + name);
      EXPECT_NE(seen.status, 0);
      EXPECT_THAT(seen.err,
                  AllOf(HasSubstr("Input/output error"), HasSubstr(broken + "/" + name)));
      EXPECT_THAT(seen.out, AllOf(HasSubstr(other + " whole"), HasSubstr(broken)));
    }
  }
}

// A manifest may be hundreds of megabytes: whoever needs what is in it hands it on. The
// reads of some bytes at its beginning, which order checkpoints by age, do not count.
TEST_F(FaultsOfReads, ManifestsAreParsedOnce) {
  ASSERT_EQ(start("run", "", {"run.steps=10"}).status, 0);
  const io::Path notes = scratch_ / "notes";
  const RunOptions noting = preloaded({{"TRIREME_TEST_NOTE_READS", "10/manifest.json"},
                                       {"TRIREME_TEST_NOTES", notes.string()}});
  const auto expect_once = [&](const RunResult& result) {
    EXPECT_EQ(result.status, 0) << result.err;
    std::ifstream lines(notes);
    int parsed = 0;
    for (std::size_t bytes = 0; lines >> bytes;) parsed += bytes > 100 ? 1 : 0;
    EXPECT_EQ(parsed, 1) << result.out;
    std::filesystem::remove(notes);
  };
  using Commands = std::vector<Arguments>;
  for (const Arguments& command : Commands{
           {"train", "deck.yaml", "--run-dir", "run", "--resume", "auto", "--dry-run"},
           {"train", "deck.yaml", "--run-dir", "new", "--resume", "run", "--dry-run"},
           {"train", "deck.yaml", "--run-dir", "new", "--init-from", "run", "--dry-run"},
           {"generate", "--checkpoint", "run", "--prompt", "a", "--max-tokens", "1"},
           {"convert", "run", "exported"},
           {"inspect", "run"}}) {
    SCOPED_TRACE(command[0] + " " + command[command.size() - 2]);
    expect_once(trireme(command, noting));
  }
  expect_once(start_with(noting, "run", "auto", "", {"run.steps=11"}));
}

TEST_F(FaultsOfDisks, WrongPlansAreRefused) {
  for (const auto& [plan, part] : std::vector<std::pair<const char*, const char*>>{
           {"burn:phase=step", "there is no kind 'burn'"},
           {"kill:phase=ckpt.burn", "there is no phase 'ckpt.burn'"},
           {"enospc:phase=step", "there is no phase 'step' for enospc"},
           {"kill:rank=2,phase=step", "rank 2 of a run of 2"},
           {"kill:phase=step,when=2", "there is no key 'when'"},
           {"kill", "either a phase or a time"},
           {"slow:at=3", "only kill and stop"},
           {"kill:phase=step,after=1.5", "not a whole number"},
           {"kill:phase=step,after=x", "neither a number nor a range"}}) {
    const RunResult result = start("run", plan);
    EXPECT_EQ(result.status, 2) << plan;
    EXPECT_THAT(result.err, HasSubstr(part)) << plan;
  }
}

// What never saves is not started for ever.
TEST_F(FaultsOfDisks, IdleStartsAreRefusedOnce) {
  const std::string plan = "kill:phase=step,step=3";
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(start("run", plan).err, HasSubstr("fault: 'kill"));
  }
  const RunResult refused = start("run");
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("'run' has no new step saved in the last 3 starts"));
  const RunResult next = start("run");
  EXPECT_EQ(next.status, 0) << next.err;
  EXPECT_THAT(next.out, HasSubstr("effective training time:"));
}

}  // namespace
}  // namespace trireme::test
