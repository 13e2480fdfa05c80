// The terminal: lines in a file, and the bar as a real (pseudo-)terminal receives it,
// played back on a small model of a screen.
#include "report/progress.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <sstream>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"

namespace trireme::report {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

ProgressState state_of(std::int64_t step) {
  ProgressState state;
  state.step = step;
  state.loss = 4.8123;
  state.tokens_per_second = 12345;
  state.peak_share = 0.614;
  state.next_checkpoint = (step / 500 + 1) * 500;
  return state;
}

// Bare roots (chroot) may have none: tests of terminals say so and end.
bool has_terminals() {
  const int descriptor = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (descriptor < 0 || ::ptsname(descriptor) == nullptr ||
      ::access(::ptsname(descriptor), F_OK) != 0) {
    std::puts("NOT RUN: no pseudo-terminals here (/dev/pts is not mounted)");
    if (descriptor >= 0) ::close(descriptor);
    return false;
  }
  ::close(descriptor);
  return true;
}

// A stream, what was written to it, and a clock that the test moves.
class Screen {
 public:
  // A file.
  Screen() {
    if (::pipe(descriptors_) != 0) std::perror("pipe");
    stream_ = ::fdopen(descriptors_[1], "w");
  }
  // A terminal of so many columns.
  explicit Screen(int columns) : columns_(columns) {
    winsize size = {};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 24;
    EXPECT_EQ(::openpty(&descriptors_[0], &descriptors_[1], nullptr, nullptr, &size), 0)
        << std::strerror(errno);
    stream_ = ::fdopen(descriptors_[1], "w");
  }
  ~Screen() {
    std::fclose(stream_);
    ::close(descriptors_[0]);
  }
  std::FILE* stream() { return stream_; }
  void resize(int columns) {
    winsize size = {};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 24;
    ::ioctl(descriptors_[1], TIOCSWINSZ, &size);
  }

  // All that has been written since the last call.
  std::string bytes() {
    std::fflush(stream_);
    ::fcntl(descriptors_[0], F_SETFL, O_NONBLOCK);
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = ::read(descriptors_[0], buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
  }

  // The lines on the screen after the bytes: carriage return, line feed, erasing to the
  // end of the line; colours are ignored. A line that is too long wraps, and is marked.
  std::vector<std::string> lines() {
    std::vector<std::vector<std::string>> rows(1);
    std::size_t column = 0;
    const std::string text = bytes();
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\r') {
        column = 0;
      } else if (text[i] == '\n') {
        rows.emplace_back();
        column = 0;
      } else if (text.compare(i, 3, "\x1b[K") == 0) {
        rows.back().resize(std::min(column, rows.back().size()));
        i += 2;
      } else if (text[i] == '\x1b') {
        while (text[i] != 'm') ++i;
      } else {
        std::string character(1, text[i]);
        while (i + 1 < text.size() && (text[i + 1] & 0xc0) == 0x80)
          character += text[++i];
        if (rows.back().size() <= column) rows.back().resize(column + 1, " ");
        rows.back()[column++] = character;
      }
    }
    std::vector<std::string> result;
    for (const auto& row : rows) {
      std::string line;
      for (const auto& character : row) line += character;
      if (columns_ > 0 && row.size() >= static_cast<std::size_t>(columns_))
        line += "[WRAPS]";
      result.push_back(line);
    }
    return result;
  }

  Progress::Options options(std::int64_t steps) {
    Progress::Options options;
    options.steps = steps;
    options.terminal.redraws = columns_ > 0;
    options.terminal.unicode = true;
    options.terminal.columns = columns_ > 0 ? columns_ : 80;
    options.clock = [this] { return now; };
    return options;
  }

  double now = 1000.0;

 private:
  int descriptors_[2] = {-1, -1};
  int columns_ = 0;
  std::FILE* stream_ = nullptr;
};

TEST(Progress, PlainLinesInAFile) {
  Screen screen;
  {
    Progress progress(screen.stream(), screen.options(25));
    for (std::int64_t step = 1; step <= 25; ++step) {
      progress.update(state_of(step));
      progress.note("validating");  // for terminals
      if (step == 15) progress.message("validation: loss 4.7");
      screen.now += 2.0;
    }
  }
  EXPECT_THAT(screen.lines(),
              ElementsAre(" 1/25  loss 4.812  12.3k tok/s  61% peak",
                          "10/25  loss 4.812  12.3k tok/s  61% peak  30s left",
                          "validation: loss 4.7",
                          "20/25  loss 4.812  12.3k tok/s  61% peak  10s left",
                          "25/25  loss 4.812  12.3k tok/s  61% peak", ""));
}

