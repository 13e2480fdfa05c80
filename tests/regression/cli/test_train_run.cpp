// `trireme train` and its run directory: runs that are there already, directories that
// cannot be written, full disks, losses that are no numbers; --resume and --init-from.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class TrainRun : public Workplace {
 protected:
  // Names in the checkpoint directory that a reader would take for a checkpoint.
  std::vector<std::string> published(const fs::path& directory) const {
    std::vector<std::string> names;
    if (!fs::exists(directory)) return names;
    for (const auto& entry : fs::directory_iterator(directory)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("step_")) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::vector<std::string> published() const {
    return published(run_dir() / "checkpoints");
  }
  std::string log() const { return slurp(run_dir() / "log.txt"); }
  nlohmann::json report() const {
    return nlohmann::json::parse(slurp(run_dir() / "report.json"));
  }
  // What stands beneath this line of the output: a command, which a shell then runs.
  static RunResult run_advice(const std::string& out, const std::string& heading) {
    const std::size_t at = out.find("\n" + heading + "\n");
    EXPECT_NE(at, std::string::npos) << heading << " in\n" << out;
    if (at == std::string::npos) return {};
    std::istringstream lines(out.substr(at + heading.size() + 2));
    std::string command;
    for (std::string line; std::getline(lines, line) && line.starts_with(' ');) {
      command += line + "\n";
    }
    return run({"/bin/sh", "-c", command});
  }
};

TEST_F(TrainRun, LeavesWhatIsPromised) {
  const RunResult result = train();
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* name : {"deck.yaml", "environment.json", "train.jsonl", "train.csv"}) {
    EXPECT_TRUE(fs::exists(run_dir() / name)) << name;
  }
  EXPECT_EQ(published(), (std::vector<std::string>{"step_00000002", "step_00000004"}));
  EXPECT_EQ(fs::read_symlink(newest()), "step_00000004");
  for (const std::string& name : tree(run_dir())) {
    EXPECT_THAT(name, Not(HasSubstr(".tmp-")));
  }
  // The resolved deck makes the same run.
  ASSERT_EQ(
      trireme({"train", run_dir() / "deck.yaml", "--run-dir", scratch_ / "again"}).status,
      0);
  const auto losses = [](const std::string& log) {
    std::vector<std::string> found;
    for (std::size_t at = log.find("\"loss\""); at != std::string::npos;
         at = log.find("\"loss\"", at + 1)) {
      found.push_back(log.substr(at, log.find(',', at) - at));
    }
    return found;
  };
  const auto first = losses(slurp(run_dir() / "train.jsonl"));
  EXPECT_GE(first.size(), 4u);
  EXPECT_EQ(losses(slurp(scratch_ / "again/train.jsonl")), first);
}

// The same in all places: two builds can be told apart long after.
TEST_F(TrainRun, SaysWhatItWasBuiltOf) {
  const RunResult result = train();
  ASSERT_EQ(result.status, 0) << result.err;
  const auto environment = nlohmann::json::parse(slurp(run_dir() / "environment.json"));
  const auto& build = environment.at("build");
  const std::string version = trireme({"--version"}).out;
  for (const char* name : {"compiler", "build_type", "kokkos", "mpi", "hdf5", "blas"}) {
    const std::string value = build.at(name);
    EXPECT_FALSE(value.empty()) << name;
    EXPECT_THAT(version, HasSubstr(value)) << name;
    const bool in_banner = std::string(name) != "build_type";
    EXPECT_TRUE(!in_banner || result.out.find(value) != std::string::npos) << name;
  }
  std::string program = build.at("trireme");
  const std::string git = build.at("git");
  if (git != "unknown") program += " (" + git + ")";
  EXPECT_THAT(version, StartsWith("trireme " + program + "\n"));
  EXPECT_THAT(result.out, StartsWith("Trireme " + program + ": training a GPT\n"));
  EXPECT_THAT(trireme({"inspect", run_dir()}).out, HasSubstr("version " + program));
  // So can be two nodes.
  EXPECT_NE(environment.contains("processors"), environment.contains("devices"));
  for (const std::string processor : environment.value("processors", nlohmann::json())) {
    EXPECT_THAT(result.out, HasSubstr(processor));
  }
}

