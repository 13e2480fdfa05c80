// What is printed fits a terminal of 80 columns: help, banner, progress, tables, results
// and advice. A path or a word that cannot be broken may stand alone on a longer line.
#include <fcntl.h>
#include <pty.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/format.hpp"
#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

void expect_fits(const std::string& text) {
  // One word, or an option with its quoted value.
  const testing::Matcher<const std::string&> one_piece =
      testing::ContainsRegex(R"(^ *(--[a-z-]+ '.*'|[^ ]+)( \\)?$)");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (display_width(line) <= 80) continue;
    EXPECT_THAT(line, one_piece);
  }
}

class Screens : public Workplace {
 protected:
  // Two validation sets, samples, a resumed start: all that a run can say.
  std::vector<std::string> settings() {
    return {"run.validate_every=2", "run.sample_every=2", "run.stop_after=2",
            "data.validation={a set of some length: " + corpus().string() +
                ", another: " + corpus().string() + "}"};
  }
};

TEST_F(Screens, Help) {
  const RunResult all = trireme({"--help"});
  ASSERT_EQ(all.status, 0);
  expect_fits(all.out);
  expect_fits(trireme({"--version"}).out);
  int commands = 0;
  for (const char* name :
       {"train", "tokenize", "inspect", "convert", "generate", "evaluate", "embed",
        "fill", "jobscript", "plan", "selftest"}) {
    SCOPED_TRACE(name);
    EXPECT_THAT(all.out, HasSubstr(std::string("\n  ") + name + " "));
    const RunResult help = trireme({name, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_THAT(help.out, HasSubstr("Usage: trireme"));
    expect_fits(help.out);
    ++commands;
  }
  // No command is left out here.
  std::size_t listed = 0;
  std::istringstream lines(all.out.substr(all.out.find("Subcommands:")));
  for (std::string line; std::getline(lines, line);) {
    listed += line.size() > 2 && line.starts_with("  ") && line[2] != ' ' ? 1 : 0;
  }
  EXPECT_EQ(listed, static_cast<std::size_t>(commands));
}

// All that have one: whoever adds such a script need not name it here.
TEST_F(Screens, HelpOfTheScripts) {
  int scripts = 0;
  for (const char* directory : {".", "tools", "slurm", "perf"}) {
    for (const auto& entry : fs::directory_iterator(source_file(directory))) {
      const auto permissions = entry.status().permissions();
      if (!entry.is_regular_file() ||
          (permissions & fs::perms::owner_exec) == fs::perms::none) {
        continue;
      }
      const std::string text = slurp(entry.path());
      if (!text.starts_with("#!") || (text.find("--help") == std::string::npos &&
                                      text.find("argparse") == std::string::npos)) {
        continue;
      }
      SCOPED_TRACE(entry.path());
      // As wide as the screen: argparse asks.
      const RunResult help =
          run({entry.path(), "--help"}, {.environment = {{"COLUMNS", "80"}}});
      EXPECT_EQ(help.status, 0) << help.err;
      EXPECT_THAT(help.out, HasSubstr(entry.path().filename().string()));
      expect_fits(help.out);
      ++scripts;
    }
  }
  EXPECT_GE(scripts, 7);
}

TEST_F(Screens, Training) {
  const RunResult first = train(settings());
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("\n  validation  a set of some length: "));
  expect_fits(first.out);
  const RunResult second = train(settings(), {"--resume", "auto"});
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("restarted in "));
  expect_fits(second.out);
  expect_fits(train(settings(), {"--resume", "auto"}).out);
}

// As the terminal gets it: what erases a line begins a new one here.
TEST_F(Screens, TrainingOnATerminal) {
  winsize size = {};
  size.ws_col = 80;
  size.ws_row = 24;
  int master = -1, slave = -1;
  if (::openpty(&master, &slave, nullptr, nullptr, &size) != 0) {
    std::puts("NOT RUN: no pseudo-terminals here (/dev/pts is not mounted)");
    return;
  }
  const std::string name = ::ttyname(slave);
  std::string shown;
  std::atomic<bool> is_over = false;
  ::fcntl(master, F_SETFL, O_NONBLOCK);
  std::thread reader([&] {
    char buffer[4096];
    for (bool last = false; !last;) {
      last = is_over;
      for (ssize_t got; (got = ::read(master, buffer, sizeof buffer)) > 0;) {
        shown.append(buffer, static_cast<std::size_t>(got));
      }
      if (!last) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  std::vector<std::string> command = {"/bin/sh", "-c", "exec \"$0\" \"$@\" >" + name,
                                      std::getenv("TRIREME_BINARY")};
  for (const std::string& word : train_arguments(settings())) command.push_back(word);
  const RunResult result =
      run(command,
          {.environment = {{"TERM", "xterm"}, {"COLUMNS", "80"}, {"LC_ALL", "C.UTF-8"}}});
  is_over = true;
  reader.join();
  ::close(master);
  ::close(slave);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(shown, HasSubstr("\x1b[K"));
  for (char& c : shown) c = c == '\r' ? '\n' : c;
  EXPECT_THAT(shown, HasSubstr("2/4 "));
  EXPECT_THAT(shown, HasSubstr("To go on:"));
  expect_fits(shown);
}

TEST_F(Screens, Results) {
  std::vector<std::string> dry = train_arguments(settings(), {"--dry-run"});
  expect_fits(trireme(dry).out);
  dry.insert(dry.end(), {"--ranks", "4", "--set", "parallel.pipeline=2", "--set",
                         "parallel.tensor=2", "--set", "batch.ramp_up.start=2"});
  expect_fits(trireme(dry).out);
  ASSERT_EQ(train({"run.steps=2"}).status, 0);
  for (const fs::path& path : {corpus(), run_dir(), newest()}) {
    const RunResult shown = trireme({"inspect", path, "--verify"});
    EXPECT_EQ(shown.status, 0) << shown.err;
    expect_fits(shown.out);
  }
  const RunResult evaluated =
      trireme({"evaluate", "--checkpoint", run_dir(), "--data", corpus()});
  EXPECT_EQ(evaluated.status, 0) << evaluated.err;
  expect_fits(evaluated.out);
  expect_fits(trireme({"selftest"}).out);
}

// The text in the script, with its names filled in.
TEST_F(Screens, AdviceOfTheQuickstart) {
  for (const std::string model : {"gpt", "bert", "t5"}) {
    const RunResult advice =
        run({"/bin/bash", "-c",
             "bold='' plain='' model=$1; eval \"$(sed -n -e "
             "'/^trireme=/p;/^name=/p;/^\\[\\[ $model == gpt/p' -e "
             "'/^deck=/p;/^data=/p;/^run=/p;/^build=/p' -e "
             "'/^more_of_kind()/,/^}/p;/^next_steps()/,/^}/p' \"$0\")\"; next_steps",
             source_file("quickstart"), model});
    ASSERT_EQ(advice.status, 0) << advice.err;
    EXPECT_THAT(advice.out, HasSubstr("What to look at next"));
    const std::string run = model == "gpt" ? "quickstart" : "quickstart-" + model;
    EXPECT_THAT(advice.out, HasSubstr("runs/" + run + "/train.jsonl"));
    EXPECT_THAT(advice.out, HasSubstr("inputs/" + run + ".yaml"));
    expect_fits(advice.out);
  }
  const RunResult help = run({"/bin/bash", source_file("quickstart"), "--help"});
  EXPECT_THAT(help.out, HasSubstr("./quickstart --again"));
  expect_fits(help.out);
}

}  // namespace
}  // namespace trireme::test