// The same lines and messages, whatever the stream shows of them.
TEST(Progress, IsRecordedAsLines) {
  if (!has_terminals()) return;
  for (const bool is_terminal : {false, true}) {
    Screen narrow(40), file;
    Screen& screen = is_terminal ? narrow : file;
    std::vector<std::string> recorded;
    Progress::Options options = screen.options(25);
    options.record = [&](const std::string& text) { recorded.push_back(text); };
    Progress progress(screen.stream(), options);
    for (std::int64_t step = 1; step <= 25; ++step) {
      progress.update(state_of(step));
      progress.note("validating");
      if (step == 15) progress.message("validation: loss 4.7");
      screen.now += 2.0;
    }
    progress.finish();
    EXPECT_THAT(recorded,
                ElementsAre(" 1/25  loss 4.812  12.3k tok/s  61% peak",
                            "10/25  loss 4.812  12.3k tok/s  61% peak  30s left",
                            "validation: loss 4.7",
                            "20/25  loss 4.812  12.3k tok/s  61% peak  10s left",
                            "25/25  loss 4.812  12.3k tok/s  61% peak"));
  }
}

TEST(Progress, OtherWorkIsSaidWhereItTookTime) {
  Screen screen;
  Progress progress(screen.stream(), screen.options(3));
  for (std::int64_t step = 1; step <= 3; ++step) {
    ProgressState state = state_of(step);
    state.other_share = step == 1 ? 0.43 : 0.0099;
    progress.update(state);
  }
  EXPECT_THAT(screen.lines(),
              ElementsAre("1/3  loss 4.812  12.3k tok/s  61% peak  43% other work",
                          "3/3  loss 4.812  12.3k tok/s  61% peak", ""));
}

TEST(Progress, PlainLinesSayWhenTheNextCheckpointComes) {
  Screen screen;
  Progress progress(screen.stream(), screen.options(5000));
  for (const std::int64_t step : {1238, 1239, 1240}) {
    progress.update(state_of(step));
    screen.now += 0.1;
  }
  EXPECT_THAT(screen.lines()[1],
              "1240/5000  loss 4.812  12.3k tok/s  61% peak  "
              "6m16s left  save in 26s");
}

TEST(Progress, BarOnATerminal) {
  if (!has_terminals()) return;
  Screen screen(80);
  Progress progress(screen.stream(), screen.options(5000));
  progress.update(state_of(1239));
  screen.now += 0.5;
  progress.update(state_of(1240));
  screen.now += 0.5;
  progress.update(state_of(1241));
  EXPECT_THAT(screen.lines(),
              ElementsAre("1241/5000 ━─────  loss 4.812  12.3k tok/s  61% peak  "
                          "31m20s left  save in 2m10s"));
}

TEST(Progress, TerminalsOfEveryWidth) {
  if (!has_terminals()) return;
  std::map<int, std::string> shown;
  for (int columns = 8; columns <= 200; ++columns) {
    Screen screen(columns);
    Progress progress(screen.stream(), screen.options(500000));
    for (int i = 0; i < 3; ++i) {
      progress.update(state_of(100000 + i));
      screen.now += 20.0;
    }
    const auto lines = screen.lines();
    ASSERT_EQ(lines.size(), 1u);
    shown[columns] = lines[0];
    EXPECT_THAT(lines[0], HasSubstr("100002/500000"));
    if (columns >= 14) {
      EXPECT_THAT(lines[0], Not(HasSubstr("[WRAPS]"))) << columns;
    }
  }
  EXPECT_THAT(shown[40], HasSubstr("loss 4.812"));
  EXPECT_THAT(shown[40], EndsWith(" left"));
  EXPECT_THAT(shown[100], HasSubstr("━"));
  EXPECT_THAT(shown[140], HasSubstr("save in"));
}

TEST(Progress, WithoutUnicodeOrWithColour) {
  if (!has_terminals()) return;
  Screen screen(100);
  Progress::Options options = screen.options(100);
  options.terminal.unicode = false;
  {
    Progress progress(screen.stream(), options);
    progress.update(state_of(50));
    const std::string bytes = screen.bytes();
    EXPECT_THAT(bytes, HasSubstr("[=============="));
    EXPECT_THAT(bytes, HasSubstr(">"));
    for (const char c : bytes) EXPECT_GE(c, 0);
  }
  options.terminal.unicode = true;
  options.terminal.colour = true;
  Progress progress(screen.stream(), options);
  progress.update(state_of(50));
  EXPECT_THAT(screen.bytes(), HasSubstr("\x1b[36m━"));
}

TEST(Progress, MessagesStandAboveTheBar) {
  if (!has_terminals()) return;
  Screen screen(80);
  Progress progress(screen.stream(), screen.options(100));
  progress.message("before the first step");
  progress.update(state_of(10));
  progress.message("validation kjv: loss 4.71, perplexity 111\nsecond line");
  progress.note("writing a checkpoint");
  auto lines = screen.lines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "before the first step");
  EXPECT_EQ(lines[1], "validation kjv: loss 4.71, perplexity 111");
  EXPECT_EQ(lines[2], "second line");
  EXPECT_THAT(lines[3], HasSubstr("writing a checkpoint"));
  progress.finish();
  progress.finish();
  lines = screen.lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], HasSubstr(" 10%  loss 4.812"));
  EXPECT_THAT(lines[0], Not(HasSubstr("checkpoint")));
  EXPECT_EQ(lines[1], "");
}

