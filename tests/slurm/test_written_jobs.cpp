// What `trireme jobscript` writes, with hostile names and values: bash reads it, no value
// becomes a command, and every byte arrives where it was meant for. sbatch and srun are
// played by scripts that note what they are given; a real sbatch reads such a script in
// test_jobs.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "slurm/stand_in.hpp"
#include "support/run_binary.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

// Commands wherever a quote is missing, blanks, what globs and expands, and bytes that
// are not UTF-8.
constexpr const char* kHostile =
    "it's \"q\" $(touch PWNED) `touch PWNED` ; touch PWNED & #1 \\ * ~ {a,b} !x \xfc";

Words noted_words(const fs::path& file) {
  std::istringstream in(slurp(file));
  Words words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  return words;
}

class WrittenJobs : public ::testing::Test {
 protected:
  WrittenJobs() {
    fs::create_directories(directory_);
    fs::create_directories(scratch_ / "bin");
    spill(directory_ / deck_,
          "model: {layers: 2, hidden: 24, heads: 4, sequence: 16, vocab: 300}\n"
          "data: {train: corpus.h5}\n"
          "batch: {micro: 2, global: 12}\n");
    spill(directory_ / "machine $(touch PWNED)'.sh",
          "#SBATCH --ntasks-per-node=3\n"
          "#SBATCH --comment='say \"hi\" $(touch PWNED) # all'\n"
          "launcher=(srun --kill-on-bad-exit=1)\n");
    // Options by the rules of sbatch, which are those of shlex for what we write.
    spill_program(
        scratch_ / "bin/sbatch",
        "#!/usr/bin/env python3\n"
        "import os, shlex, sys\n"
        "options = {}\n"
        "with open(sys.argv[1], encoding='utf-8', errors='surrogateescape') as f:\n"
        "  for line in f:\n"
        "    if not line.startswith('#'): break\n"
        "    if not line.startswith('#SBATCH '): continue\n"
        "    for word in shlex.split(line[8:], comments=True):\n"
        "      name, _, value = word.partition('=')\n"
        "      options[name] = value\n"
        "with open(os.environ['NOTES'] + '/sbatch', 'wb') as f:\n"
        "  for name, value in options.items():\n"
        "    f.write(os.fsencode(name + '=' + value) + b'\\0')\n"
        "script = os.path.abspath(sys.argv[1])\n"
        "os.chdir(options['--chdir'])\n"
        "os.environ['SLURM_JOB_NAME'] = options['--job-name']\n"
        "os.execvp('bash', ['bash', script] + sys.argv[2:])\n");
    spill_program(
        scratch_ / "bin/srun",
        "#!/bin/bash\nprintf '%s\\0' \"$@\" >\"$NOTES/srun\"\npwd >\"$NOTES/pwd\"\n");
    spill_program(scratch_ / "bin/scontrol", "#!/bin/bash\n");
  }

  RunResult in_directory(Words command) const {
    const std::string notes = scratch_.path().string();
    return run(command, {.environment = {{"PATH", notes + "/bin:" + std::getenv("PATH")},
                                         {"NOTES", notes},
                                         {"SLURM_JOB_ID", "4711"},
                                         {"SLURM_JOB_NODELIST", "node7"}},
                         .directory = directory_.string()});
  }
  RunResult write(const Words& more) const {
    Words command = {std::getenv("TRIREME_BINARY"),
                     "jobscript",
                     deck_,
                     "--machine",
                     "./machine $(touch PWNED)'",
                     "--nodes",
                     "2",
                     "--time",
                     "1h"};
    command.insert(command.end(), more.begin(), more.end());
    return in_directory(command);
  }
  void expect_nothing_ran() const {
    for (const auto& entry : fs::recursive_directory_iterator(scratch_.path())) {
      EXPECT_NE(entry.path().filename(), "PWNED");
    }
  }