// A validation of two seconds is in no step's time, and is shown beside it.
TEST_F(TrainRun, RatesAreOfStepsAlone) {
  const RunResult result = train({"run.validate_every=2"},
                                 {"--fault", "slow:phase=validation,step=2,seconds=2"});
  ASSERT_EQ(result.status, 0) << result.err;
  std::map<int, nlohmann::json> steps;
  std::istringstream records(slurp(run_dir() / "train.jsonl"));
  for (std::string line; std::getline(records, line);) {
    const auto record = nlohmann::json::parse(line);
    EXPECT_THAT(record.at("time").get<std::string>(),
                testing::MatchesRegex("20..-..-..T..:..:..[.]...Z"));
    if (record.contains("step")) steps[record.at("step")] = record;
  }
  ASSERT_EQ(steps.size(), 4u);
  const auto seconds_of = [](const nlohmann::json& record) {
    const std::string time = record.at("time");  // 2025-03-01T12:30:05.250Z
    return 3600.0 * std::stod(time.substr(11, 2)) + 60.0 * std::stod(time.substr(14, 2)) +
           std::stod(time.substr(17, 6));
  };
  double elapsed = seconds_of(steps[3]) - seconds_of(steps[2]);
  if (elapsed < 0.0) elapsed += 86400.0;  // midnight
  const double seconds = steps[3].at("seconds"), other = steps[3].at("other_seconds");
  ASSERT_GE(elapsed, 1.9);
  EXPECT_GE(other, 2.0);
  EXPECT_LT(seconds, elapsed - 1.5);
  EXPECT_EQ(steps[3].at("seconds_median"), seconds);  // of one step
  EXPECT_EQ(steps[3].at("loss_mean"), steps[3].at("loss"));
  EXPECT_DOUBLE_EQ(steps[3].at("tokens_per_second"), 64.0 / seconds);
  EXPECT_THAT(result.out, testing::ContainsRegex("\n3/4 .* other work"));
  EXPECT_THAT(result.out, HasSubstr("best of 1 probe: "));
}

// All that was on the terminal, start after start.
TEST_F(TrainRun, KeepsWhatItSays) {
  const RunResult first = train({"run.stop_after=2", "run.sample_every=2"});
  ASSERT_EQ(first.status, 0) << first.err;
  ASSERT_EQ(first.err, "");
  std::istringstream lines(log());
  std::string title, command;
  std::getline(lines, title);
  std::getline(lines, command);
  EXPECT_THAT(title, testing::ContainsRegex("^=== start 1, 20..-..-..T..:..:..[.]...Z, "
                                            ".+, 1 rank ===$"));
  EXPECT_THAT(command, testing::AllOf(HasSubstr("train "), HasSubstr("run.stop_after=2"),
                                      HasSubstr("run.sample_every=2")));
  const std::string before = title + "\n" + command + "\n" + first.out;
  EXPECT_EQ(log(), before);
  EXPECT_THAT(before, HasSubstr("\n2/4  loss "));
  // A kill between two steps loses nothing of what was said before.
  const RunResult killed =
      train({}, {"--resume", "auto", "--fault", "kill:phase=step,step=4"});
  EXPECT_EQ(killed.status, 128 + 9);
  EXPECT_THAT(log(), StartsWith(before + "\n=== start 2, "));
  EXPECT_THAT(log(), HasSubstr("\nwarning: faults are made to happen"));
  EXPECT_THAT(log(), testing::EndsWith(killed.out));
  const RunResult last = train({}, {"--resume", "auto"});
  ASSERT_EQ(last.status, 0) << last.err;
  EXPECT_THAT(log(), HasSubstr("\n\n=== start 3, "));
  EXPECT_THAT(log(), testing::EndsWith(last.out));
}

TEST_F(TrainRun, RecordsTheErrorThatEndsIt) {
  expect_error(train({"optimizer.lr=1e30", "optimizer.clip_norm=0"}), 1, {"step 2"});
  EXPECT_THAT(log(), testing::ContainsRegex("\nerror: step 2: .* not finite"));
}

