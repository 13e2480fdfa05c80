// The command line as a whole: help, version, wrong arguments, errors on several ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "support/run_binary.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

const std::vector<std::string> kCommands = {"train",    "tokenize", "inspect", "convert",
                                            "generate", "evaluate", "embed",   "fill",
                                            "plan",     "selftest"};

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(CommandLineHelp, NamesEveryCommandAndTheExitStatuses) {
  const RunResult result = trireme({"--help"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, IsEmpty());
  for (const std::string& command : kCommands)
    EXPECT_THAT(result.out, HasSubstr(command));
  EXPECT_THAT(result.out, HasSubstr("75 stopped early"));
}

TEST(CommandLineHelp, OfEachCommand) {
  for (const std::string& command : kCommands) {
    const RunResult result = trireme({command, "--help"});
    EXPECT_EQ(result.status, 0) << command;
    EXPECT_THAT(result.out, HasSubstr("Usage: trireme " + command)) << command;
    EXPECT_THAT(result.err, IsEmpty()) << command;
  }
}

TEST(CommandLineHelp, Version) {
  const RunResult result = trireme({"--version"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, StartsWith("trireme 0."));
}

TEST(CommandLineWrong, NothingToDoShowsHelp) {
  const RunResult result = trireme({});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, HasSubstr("Usage: trireme"));
}

TEST(CommandLineWrong, UnknownCommandIsCorrected) {
  const RunResult result = trireme({"genrate", "--prompt", "x"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("no command 'genrate'; did you mean 'generate'?"));
  for (const std::string& command : kCommands)
    EXPECT_THAT(result.err, HasSubstr(command));
}

TEST(CommandLineWrong, OptionsAreNamed) {
  RunResult result = trireme({"generate", "--prompt", "x"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--checkpoint is required"));
  EXPECT_THAT(result.err, HasSubstr("See trireme generate --help"));

  result = trireme({"generate", "--checkpoint", "x", "--tempreature", "1"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--tempreature"));

  result = trireme({"generate", "--checkpoint", "x", "--top-k", "many"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--top-k"));
  EXPECT_THAT(result.err, HasSubstr("many"));
}

// A result is not written over what it is made from.
TEST(CommandLineWrong, OutputsThatAreInputs) {
  const Scratch scratch;
  const std::string file = scratch / "file";
  const std::string link = scratch / "link";
  spill(file, "model: {layers: 2}\n");
  std::filesystem::create_symlink("file", link);
  for (const std::string& out : {file, link, (scratch / "./file").string()}) {
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"inspect", file, "--json", out},
          {"train", file, "--dry-run", "--json", out},
          {"convert", file, scratch / "new", "--json", out},
          {"jobscript", file, "--machine", "cpu", "--nodes", "1", "--time", "1", "--out",
           out},
          {"plan", file, "--machine", "none", "--devices", "1", "--out", out},
          {"plan", file, "--machine", "none", "--devices", "1", "--json", out},
          {"generate", "--checkpoint", "none", "--prompt-file", file, "--out", out},
          {"generate", "--checkpoint", "none", "--prompt-file", file, "--json", out}}) {
      const RunResult result = trireme(arguments);
      EXPECT_EQ(result.status, 2);
      EXPECT_THAT(result.err, HasSubstr("is also what is read")) << arguments[0];
    }
  }
  EXPECT_EQ(slurp(file), "model: {layers: 2}\n");
}

// Nor over another result of the same command, whether or not it is there already.
TEST(CommandLineWrong, OutputsThatAreOneFile) {
  const Scratch scratch;
  const std::string file = scratch / "deck.yaml", out = scratch / "x";
  spill(file, "model: {layers: 2}\n");
  const std::string same = (scratch / "./x").string();
  for (const std::string& other : {out, same}) {
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"plan", file, "--machine", "none", "--devices", "1",
                                   "--out", out, "--json", other},
          {"generate", "--checkpoint", "none", "--prompt", "a", "--out", out, "--json",
           other},
          {"evaluate", "--checkpoint", "none", "--resume", out, "--json", other},
          {"tokenize", "--train-bpe", "257", "--out", out, file, "--json", other}}) {
      const RunResult result = trireme(arguments);
      EXPECT_EQ(result.status, 2);
      EXPECT_THAT(result.err, HasSubstr("one over the other")) << arguments[0];
    }
  }
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(CommandLineRanks, OnlyTheFirstSpeaks) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"generate", "--help"}, {"--version"}}) {
    const RunResult result = trireme_on_ranks(3, arguments);
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.out, trireme(arguments).out);
  }
  const RunResult wrong = trireme_on_ranks(3, {"genrate"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_EQ(occurrences(wrong.err, "did you mean"), 1u);
}

TEST(CommandLineRanks, AnErrorOfAllRanksIsPrintedOnce) {
  const Scratch scratch;
  const std::string missing = scratch / "missing";
  const RunResult result =
      trireme_on_ranks(3, {"generate", "--checkpoint", missing, "--prompt", "x"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(occurrences(result.err, "there is no checkpoint"), 1u) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("rank")));
}

// They would wait for each other.
TEST(CommandLineRanks, DifferentCommandsAreRefused) {
  const std::string binary = std::getenv("TRIREME_BINARY");
  const char* launcher = std::getenv("TRIREME_MPIEXEC");
  const RunResult result =
      run({launcher == nullptr ? "mpiexec" : launcher, "-n", "1", binary, "selftest", ":",
           "-n", "1", binary, "generate", "--unknown"},
          {.environment = {{"OMP_NUM_THREADS", "1"}}, .timeout = 60});
  EXPECT_EQ(result.status, 2) << result.out << result.err;
  EXPECT_EQ(result.err,
            "trireme: the ranks were started with different arguments: rank 0: selftest; "
            "rank 1: generate --unknown. Start all with the same ones\n");
}

}  // namespace
}  // namespace trireme::test
