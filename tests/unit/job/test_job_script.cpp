// `trireme jobscript`'s text: the tree's own job script with settings in it, options of
// the machine and the user in one head, and what is refused.
#include "job/job_script.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/format.hpp"
#include "config/deck_error.hpp"
#include "job/batch_options.hpp"
#include "plan/dry_run.hpp"
#include "report/metrics.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class JobScript : public ::testing::Test {
 protected:
  JobScript() {
    test::spill(deck_, deck_text(""));
    options_ = {.deck = deck_.string(),
                .machine = "cpu",
                .nodes = 3,
                .time = "4:00:00",
                .program = "/opt/trireme/bin/trireme",
                .slurm = slurm(),
                .directory = "/scratch/my runs"};
  }
  static std::string deck_text(const std::string& more) {
    return "model: {layers: 2, hidden: 24, heads: 4, sequence: 16, vocab: 300}\n"
           "data: {train: corpus.h5}\n"
           "batch: {micro: 2, global: 12}\n" +
           more;
  }
  static io::Path slurm() {
    const char* source = std::getenv("TRIREME_SOURCE_DIR");
    return io::Path(source != nullptr ? source : ".") / "slurm";
  }
  std::string refusal() const {
    return test::message_of<InputError>([&] { job_script(options_); });
  }
  static std::string value_of(const std::string& script, const std::string& name) {
    std::string value = "(none)";
    for (const BatchOption& option : batch_options(script, "job")) {
      if (option.name == name) value = option.value;
    }
    return value;
  }

  test::Scratch scratch_;
  io::Path deck_ = scratch_ / "small.yaml";
  JobScriptOptions options_;
};

TEST_F(JobScript, HasTheOptionsOfAllInItsHead) {
  options_.account = "physics";
  options_.partition = "long";
  const std::string script = job_script(options_);
  EXPECT_THAT(script, StartsWith("#!/bin/bash\n#SBATCH --"));
  EXPECT_EQ(value_of(script, "job-name"), "small");
  EXPECT_EQ(value_of(script, "nodes"), "3");
  EXPECT_EQ(value_of(script, "time"), "0-04:00:00");
  EXPECT_EQ(value_of(script, "signal"), "B:USR1@300");
  EXPECT_EQ(value_of(script, "requeue"), "");
  EXPECT_EQ(value_of(script, "ntasks-per-node"), "2");  // the machine's
  EXPECT_EQ(value_of(script, "account"), "physics");
  EXPECT_EQ(value_of(script, "partition"), "long");
  EXPECT_THAT(script, HasSubstr("#SBATCH --chdir=\"/scratch/my runs\"\n"));
  // sbatch reads no options behind the first command.
  const std::size_t head = script.find("\ntrireme=");
  EXPECT_EQ(script.find("\n#SBATCH", head), std::string::npos);
  options_.name = "mine";
  EXPECT_EQ(value_of(job_script(options_), "job-name"), "mine");
}

TEST_F(JobScript, IsTheTreesOwnBehindTheSettings) {
  options_.overrides = {"run.seed=7", "run.dir=it's here"};
  options_.run_dir = "runs/a";
  const std::string script = job_script(options_);
  const std::string own = test::slurp(slurm() / "train.sbatch");
  const std::string job = own.substr(own.find("# --- the job"));
  EXPECT_THAT(script, ::testing::EndsWith(job));
  EXPECT_GT(job.size(), 1000u);
  EXPECT_THAT(script,
              AllOf(HasSubstr("\ntrireme=/opt/trireme/bin/trireme\n"),
                    HasSubstr("\ndecks=(" + deck_.string() + ")\n"),
                    HasSubstr("\noptions=(--set run.seed=7 --set 'run.dir=it'\\''s "
                              "here' --run-dir runs/a \"$@\")"),
                    HasSubstr("\nlauncher=(srun "), Not(HasSubstr("TRIREME_MACHINE")),
                    HasSubstr(test::slurp(slurm() / "functions.sh")),
                    Not(HasSubstr("source \"$home"))));
}

