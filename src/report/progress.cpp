// report/progress.cpp — see progress.hpp.
//
// A line is made of fields that each have a rank: where it is wider than the terminal,
// the field of the highest rank goes first, until the line fits. Whether a bar is drawn
// is remembered, so that a message can erase it, take its line, and have it drawn again
// below. The clock is the caller's, because tests wind it by hand.
#include "report/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/wall_time.hpp"
#include "base/words.hpp"

namespace trireme::report {

namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kWorthSaying = 0.01;
constexpr int kMaxBar = 30;
constexpr int kMinBar = 5;
constexpr const char* kEraseLine = "\r\x1b[K";
constexpr const char* kBarColour = "\x1b[36m";
constexpr const char* kPlainColour = "\x1b[0m";

// Columns now: the window may have been resized.
int columns_of(std::FILE* stream, int otherwise) {
  winsize size = {};
  const int descriptor = ::fileno(stream);
  if (descriptor < 0 || ::ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return otherwise;
  }
  return size.ws_col;
}

// A field of the line; the ones of high rank go first where it is narrow.
struct Field {
  std::string text;
  int rank;
};

// The fields that fit into `columns`, two blanks between them.
std::string join_fitting(std::vector<Field> fields, int columns) {
  const auto width = [&] {
    int sum = -2;
    for (const Field& field : fields) sum += 2 + display_width(field.text);
    return sum;
  };
  while (fields.size() > 1 && width() > columns) {
    fields.erase(std::ranges::max_element(fields, {}, &Field::rank));
  }
  std::string line;
  for (const Field& field : fields) line += (line.empty() ? "" : "  ") + field.text;
  return line;
}

}  // namespace

Terminal find_terminal(std::FILE* stream,
                       const std::function<const char*(const char*)>& environment) {
  const auto value = [&](const char* name) {
    const char* text = environment(name);
    return std::string(text == nullptr ? "" : text);
  };
  Terminal terminal;
  const std::string given = value("TRIREME_PROGRESS");
  TRIREME_REQUIRE_INPUT(given.empty() || given == "bar" || given == "lines",
                        "TRIREME_PROGRESS is '{}'; it may be bar or lines", given);
  terminal.redraws = given.empty() ? ::isatty(::fileno(stream)) == 1 &&
                                         value("TERM") != "dumb" && !value("TERM").empty()
                                   : given == "bar";
  std::string locale = value("LC_ALL");
  if (locale.empty()) locale = value("LC_CTYPE");
  if (locale.empty()) locale = value("LANG");
  locale = lower_case(locale);
  terminal.unicode = locale.find("utf-8") != std::string::npos ||
                     locale.find("utf8") != std::string::npos;
  terminal.colour = terminal.redraws && value("NO_COLOR").empty();
  const int said = std::atoi(value("COLUMNS").c_str());
  terminal.columns = columns_of(stream, said > 0 ? said : 80);
  return terminal;
}

void StepClock::tick(double now) {
  if (ticks_ > 0) {
    const double weight = 1.0 / static_cast<double>(std::min<std::int64_t>(ticks_, 200));
    mean_ += weight * (now - last_ - mean_);
  }
  ++ticks_;
  last_ = now;
}

double StepClock::seconds_per_step() const {
  return ticks_ > 1 ? mean_ : std::numeric_limits<double>::quiet_NaN();
}

Progress::Progress(std::FILE* stream, const Options& options)
    : stream_(stream), options_(options) {
  if (!options_.clock) options_.clock = steady_seconds;
}

Progress::~Progress() {
  finish();
}

void Progress::update(const ProgressState& state) {
  const double now = options_.clock();
  step_clock_.tick(now);
  state_ = state;
  activity_.clear();
  const bool first = !has_state_;
  has_state_ = true;
  const bool last = state.step >= options_.steps;
  const bool is_line =
      first || last || (options_.log_every > 0 && state.step % options_.log_every == 0);
  if (options_.terminal.redraws) {
    if (first || last || now - drawn_at_ >= kRedrawSeconds) draw();
  } else if (is_line) {
    write(plain_line(options_.terminal.columns) + "\n");
  }
  if (is_line && options_.record) options_.record(plain_line(kScreenColumns));
}

void Progress::message(std::string_view text) {
  if (is_drawn_) write(kEraseLine);
  const bool redraw = is_drawn_;
  is_drawn_ = false;
  write(fmt::format("{}\n", text));
  if (redraw) draw();
  if (options_.record) options_.record(std::string(text));
}