  Scratch scratch_;
  fs::path directory_ = scratch_ / kHostile;
  std::string sbatch_ = (scratch_ / "bin/sbatch").string();
  std::string deck_ = std::string("deck ") + kHostile + ".yaml";
};

TEST_F(WrittenJobs, BringEveryByteToTheRanks) {
  const std::string hostile = kHostile;
  // A deck's path has its dollar signs twice.
  std::string set = "checkpoint.dir=" + hostile;
  set.insert(set.find('$'), "$");
  const RunResult written = write({"--out", "job.sh", "--set", set, "--set", "run.seed=7",
                                   "--run-dir", "run/" + hostile, "--name", hostile,
                                   "--account", hostile, "--partition", hostile});
  ASSERT_EQ(written.status, 0) << written.err;
  EXPECT_EQ(in_directory({"bash", "-n", "job.sh"}).status, 0);

  const RunResult job =
      in_directory({sbatch_, "job.sh", "--set", "run.log_every=" + hostile});
  EXPECT_EQ(job.status, 0) << job.out << job.err;
  EXPECT_THAT(job.out, AllOf(HasSubstr(hostile + ": job 4711"), HasSubstr(": done\n")));
  EXPECT_EQ(slurp(scratch_ / "pwd"), directory_.string() + "\n");
  const Words words = noted_words(scratch_ / "srun");
  const Words wanted = {"--kill-on-bad-exit=1",
                        std::getenv("TRIREME_BINARY"),
                        "train",
                        deck_,
                        "--resume",
                        "auto",
                        "--set",
                        set,
                        "--set",
                        "run.seed=7",
                        "--run-dir",
                        "run/" + hostile,
                        "--set",
                        "run.log_every=" + hostile};
  EXPECT_THAT(words, ElementsAreArray(wanted));
  const Words options = noted_words(scratch_ / "sbatch");
  for (const std::string& option :
       {"--job-name=" + hostile, "--account=" + hostile, "--partition=" + hostile,
        "--chdir=" + directory_.string(), std::string("--ntasks-per-node=3"),
        std::string("--comment=say \"hi\" $(touch PWNED) # all")}) {
    EXPECT_THAT(options, ::testing::Contains(option));
  }
  expect_nothing_ran();
}

// Where the user gives no name, a job has the deck's.
TEST_F(WrittenJobs, OfADeckWithAHostileName) {
  const RunResult written = write({"--out", "job.sh"});
  ASSERT_EQ(written.status, 0) << written.err;
  const RunResult job = in_directory({sbatch_, "job.sh"});
  EXPECT_EQ(job.status, 0) << job.out << job.err;
  EXPECT_THAT(noted_words(scratch_ / "sbatch"),
              ::testing::Contains(std::string("--job-name=deck ") + kHostile));
  const Words words = noted_words(scratch_ / "srun");
  ASSERT_GT(words.size(), 3u);
  EXPECT_EQ(words[3], deck_);
  expect_nothing_ran();
}

TEST_F(WrittenJobs, AreNotWrittenWithLinesInAValue) {
  const std::string lines = "x\ntouch PWNED";
  spill(directory_ / (lines + ".yaml"), slurp(directory_ / deck_));
  const std::string deck = deck_;
  for (const Words& options : {Words{"--name", lines},
                               {"--account", lines},
                               {"--partition", lines},
                               {"--run-dir", lines},
                               {"--set", "checkpoint.dir=" + lines},
                               {"--machine", lines}}) {
    Words command = {"--out", "job.sh"};
    command.insert(command.end(), options.begin(), options.end());
    const RunResult refused = write(command);
    EXPECT_EQ(refused.status, 2) << options[0];
    EXPECT_FALSE(fs::exists(directory_ / "job.sh")) << options[0];
  }
  deck_ = lines + ".yaml";
  const RunResult refused = write({"--out", "job.sh"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("\"x\\x0atouch PWNED.yaml\""),
                    HasSubstr("control character (byte 0x0a, the 2. byte)")));
  expect_nothing_ran();
}

}  // namespace
}  // namespace trireme::test