TEST_F(JobScript, WarnsAsEarlyAsTheRunWantsToStop) {
  const auto signal = [&](const std::string& time) {
    options_.time = time;
    return value_of(job_script(options_), "signal");
  };
  EXPECT_EQ(signal("20"), "B:USR1@120");
  EXPECT_EQ(signal("1-0"), "B:USR1@300");
  options_.overrides = {"checkpoint.wall_time_margin=90.5s"};
  EXPECT_EQ(signal("1h"), "B:USR1@91");
  options_.time = "1m";
  EXPECT_THAT(refusal(), AllOf(HasSubstr("a job of 1m00s has no time to train"),
                               HasSubstr("checkpoint.wall_time_margin is 1m3")));
  options_.overrides = {"checkpoint.on_signal=[TERM]"};
  EXPECT_THAT(refusal(), HasSubstr("checkpoint.on_signal has no USR1"));
}

TEST_F(JobScript, ChecksTheDeckForTheRanks) {
  options_.nodes = 2;  // 4 ranks, 12 samples in micro-batches of 2
  EXPECT_THROW(job_script(options_), config::DeckErrors);
  options_.overrides = {"batch.global=16"};
  EXPECT_THAT(job_script(options_), HasSubstr("small on 4 ranks (machine cpu)"));
}

// A job that must fail waits in no queue.
TEST_F(JobScript, RefusesWhatCannotBeTrained) {
  for (const char* text :
       {"model.bias=false", "model.norm=rmsnorm", "parallel.context=2",
        "model.kind=mamba", "model.position=relative", "data.train=none"}) {
    const std::string setting = text;
    options_.overrides = {setting};
    try {
      job_script(options_);
      ADD_FAILURE() << setting;
    } catch (const config::DeckErrors& errors) {
      ASSERT_EQ(errors.errors().size(), 1u) << setting;
      EXPECT_EQ(errors.errors()[0].key, setting.substr(0, setting.find('=')));
      EXPECT_EQ(errors.errors()[0].place, "--set");
    }
  }
}

TEST_F(JobScript, WarnsOfABuildForOtherProcessors) {
  const std::string corpus = "not checked, as it is not there: data.train: corpus.h5";
  std::string said;
  options_.warn = [&](const std::string& text) { said += text; };
  options_.overrides = {"batch.global=48"};
  for (const bool uses_gpus : {false, true}) {
    options_.uses_gpus = uses_gpus;
    for (const auto& [machine, has_gpus] :
         {std::pair{"cpu", false}, {"perlmutter", true}, {"selene", true}}) {
      options_.machine = machine;
      said.clear();
      job_script(options_);
      if (uses_gpus == has_gpus) {
        EXPECT_EQ(said, corpus) << machine;
      } else {
        EXPECT_THAT(said, HasSubstr(std::string("built for ") +
                                    (uses_gpus ? "GPUs" : "CPUs") + ", and "))
            << machine;
        EXPECT_THAT(said, HasSubstr("'" + std::string(machine) + "'"));
      }
    }
  }
  options_.uses_gpus = false;
  for (const char* option : {"gpus=8", "gpus-per-task=1", "gres=gpu:a100:4"}) {
    options_.machine = (scratch_ / "own.sh").string();
    test::spill(options_.machine,
                std::string("#SBATCH --ntasks-per-node=1\n#SBATCH --") + option + "\n");
    said.clear();
    job_script(options_);
    EXPECT_THAT(said, HasSubstr("built for CPUs")) << option;
  }
}

TEST_F(JobScript, KnowsTheMachines) {
  for (const char* name : {"cpu", "perlmutter", "selene"}) {
    options_.machine = name;
    options_.overrides = {"batch.global=48"};
    EXPECT_THAT(job_script(options_), HasSubstr("\nlauncher=(srun ")) << name;
    options_.machine = (slurm() / "machines" / name).string();
    EXPECT_THAT(job_script(options_), HasSubstr("\nlauncher=(srun ")) << name;
  }
  options_.machine = "perlmuter";
  EXPECT_THAT(
      refusal(),
      AllOf(StartsWith("there is no machine file 'perlmuter'. Those that come with "
                       "the program are cpu, perlmutter, selene (in '"),
            HasSubstr("copy the one most like it")));
  options_.machine = (scratch_ / "own.sh").string();
  test::spill(options_.machine, "launcher=(mpiexec)\n");
  EXPECT_THAT(refusal(), HasSubstr("own.sh' has no line '#SBATCH --ntasks-per-node=N'"));
  test::spill(options_.machine, "#SBATCH --ntasks-per-node=some\n");
  EXPECT_THAT(refusal(), HasSubstr("has no line '#SBATCH --ntasks-per-node=N'"));
}