void Progress::note(std::string_view activity) {
  activity_ = activity;
  if (is_drawn_) draw();
}

void Progress::finish() {
  if (!is_drawn_) return;
  activity_.clear();
  draw();
  write("\n");
  is_drawn_ = false;
}

void Progress::draw() {
  options_.terminal.columns = columns_of(stream_, options_.terminal.columns);
  // All goes out in one write, so that no half-drawn line is ever seen.
  write(kEraseLine + bar_line());
  is_drawn_ = true;
  drawn_at_ = options_.clock();
}

void Progress::write(std::string_view text) {
  // A terminal that has gone away is no reason to stop training.
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stream_));
  std::fflush(stream_);
}

std::string Progress::bar(int width) const {
  const double done = options_.steps > 0
                          ? std::clamp(static_cast<double>(state_.step) /
                                           static_cast<double>(options_.steps),
                                       0.0, 1.0)
                          : 0.0;
  std::string text;
  if (options_.terminal.unicode) {
    const int halves = static_cast<int>(done * 2.0 * width);
    for (int i = 0; i < halves / 2; ++i) text += "━";
    const bool half = halves % 2 != 0;
    if (half) text += "╸";
    if (options_.terminal.colour) text = kBarColour + text + kPlainColour;
    for (int i = (halves + 1) / 2; i < width; ++i) text += "─";
    return text;
  }
  const int cells = static_cast<int>(done * (width - 2));
  for (int i = 0; i < width - 2; ++i) {
    text += i < cells ? '=' : (i == cells ? '>' : '.');
  }
  return "[" + text + "]";
}

std::string Progress::bar_line() const {
  const std::string line = plain_line(options_.terminal.columns);
  // One column stays free: some terminals wrap when the last one is written.
  const int room = options_.terminal.columns - 1;
  const double share = options_.steps > 0 ? static_cast<double>(state_.step) /
                                                static_cast<double>(options_.steps)
                                          : 0.0;
  const std::string percent = fmt::format("{:.0f}%", std::floor(100.0 * share));
  // Between the step and the rest: " bar percent", or the bar alone where it is narrow.
  const int all = room - display_width(line) - 1;
  const int beside = all - static_cast<int>(percent.size()) - 1;
  const bool tight = beside < kMinBar;
  const int left = tight ? all : beside;
  if (left < kMinBar) return line;
  const std::size_t after_step = line.find("  ");
  if (after_step == std::string::npos) return line;
  return line.substr(0, after_step) + " " + bar(std::min(left, kMaxBar)) +
         (tight ? "" : " " + percent) + line.substr(after_step);
}

std::string Progress::plain_line(int columns) const {
  const int digits = static_cast<int>(std::to_string(options_.steps).size());
  std::vector<Field> fields;
  fields.push_back({fmt::format("{:>{}}/{}", state_.step, digits, options_.steps), 0});
  fields.push_back(
      {"loss " + model::text_of_loss(state_.loss, 3) + model::text_of(state_.losses), 1});
  fields.push_back({fmt::format("{} tok/s", format_count(state_.tokens_per_second)), 3});
  if (std::isfinite(state_.peak_share)) {
    fields.push_back({format_percent(state_.peak_share) + " peak", 4});
  }
  if (state_.other_share >= kWorthSaying) {
    fields.push_back({format_percent(state_.other_share) + " other work", 5});
  }
  if (!activity_.empty()) {
    fields.push_back({activity_, 2});
    return join_fitting(std::move(fields), columns - 1);
  }
  const double step_seconds = step_clock_.seconds_per_step();
  const double to_end = step_seconds * static_cast<double>(options_.steps - state_.step);
  if (std::isfinite(to_end) && state_.step < options_.steps) {
    const bool limited = state_.time_limit && *state_.time_limit < to_end;
    fields.push_back({limited ? format_duration(*state_.time_limit) + " to limit"
                              : format_duration(to_end) + " left",
                      2});
  }
  // The checkpoint at the end needs no announcement of its own.
  if (state_.next_checkpoint > state_.step && state_.next_checkpoint < options_.steps &&
      std::isfinite(step_seconds)) {
    fields.push_back(
        {"save in " +
             format_duration(step_seconds *
                             static_cast<double>(state_.next_checkpoint - state_.step)),
         6});
  }
  return join_fitting(std::move(fields), columns - 1);
}

}  // namespace trireme::report