TEST(Progress, RedrawsTenTimesASecondAtMostButAlwaysTheLast) {
  if (!has_terminals()) return;
  Screen screen(80);
  Progress progress(screen.stream(), screen.options(1000));
  for (std::int64_t step = 1; step <= 1000; ++step) {
    progress.update(state_of(step));
    screen.now += 0.001;
  }
  const std::string bytes = screen.bytes();
  EXPECT_LE(std::count(bytes.begin(), bytes.end(), '\r'), 12);
  EXPECT_THAT(bytes, HasSubstr("1000/1000"));
  EXPECT_THAT(bytes, HasSubstr("100%"));
}

TEST(Progress, FollowsTheWindow) {
  if (!has_terminals()) return;
  Screen screen(120);
  Progress progress(screen.stream(), screen.options(1000));
  progress.update(state_of(1));
  const int wide = display_width(screen.lines()[0]);
  screen.resize(60);
  screen.now += 1.0;
  progress.update(state_of(2));
  const int narrow = display_width(screen.lines()[0]);
  EXPECT_GT(wide, 60);
  EXPECT_LT(narrow, 60);
  EXPECT_GT(narrow, 40);
}

TEST(Progress, LimitBeforeTheEndIsWhatCounts) {
  Screen screen;
  Progress progress(screen.stream(), screen.options(1000));
  ProgressState state = state_of(9);
  progress.update(state);
  screen.now += 10.0;
  state.step = 10;
  state.time_limit = 300.0;
  progress.update(state);
  screen.now += 10.0;
  state.step = 20;
  progress.update(state);
  EXPECT_THAT(screen.lines()[2], HasSubstr("5m00s to limit"));
}

TEST(Progress, WhatIsNotKnownIsNotShown) {
  Screen screen;
  Progress progress(screen.stream(), screen.options(1000));
  ProgressState state = state_of(10);
  state.peak_share = std::numeric_limits<double>::quiet_NaN();
  state.loss = std::numeric_limits<double>::infinity();
  progress.update(state);
  EXPECT_EQ(screen.lines()[0], "  10/1000  loss not known  12.3k tok/s");
  // Of several objectives one may have nothing that counts in a step.
  screen.now += 10.0;
  state = state_of(20);
  state.losses = {{"words", 4.8123}, {"pairs", -std::nan("")}};
  progress.update(state);
  EXPECT_THAT(screen.lines()[0],
              HasSubstr("loss 4.812 (words 4.812, pairs not known)  12.3k tok/s"));
}

TEST(Progress, StepClockIsAMeanThatForgets) {
  StepClock clock;
  EXPECT_TRUE(std::isnan(clock.seconds_per_step()));
  clock.tick(0.0);
  EXPECT_TRUE(std::isnan(clock.seconds_per_step()));
  clock.tick(2.0);
  clock.tick(6.0);
  EXPECT_DOUBLE_EQ(clock.seconds_per_step(), 3.0);
  double now = 6.0;
  for (int i = 0; i < 2000; ++i) clock.tick(now += 1.0);
  EXPECT_NEAR(clock.seconds_per_step(), 1.0, 1e-3);
}

auto with(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(Progress, FindsOutWhatTheTerminalCan) {
  if (!has_terminals()) return;
  Screen file, terminal(132);
  const auto good = with({{"TERM", "xterm"}, {"LANG", "en_US.UTF-8"}});
  EXPECT_FALSE(find_terminal(file.stream(), good).redraws);
  EXPECT_EQ(find_terminal(file.stream(), good).columns, 80);
  const Terminal found = find_terminal(terminal.stream(), good);
  EXPECT_TRUE(found.redraws && found.unicode && found.colour);
  EXPECT_EQ(found.columns, 132);
  EXPECT_FALSE(find_terminal(terminal.stream(), with({{"TERM", "dumb"}})).redraws);
  EXPECT_FALSE(find_terminal(terminal.stream(), with({})).redraws);
  const auto plain = with(
      {{"TERM", "xterm"}, {"NO_COLOR", "1"}, {"LANG", "en_US.utf8"}, {"LC_ALL", "C"}});
  EXPECT_FALSE(find_terminal(terminal.stream(), plain).colour);
  EXPECT_FALSE(find_terminal(terminal.stream(), plain).unicode);
}

// Behind a launcher's pipe.
TEST(Progress, StdoutMayBeSaidToEndAtATerminal) {
  if (!has_terminals()) return;
  Screen file, terminal(132);
  const auto said = [](const char* value) {
    return with({{"TRIREME_PROGRESS", value}, {"COLUMNS", "100"}, {"TERM", "xterm"}});
  };
  EXPECT_TRUE(find_terminal(file.stream(), said("bar")).redraws);
  EXPECT_EQ(find_terminal(file.stream(), said("bar")).columns, 100);
  EXPECT_FALSE(find_terminal(terminal.stream(), said("lines")).redraws);
  EXPECT_THAT([&] { find_terminal(file.stream(), said("yes")); },
              testing::ThrowsMessage<InputError>(testing::HasSubstr(
                  "TRIREME_PROGRESS is 'yes'; it may be bar or lines")));
}

}  // namespace
}  // namespace trireme::report