// Losses of all starts, the tables of the last.
TEST_F(TrainRun, ReportsItsNumbers) {
  std::vector<std::string> settings = {"run.validate_every=2", "run.stop_after=2",
                                       "optimizer.schedule=constant"};
  ASSERT_EQ(train(settings).status, 0);
  nlohmann::json json = report();
  EXPECT_EQ(json.at("start"), 1);
  EXPECT_EQ(json.at("end"), "stop_after");
  EXPECT_EQ(json.at("step"), 2);
  settings.push_back("optimizer.lr=10");  // which makes it worse
  const RunResult result = train(settings, {"--resume", "auto"});
  ASSERT_EQ(result.status, 0) << result.err;
  std::map<int, double> loss;
  std::istringstream records(slurp(run_dir() / "train.jsonl"));
  for (std::string line; std::getline(records, line);) {
    const auto record = nlohmann::json::parse(line);
    if (!record.contains("validation")) continue;
    loss[record["validation"]["step"]] = record["validation"]["loss"];
  }
  ASSERT_EQ(loss.size(), 2u);
  ASSERT_LT(loss[2], loss[4]) << "nothing is shown";
  EXPECT_THAT(result.out,
              HasSubstr(fmt::format("\n  validation  loss {:.4f} at step 4, best {:.4f} "
                                    "at step 2\n",
                                    loss[4], loss[2])));
  EXPECT_THAT(result.out, HasSubstr("\nResult: step 4 of 4, in " + run_dir().string()));
  json = report();
  EXPECT_EQ(json.at("schema_version"), 1);
  EXPECT_EQ(json.at("start"), 2);
  EXPECT_EQ(json.at("end"), "finished");
  EXPECT_EQ(json.at("run_directory"), run_dir().string());
  const auto& losses = json.at("losses");
  EXPECT_EQ(losses.at("training").at("first").at("step"), 1);
  EXPECT_EQ(losses.at("training").at("last").at("step"), 4);
  const auto& set = losses.at("validation").at(0);
  EXPECT_EQ(set.at("name"), "validation");
  EXPECT_EQ(set.at("first").at("nats_per_token"), loss[2]);
  EXPECT_EQ(set.at("best").at("nats_per_token"), loss[2]);
  EXPECT_EQ(set.at("last").at("nats_per_token"), loss[4]);
  EXPECT_EQ(json.at("effective_time").at("starts"), 2);
  const auto& tables = json.at("this_start");
  EXPECT_EQ(tables.at("steps"), 2);
  EXPECT_GT(tables.at("tokens_per_second"), 0.0);
  EXPECT_GT(tables.at("sections").at("forward").at("seconds_max"), 0.0);
  EXPECT_GT(tables.at("memory").at("weights").at("bytes_planned"), 0.0);
  EXPECT_GT(tables.at("memory").at("process").at("bytes_max"), 0.0);
}

// What cannot be written of that ends no training, and is said once.
TEST_F(TrainRun, LogAndReportInTheWay) {
  fs::create_directories(run_dir() / "log.txt");
  fs::create_directories(run_dir() / "report.json/full");
  const RunResult result = train();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(published().back(), "step_00000004");
  EXPECT_THAT(result.err, HasSubstr("log.txt"));
  EXPECT_THAT(result.err, HasSubstr("report.json"));
  std::size_t warnings = 0;
  for (std::size_t at = result.err.find("warning: "); at != std::string::npos;
       at = result.err.find("warning: ", at + 1)) {
    ++warnings;
  }
  EXPECT_EQ(warnings, 2u) << result.err;
}