// Each would be a command of the script, or a line that sbatch cannot read.
TEST_F(JobScript, RefusesControlCharacters) {
  const JobScriptOptions good = options_;
  const auto refusal_with = [&](auto change) {
    options_ = good;
    change(options_);
    return refusal();
  };
  const std::string bad = "x\ntouch PWNED";
  const auto has = [](const std::string& what) {
    return AllOf(StartsWith(what), HasSubstr("\"x\\x0atouch PWNED\""),
                 HasSubstr("control character (byte 0x0a, the 2. byte)"));
  };
  EXPECT_THAT(refusal_with([&](auto& o) { o.name = bad; }), has("--name "));
  EXPECT_THAT(refusal_with([&](auto& o) { o.account = bad; }), has("--account "));
  EXPECT_THAT(refusal_with([&](auto& o) { o.partition = bad; }), has("--partition "));
  EXPECT_THAT(refusal_with([&](auto& o) { o.machine = bad; }), has("--machine "));
  EXPECT_THAT(refusal_with([&](auto& o) { o.run_dir = bad; }), has("--run-dir "));
  EXPECT_THAT(refusal_with([&](auto& o) { o.overrides = {bad}; }), has("--set "));
  EXPECT_THAT(refusal_with([&](auto& o) { o.deck = bad; }), has("the deck's path "));
  EXPECT_THAT(refusal_with([&](auto& o) { o.program = bad; }),
              has("the program's path "));
  EXPECT_THAT(refusal_with([&](auto& o) { o.directory = bad; }),
              has("the working directory "));
  for (const char c : {'\t', '\r', '\x1b', '\x7f', '\0'}) {
    EXPECT_THAT(refusal_with([&](auto& o) { o.name = std::string("a") + c; }),
                HasSubstr("the 2. byte)"));
  }
  EXPECT_THAT(refusal_with([&](auto& o) { o.name = "a/b"; }),
              StartsWith("'a/b' cannot be the name of a job"));
  EXPECT_THAT(refusal_with([&](auto& o) { o.name = std::string(201, 'n'); }),
              HasSubstr("at most 200 bytes"));
  const io::Path machine = scratch_ / "own.sh";
  test::spill(machine, "#SBATCH --ntasks-per-node=2\r\nlauncher=(srun)\r\n");
  EXPECT_THAT(
      refusal_with([&](auto& o) { o.machine = machine.string(); }),
      HasSubstr("own.sh:1: the line has a control character (byte 0x0d: a file with "
                "the line ends of Windows)"));
}

// Of the machine file, too, and as sbatch reads them.
TEST_F(JobScript, QuotesOptions) {
  options_.machine = (scratch_ / "own.sh").string();
  test::spill(options_.machine,
              "#SBATCH -n 4 --ntasks-per-node 2\n"
              "#SBATCH --comment='say \"hi\" # $(x)'\n"
              "launcher=(srun)\n");
  options_.name = "it's \"a\" \\ #1";
  options_.account = "a\"b c";
  options_.directory = "/scratch/\"my\" runs";
  const std::string script = job_script(options_);
  EXPECT_EQ(value_of(script, "job-name"), options_.name);
  EXPECT_EQ(value_of(script, "account"), options_.account);
  EXPECT_EQ(value_of(script, "chdir"), options_.directory.string());
  EXPECT_EQ(value_of(script, "comment"), "say \"hi\" # $(x)");
  EXPECT_EQ(value_of(script, "ntasks"), "4");
  EXPECT_THAT(script, HasSubstr("#SBATCH --account=\"a\\\"b c\"\n"));
}

TEST_F(JobScript, SaysWhatThePlanTakes) {
  const std::string script = job_script(options_);
  const plan::DryRun plan = plan::dry_run({.deck = options_.deck, .ranks = 6});
  ASSERT_EQ(plan.stages.size(), 1u);
  const auto memory = static_cast<double>(plan.stages[0].memory.total());
  EXPECT_THAT(script, HasSubstr("\n# - memory: " + format_bytes(memory) +
                                " of each rank, " + format_bytes(2 * memory) +
                                " of a node; MPI and other libraries come on top\n"));
  EXPECT_THAT(script, HasSubstr("\n# - time: not known: 1,000 steps of " +
                                format_count(plan.hardware_flops) + " FLOPs."));

  options_.machine = (scratch_ / "own.sh").string();
  const auto with_peak = [&](const std::string& peak) {
    test::spill(options_.machine, "#SBATCH --ntasks-per-node=2\n#PEAK bf16=1e30 " + peak +
                                      "\nlauncher=(srun)\n");
  };
  with_peak("fp32=2e6");  // of each of six ranks
  const double seconds = 1000 * plan.hardware_flops / 12e6;
  EXPECT_THAT(job_script(options_),
              AllOf(HasSubstr("\n# - time, not measured: 1,000 steps of "),
                    HasSubstr(" FLOPs, at the 12.0 MFLOP/s that 6 ranks can do at most, "
                              "take\n#   " +
                              format_duration(seconds) + "; runs reach a part of")));
  with_peak("fp32=fast");
  EXPECT_THAT(refusal(),
              HasSubstr("own.sh:2: 'fp32=fast' is not a precision and FLOP/s"));
}

// By the run itself, where it has begun on the same grid.
TEST_F(JobScript, TellsTheTimeOfARunThatHasBegun) {
  const io::Path run = scratch_ / "run";
  std::filesystem::create_directories(run);
  options_.run_dir = run.string();
  options_.time = "2m";
  const auto write = [&](const std::string& grid) {
    test::spill(run / "environment.json", "{\"ranks\": 6, \"grid\": \"" + grid + "\"}");
  };
  std::string log;
  report::StepRecord record;
  for (const double seconds : {50.0, 50.0, 9.0, 0.5, 0.25, 0.75}) {
    record.step += 10;
    record.seconds = seconds;
    log += to_json(record) + "\n";
  }
  test::spill(run / "train.jsonl", log);
  // The last start's own records, but the first of them.
  test::spill(run / "starts.jsonl",
              "{\"start\":1,\"event\":\"began\",\"time\":1,\"job\":\"\",\"step\":0}\n"
              "{\"start\":2,\"event\":\"began\",\"time\":2,\"job\":\"\",\"step\":20}\n");
  write("tensor 1 x context 1 x data 6 x pipeline 1");
  EXPECT_THAT(
      job_script(options_),
      HasSubstr("\n# - time: 940 steps left, 500ms each as the run measured on this "
                "grid (3 records): 7m50s,\n"
                "#   validations and saves not counted; 4 jobs like this one\n"));
  options_.overrides = {"run.stop_after=20"};
  EXPECT_THAT(job_script(options_), HasSubstr("20 steps left, 500ms each as "));
  EXPECT_THAT(job_script(options_), HasSubstr("not counted; within this job\n"));
  write("tensor 2 x context 1 x data 3 x pipeline 1");
  EXPECT_THAT(job_script(options_), HasSubstr("# - time: not known: 20 steps of"));
}

TEST_F(JobScript, KeepsTheModulesOfTheShellThatWritesIt) {
  options_.modules = "gcc/12.2:mpich/4.1:it's";
  const std::string line =
      "\n[[ -v TRIREME_MODULES ]] || TRIREME_MODULES='gcc/12.2 mpich/4.1 it'\\''s'  # ";
  EXPECT_THAT(job_script(options_), HasSubstr(line));
  options_.machine = "perlmutter";  // knows its own
  options_.overrides = {"batch.global=48"};
  EXPECT_THAT(job_script(options_), AllOf(Not(HasSubstr("-v TRIREME_MODULES")),
                                          HasSubstr("\nmodule load PrgEnv-gnu ")));
}

TEST_F(JobScript, KeepsPathsThatBeginWithADashApartFromOptions) {
  options_.run_dir = "-runs";
  EXPECT_THAT(job_script(options_), HasSubstr("(--run-dir ./-runs \"$@\")"));
}

TEST_F(JobScript, RefusesTimes) {
  for (const char* time : {"", "soon", "4:00:00:00", "-1", "0:30", "30s", "9999d"}) {
    options_.time = time;
    EXPECT_THAT(refusal(),
                StartsWith("--time '" + std::string(time) + "' is not how long"))
        << time;
  }
}

}  // namespace
}  // namespace trireme::job