// The last screen has the commands that go on from there, and they do.
TEST_F(TrainRun, EndsWithCommandsThatWork) {
  const std::string elsewhere = scratch_ / "a run's place";
  const RunResult asked = train({"run.stop_after=3", "data.mask_eod_loss=true"},
                                {"--run-dir", elsewhere, "--resume", "never"});
  ASSERT_EQ(asked.status, 0) << asked.err;
  EXPECT_THAT(asked.out, HasSubstr("stopped after 3 of 4 steps, as asked "
                                   "(run.stop_after: 3).\nResult: step 3 of 4, in "));
  const RunResult finished = run_advice(asked.out, "To go on:");
  ASSERT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("\nResult: step 4 of 4, in " + elsewhere + "\n"));
  const char* heading = "To train on, twice as long for example:";
  const RunResult longer = run_advice(finished.out, heading);
  ASSERT_EQ(longer.status, 0) << longer.err;
  EXPECT_THAT(longer.out, HasSubstr("\nstopped at step 7 of 8, 3 steps further on"));
  const RunResult text = run_advice(longer.out, "To generate text:");
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, StartsWith("Once upon a time"));
  // A finished run says so, too.
  ASSERT_EQ(run_advice(longer.out, "To go on:").status, 0);
  const RunResult nothing = train({"run.steps=8", "data.mask_eod_loss=true"},
                                  {"--run-dir", elsewhere, "--resume", "auto"});
  EXPECT_EQ(nothing.status, 0) << nothing.err;
  EXPECT_THAT(nothing.out, HasSubstr("nothing to train"));
  EXPECT_THAT(nothing.out, HasSubstr("--set run.steps=16"));
}

TEST_F(TrainRun, StoppedEarlyItSaysHowToGoOn) {
  const RunResult stopped =
      train({"run.time_limit=60s", "checkpoint.wall_time_margin=60s"});
  ASSERT_EQ(stopped.status, 75) << stopped.err;
  EXPECT_THAT(stopped.out, testing::ContainsRegex("stopped early: wall-time limit .*\n"
                                                  "Result: step 1 of 4, in "));
  EXPECT_EQ(report().at("end"), "stopped_early");
  EXPECT_THAT(report().at("reason").get<std::string>(), StartsWith("wall-time limit"));
  EXPECT_THAT(stopped.out, HasSubstr("\nTo go on:\n  "));
}

TEST_F(TrainRun, ExistingRunIsRefusedWithAdvice) {
  ASSERT_EQ(train().status, 0);
  const auto before = tree(run_dir());
  const std::string log = slurp(run_dir() / "train.jsonl");
  expect_refusal(train(), {run_dir().string(), "holds a run already", "deck.yaml",
                           "2 checkpoints", "--resume auto", "--run-dir"});
  expect_refusal(train({}, {"--resume", "never"}), {"--resume auto"});
  EXPECT_EQ(tree(run_dir()), before);
  EXPECT_EQ(slurp(run_dir() / "train.jsonl"), log);
}

TEST_F(TrainRun, ResumeAuto) {
  // Where there is nothing it begins, ...
  RunResult result = train({"run.steps=2", "optimizer.decay=4"}, {"--resume", "auto"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(published(), (std::vector<std::string>{"step_00000002"}));
  // ... then goes on, ...
  result = train({"optimizer.decay=4"}, {"--resume", "auto"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(fs::read_symlink(newest()), "step_00000004");
  EXPECT_THAT(result.err, Not(HasSubstr("could not be read")));
  // ... and says which records did not outlive it, but for the one that a kill may tear,
  // ...
  spill(run_dir() / "train.jsonl", slurp(run_dir() / "train.jsonl") + "a\nb\n{\"c");
  result = train({"run.steps=6", "optimizer.decay=6"}, {"--resume", "auto"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("3 lines of '"));
  // ... and has nothing to do once it is finished, but says so.
  const auto before = tree(run_dir());
  result = train({"optimizer.decay=4"}, {"--resume", "auto"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("nothing to train"));
  EXPECT_EQ(tree(run_dir()), before);
}

TEST_F(TrainRun, ResumeFromACheckpoint) {
  ASSERT_EQ(train().status, 0);
  const std::string second = run_dir() / "checkpoints/step_00000002";
  // Branching off into a directory of its own.
  const RunResult branch =
      train({}, {"--resume", second, "--run-dir", scratch_ / "branch"});
  ASSERT_EQ(branch.status, 0) << branch.err;
  EXPECT_EQ(published(scratch_ / "branch/checkpoints"),
            (std::vector<std::string>{"step_00000004"}));
  // In the same directory: what came later is set aside, and said.
  const RunResult again = train({}, {"--resume", second});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("set_aside"));
  EXPECT_TRUE(fs::exists(run_dir() / "checkpoints/set_aside/step_00000004"));
  EXPECT_EQ(fs::read_symlink(newest()), "step_00000004");
}

TEST_F(TrainRun, ResumeFromWhatIsNone) {
  const std::string missing = scratch_ / "nowhere";
  expect_refusal(train({}, {"--resume", missing}), {missing, "checkpoint"});
  fs::create_directories(scratch_ / "void");
  expect_refusal(train({}, {"--resume", scratch_ / "void"}), {"void", "no checkpoint"});
  expect_refusal(train({}, {"--resume", "alway"}), {"alway", "never", "auto"});
  EXPECT_FALSE(fs::exists(run_dir()));
}

TEST_F(TrainRun, ResumeWithAnotherModelIsRefused) {
  ASSERT_EQ(train({"run.steps=2"}).status, 0);
  const auto before = tree(run_dir());
  // Both values are shown.
  expect_refusal(
      train({"model.sequence=32", "run.seed=9", "batch.global=8"}, {"--resume", "auto"}),
      {"model.sequence", "16", "32", "run.seed", "1234", "9", "batch.global", "4", "8"});
  EXPECT_EQ(tree(run_dir()), before);
}

TEST_F(TrainRun, DamagedCheckpoints) {
  ASSERT_EQ(train().status, 0);
  const fs::path shard = run_dir() / "checkpoints/step_00000004/shard_00000.h5";
  std::string content = slurp(shard);
  content[content.size() / 2] ^= 0x20;
  spill(shard, content);
  // The one before is taken, and that is said.
  const RunResult result = train({"run.steps=6"}, {"--resume", "auto"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("damaged"));
  EXPECT_THAT(result.err, HasSubstr("step_00000004"));
  // Named by itself it is refused.
  content = slurp(run_dir() / "checkpoints/step_00000006/shard_00000.h5");
  spill(run_dir() / "checkpoints/step_00000006/shard_00000.h5",
        content.substr(0, content.size() / 2));
  expect_refusal(
      train({"run.steps=8"}, {"--resume", run_dir() / "checkpoints/step_00000006"}),
      {"step_00000006", "shard_00000.h5"});
}

TEST_F(TrainRun, UnwritableDirectory) {
  spill(scratch_ / "file", "");
  const std::string below = scratch_ / "file/run";
  expect_refusal(
      train({}, {"--run-dir", below}),
      {"cannot create the run directory", below, "Not a directory", "--run-dir"});
  expect_refusal(train({}, {"--run-dir", scratch_ / "file"}), {"is a file", "--run-dir"});
  expect_refusal(train({"checkpoint.dir=" + below}),
                 {"cannot create the checkpoint directory", below, "checkpoint.dir"});
  // Nobody may make directories there, not even root.
  expect_refusal(train({}, {"--run-dir", "/proc/trireme/run"}),
                 {"cannot create the run directory", "/proc/trireme/run"});
}

TEST_F(TrainRun, TwoAtOnce) {
  ASSERT_EQ(train({"run.steps=2"}).status, 0);
  const int lock = ::open((run_dir() / ".lock").c_str(), O_RDWR);
  ASSERT_GE(lock, 0);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  expect_error(train({}, {"--resume", "auto"}), 2,
               {"another process trains in", run_dir().string(), "--run-dir"});
  ::close(lock);
}

// Checkpoints that lie elsewhere are found by the run's name, and are one run's only.
TEST_F(TrainRun, CheckpointsElsewhere) {
  const fs::path elsewhere = scratch_ / "elsewhere";
  const std::string setting = "checkpoint.dir=" + elsewhere.string();
  ASSERT_EQ(train({setting, "run.steps=2"}).status, 0);
  EXPECT_EQ(published(elsewhere), (std::vector<std::string>{"step_00000002"}));
  EXPECT_EQ(fs::canonical(run_dir() / "checkpoints"), fs::canonical(elsewhere));
  EXPECT_EQ(trireme({"inspect", run_dir(), "--verify"}).status, 0);
  EXPECT_EQ(trireme({"generate", "--checkpoint", run_dir(), "--max-tokens", "1"}).status,
            0);
  for (const std::string& resume : {std::string("auto"), run_dir().string()}) {
    const RunResult on = train({setting, "run.steps=3"}, {"--resume", resume});
    EXPECT_EQ(on.status, 0) << on.err;
  }
  // The link alone, without what it leads to: said, not begun anew.
  fs::rename(elsewhere, scratch_ / "moved");
  expect_refusal(train({}, {"--resume", "auto"}), {"is a link to", "elsewhere"});
  fs::rename(scratch_ / "moved", elsewhere);
  // The run directory itself may be it.
  EXPECT_EQ(train({"checkpoint.dir=" + (scratch_ / "one").string()},
                  {"--run-dir", scratch_ / "one"})
                .status,
            0);
  // While one run writes there, no other does.
  const int lock = ::open((elsewhere / ".lock").c_str(), O_RDWR);
  ASSERT_GE(lock, 0);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  expect_error(
      train({setting}, {"--resume", "auto"}), 2,
      {"another process writes checkpoints to", elsewhere.string(), "checkpoint.dir"});
  ::close(lock);
}

// The best of the checkpoints that were validated, however old; validation more often
// than that changes nothing.
TEST_F(TrainRun, TheBestCheckpointIsKept) {
  std::vector<std::string> settings = {"run.validate_every=1", "checkpoint.every=4",
                                       "checkpoint.keep=1", "optimizer.schedule=constant",
                                       "run.steps=4"};
  ASSERT_EQ(train(settings).status, 0);
  settings.back() = "run.steps=12";
  settings.push_back("optimizer.lr=10");  // which makes it worse
  const RunResult result = train(settings, {"--resume", "auto"});
  ASSERT_EQ(result.status, 0) << result.err;
  std::map<int, double> loss;
  std::istringstream records(slurp(run_dir() / "train.jsonl"));
  for (std::string line; std::getline(records, line);) {
    const auto record = nlohmann::json::parse(line);
    if (!record.contains("validation")) continue;
    const int step = record["validation"]["step"];
    if (step % 4 == 0) loss[step] = record["validation"]["loss"];
  }
  ASSERT_EQ(loss.size(), 3u);
  const int best = std::min_element(loss.begin(), loss.end(), [](auto& a, auto& b) {
                     return a.second < b.second;
                   })->first;
  ASSERT_LT(best, 12) << "the last is the best: nothing is shown";
  const auto name = [](int step) { return fmt::format("step_{:08}", step); };
  EXPECT_EQ(published(), (std::vector<std::string>{name(best), name(12)}));
  // A branch has a best of its own.
  settings[4] = "run.steps=16";
  settings.push_back("run.dir=" + (scratch_ / "branch").string());
  ASSERT_EQ(train(settings, {"--resume", run_dir()}).status, 0);
  const RunResult shown = trireme({"inspect", scratch_ / "branch"});
  EXPECT_THAT(shown.out, HasSubstr("at step 16"));
}

#ifndef KOKKOS_ENABLE_CUDA  // there the device says so, when memory is taken
TEST_F(TrainRun, WhatDoesNotFitIntoMemoryIsRefused) {
  expect_refusal(train({"model.hidden=262144"}),
                 {"takes", "TiB", "which has", "batch.micro", "--dry-run"});
  EXPECT_FALSE(fs::exists(run_dir()));
}
#endif

// Whoever read the output has gone: the run does not end with them.
TEST_F(TrainRun, OutputThatNobodyReads) {
  const std::string command = "{ \"$0\" \"$@\"; echo $? >status; } | true; test -e " +
                              newest().string() + "/manifest.json";
  std::vector<std::string> arguments = {"/bin/sh", "-c", command,
                                        std::getenv("TRIREME_BINARY")};
  for (const std::string& word : train_arguments({})) arguments.push_back(word);
  EXPECT_EQ(run(arguments, {.directory = scratch_.path()}).status, 0);
  EXPECT_EQ(published().back(), "step_00000004");
  EXPECT_EQ(slurp(scratch_ / "status"), "1\n");  // output was lost
  // What stopped early says that, all the same.
  fs::remove_all(run_dir());
  for (const char* word :
       {"--set", "run.time_limit=60s", "--set", "checkpoint.wall_time_margin=60s"}) {
    arguments.emplace_back(word);
  }
  EXPECT_EQ(run(arguments, {.directory = scratch_.path()}).status, 0);
  EXPECT_EQ(slurp(scratch_ / "status"), "75\n");
}

TEST_F(TrainRun, Preflight) {
  const RunResult result = train({"run.preflight=true"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("preflight: 1 node fit for the run (write "));
  // Where nobody can write is known before, and nothing is left of what was made.
  const RunResult refused =
      train({"run.preflight=true", "checkpoint.dir=/proc/none"}, {"--run-dir", "other"});
  expect_error(refused, 2, {"cannot create the checkpoint directory", "checkpoint.dir"});
  EXPECT_FALSE(fs::exists("other"));
}

// Of two small corpora with the weights 3 and 1: of n samples the first has 3 n / 4, the
// other n / 4, in records, banner and reports, from the beginning of the run also where
// it goes on.
TEST_F(TrainRun, EpochsOfEachCorpusOfABlend) {
  const RunOptions here = {.directory = scratch_.path()};
  // Windows of a corpus' first eight tenths: each of 16 tokens and the one behind them.
  const auto windows = [&](const std::string& name, int words) {
    spill(scratch_ / "text.txt", small_text(words));
    EXPECT_EQ(
        trireme({"tokenize", "--tokenizer", corpus(), "--out", name, "text.txt"}, here)
            .status,
        0);
    EXPECT_EQ(trireme({"inspect", name, "--json", "it.json"}, here).status, 0);
    const auto shown = nlohmann::json::parse(slurp(scratch_ / "it.json"));
    return (shown.at("tokens").get<int>() * 8 / 10 - 1) / 16;
  };
  const int few = windows("few.h5", 60), more = windows("more.h5", 130);
  ASSERT_LT(few, 12) << "the run is to go through it more than once";
  ASSERT_GT(more, few + 4);
  const auto epochs = [&](int samples) {
    return std::vector<double>{samples * 3 / 4.0 / few, samples / 4.0 / more};
  };
  const auto line = [&](int samples) {
    return fmt::format("epochs      few.h5: {:.3g}, more.h5: {:.3g}\n",
                       epochs(samples)[0], epochs(samples)[1]);
  };
  std::vector<std::string> arguments = train_arguments(
      {"data.train=[{path: few.h5, weight: 3}, {path: more.h5, weight: 1}]",
       "data.split=[0.8, 0.2, 0.0]", "optimizer.decay=4", "run.steps=2"});
  const auto expect_reports = [&](const RunResult& result, int samples) {
    ASSERT_EQ(result.status, 0) << result.err;
    // The banner's is what will have been, and so the same.
    const std::size_t banner = result.out.find(line(samples));
    ASSERT_NE(banner, std::string::npos) << line(samples) << "in\n" << result.out;
    EXPECT_LT(banner, result.out.find("Loop time"));
    EXPECT_THAT(result.out.substr(result.out.find("\nResult: ")),
                HasSubstr(line(samples)));
    const auto corpora = report().at("corpora");
    ASSERT_EQ(corpora.size(), 2u);
    EXPECT_EQ(corpora[0].at("path"), "few.h5");
    EXPECT_EQ(corpora[1].at("path"), "more.h5");
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_DOUBLE_EQ(corpora[i].at("epochs"), epochs(samples)[i]);
    }
  };
  expect_reports(trireme(arguments, here), 8);
  arguments.insert(arguments.end(), {"--set", "run.steps=4", "--resume", "auto"});
  expect_reports(trireme(arguments, here), 16);

  int records = 0;
  std::istringstream lines(slurp(run_dir() / "train.jsonl"));
  for (std::string text; std::getline(lines, text);) {
    const auto record = nlohmann::json::parse(text);
    if (!record.contains("step")) continue;
    ++records;
    EXPECT_EQ(record.at("samples"), 4 * records);
    ASSERT_EQ(record.at("epochs").size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_DOUBLE_EQ(record.at("epochs")[i], epochs(4 * records)[i]);
    }
  }
  EXPECT_EQ(records, 4);
}

// Rows that pad the vocabulary have no token to be shown.
TEST_F(TrainRun, SamplesOfAPaddedVocabulary) {
  const RunResult result = train({"model.vocab=5000", "run.sample_every=1"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("step 4: sample: "));
}

// The disk is full: files may have no more than so many bytes, which any user can ask
// for; and a real file system without space, where mounting is allowed.
TEST_F(TrainRun, DiskFull) {
  // The first checkpoint fits into nothing.
  RunResult result = trireme_limited("ulimit -f 100", train_arguments({}));
  expect_error(result, 1, {"checkpoints", "shard_00000.h5", "File too large"});
  EXPECT_TRUE(published().empty());
  EXPECT_FALSE(fs::exists(newest()));

  // With a checkpoint there: it stays, whole and found.
  fs::remove_all(run_dir());
  ASSERT_EQ(train({"run.steps=2", "optimizer.decay=4"}).status, 0);
  result = trireme_limited("ulimit -f 100",
                           train_arguments({"optimizer.decay=4"}, {"--resume", "auto"}));
  expect_error(result, 1, {"step_00000004", "File too large"});
  EXPECT_EQ(published(), (std::vector<std::string>{"step_00000002"}));
  EXPECT_EQ(fs::read_symlink(newest()), "step_00000002");
  EXPECT_EQ(trireme({"inspect", run_dir(), "--verify"}).status, 0);
  // Once there is space again, training goes on where it was.
  result = train({"optimizer.decay=4"}, {"--resume", "auto"});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const std::string& name : tree(run_dir())) {
    EXPECT_THAT(name, Not(HasSubstr(".tmp-")));
  }

  const SmallDisk disk(scratch_ / "disk", 1200 << 10);  // one checkpoint, not two
  if (disk.is_mounted()) {
    result = train({}, {"--run-dir", scratch_ / "disk/run"});
    expect_error(result, 1, {"No space left on device", "free on that file system"});
    EXPECT_EQ(published(scratch_ / "disk/run/checkpoints"),
              (std::vector<std::string>{"step_00000002"}));
  }
}

TEST_F(TrainRun, LossThatIsNoNumber) {
  const RunResult result = train({"optimizer.lr=1e30", "optimizer.clip_norm=0"});
  expect_error(result, 1, {"step 2", "layer", "not finite", "learning rate", "failed"});
  // The state before that step, for study; not a checkpoint of the run.
  EXPECT_TRUE(published().empty());
  ASSERT_EQ(published(run_dir() / "failed"), (std::vector<std::string>{"step_00000001"}));
  const RunResult shown =
      trireme({"inspect", run_dir() / "failed/step_00000001", "--verify"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("optimizer state"));
  const RunResult text =
      trireme({"generate", "--checkpoint", run_dir() / "failed/step_00000001"});
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.err, HasSubstr("did its training diverge?"));
}

// What went wrong is said even where the state cannot be saved.
TEST_F(TrainRun, LossThatIsNoNumberAndNoPlaceForTheState) {
  fs::create_directories(run_dir());
  spill(run_dir() / "failed", "a file");
  const RunResult result = train({"optimizer.lr=1e30", "optimizer.clip_norm=0"});
  expect_error(
      result, 1,
      {"step 2", "layer", "not finite", "could not be saved", "failed", "learning rate"});
  EXPECT_EQ(slurp(run_dir() / "failed"), "a file");
}

// Also "a sequence longer than the model's": its table of positions has no more rows.
TEST_F(TrainRun, InitFrom) {
  ASSERT_EQ(train({"run.steps=2"}).status, 0);
  const auto branch = [&](const std::string& name, const std::string& from,
                          const std::vector<std::string>& overrides) {
    return train(overrides, {"--init-from", from, "--run-dir", scratch_ / name});
  };
  expect_refusal(branch("a", run_dir(), {"model.sequence=32"}),
                 {"step_00000002", "embedding/position/weight", "(16, 32)", "(32, 32)"});
  expect_refusal(branch("b", run_dir(), {"model.vocab=320"}),
                 {"embedding/word/weight", "(300, 32)", "(320, 32)"});
  expect_refusal(branch("c", scratch_ / "nowhere", {}), {"nowhere", "checkpoint"});
  for (const char* name : {"a", "b", "c"}) EXPECT_FALSE(fs::exists(scratch_ / name));
  const RunResult right = branch("d", run_dir(), {"optimizer.lr=1e-2"});
  EXPECT_EQ(right.status, 0) << right.err;
  EXPECT_EQ(published(scratch_ / "d/checkpoints").back(), "step_00000004");
}

}  // namespace
}  // namespace trireme::test
