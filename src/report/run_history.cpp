// report/run_history.cpp — see run_history.hpp.
//
// The file is a list of events and no table of starts, because a start that is killed
// can have added to it and changed nothing. Reading plays the events one after the other
// onto the list of starts. Only what a later start went on from counts as effective: if
// start 1 saved step 80 after 400 s of steps, and start 2 was told to go on from step
// 40, then 200 s of start 1 count.
#include "report/run_history.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/wall_time.hpp"
#include "io/json.hpp"

namespace trireme::report {

namespace fs = std::filesystem;
using HistoryLine = nlohmann::ordered_json;

namespace {

// A start that was refused is none; it only parts those before it from those after.
constexpr std::int64_t kRefused = -2;
// How an "ended" line says Ending::as_asked.
constexpr const char* kAsAsked = "stop_after";
constexpr const char* kOfTime = "time";
// A start of one step that its time ended was for that step where it took more than this
// of the process' life.
constexpr double kMuchOfIt = 0.25;

// The last time that a file of the run was written, as a sign of life of a start that did
// not say when it ended; 0 where there is none.
double last_written(const io::Path& file) {
  std::error_code error;
  const auto time = fs::last_write_time(file, error);
  if (error) return 0.0;
  const auto age = fs::file_time_type::clock::now() - time;
  return wall_seconds() - std::chrono::duration<double>(age).count();
}

void add_line(const HistoryLine& line, std::vector<StartRecord>& starts) {
  const auto event = io::json_value<std::string>(line, "event");
  const double time = io::json_value<double>(line, "time");
  if (event == "began" || event == "refused") {
    // Of the start before, which did not say so itself.
    if (!starts.empty() && line.contains("before_ended")) {
      double& ended = starts.back().ended;
      ended = std::max(ended, io::json_value<double>(line, "before_ended"));
    }
    StartRecord start;
    start.number = io::json_value<std::int64_t>(line, "start");
    start.began = start.ended = time;
    if (event == "refused") {
      start.saved_step = kRefused;
      start.is_clean = true;
    } else {
      start.job = io::json_value<std::string>(line, "job");
      start.first_step = io::json_value<std::int64_t>(line, "step");
    }
    starts.push_back(start);
    return;
  }
  if (starts.empty()) return;
  StartRecord& start = starts.back();
  start.ended = std::max(start.ended, time);
  if (event == "from") {
    start.first_step = io::json_value<std::int64_t>(line, "step");
  } else if (event == "saved") {
    start.saved_step = io::json_value<std::int64_t>(line, "step");
    start.step_seconds = io::json_value<double>(line, "step_seconds");
    if (line.contains("save_seconds")) {
      start.longest_save =
          std::max(start.longest_save, io::json_value<double>(line, "save_seconds"));
    }
  } else if (event == "restarted") {
    start.ready = io::json_value<double>(line, "launch") +
                  io::json_value<double>(line, "set_up") +
                  io::json_value<double>(line, "read");
  } else if (event == "devices") {
    start.ranks = io::json_value<int>(line, "ranks");
    start.peak = io::json_value<double>(line, "peak");
  } else if (event == "ended") {
    start.is_clean = true;
    if (line.contains("seconds")) {
      start.ending_seconds = io::json_value<double>(line, "seconds");
    }
    start.status = io::json_value<int>(line, "status");
    if (line.contains("by") && line["by"] == kAsAsked) start.ending = Ending::as_asked;
    if (line.contains("by") && line["by"] == kOfTime) start.ending = Ending::of_time;
  }
}

// `saved`: as far as it came.
bool is_idle(const StartRecord& start, std::int64_t saved) {
  if (start.ending == Ending::as_asked) return false;
  const std::int64_t steps = saved - start.first_step;
  if (steps != 1 || start.ending != Ending::of_time) return steps <= 0;
  return start.step_seconds < kMuchOfIt * (start.ended - start.began);
}

}  // namespace

std::string RestartTimes::text() const {
  std::string text = fmt::format(
      "restarted in {:.1f} s: launch {:.1f} s, set-up {:.1f} s, {} read and verified in "
      "{:.1f} s ({}/s), first step {:.1f} s",
      launch + set_up + read + first_step, launch, set_up,
      format_bytes(static_cast<double>(bytes)), read,
      format_bytes(static_cast<double>(bytes) / std::max(read, 1e-9)), first_step);
  if (down >= 0.0) text += fmt::format("; down for {} before", format_duration(down));
  return text;
}

std::string EffectiveTime::text() const {
  std::string text =
      fmt::format("effective training time: {:.1f}% of {} in {}", 100.0 * share(),
                  format_duration(running), format_plural(starts, "start"));
  if (starts > 1) text += fmt::format(", {} between them", format_duration(waiting));
  return text;
}

EffectiveTime effective_time(const std::vector<StartRecord>& starts) {
  EffectiveTime time;
  const StartRecord* before = nullptr;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const StartRecord& start = starts[i];
    if (start.saved_step == kRefused) continue;
    ++time.starts;
    time.running += start.ended - start.began;
    if (before != nullptr) time.waiting += std::max(0.0, start.began - before->ended);
    before = &start;
    // Steps that a later start has done again, as it went on from before them.
    std::int64_t kept = start.saved_step;
    for (std::size_t j = i + 1; j < starts.size(); ++j) {
      if (starts[j].saved_step != kRefused) kept = std::min(kept, starts[j].first_step);
    }
    if (kept <= start.first_step) continue;
    time.counted += start.step_seconds * static_cast<double>(kept - start.first_step) /
                    static_cast<double>(start.saved_step - start.first_step);
  }
  return time;
}

DeviceTime device_time(const std::vector<StartRecord>& starts, double began,
                       double peak) {
  // Times are written in the shortest form that reads back the same.
  constexpr double kSame = 1e-6;
  DeviceTime time;
  for (const StartRecord& start : starts) {
    if (start.saved_step == kRefused || start.began < began - kSame) continue;
    const StartRecord& last = starts.back();
    const bool is_known = start.ranks > 0 && &start != &last;
    const double ranks = is_known ? start.ranks : last.ranks;
    const double seconds = ranks * (start.ended - start.began);
    ++time.starts;
    time.seconds += seconds;
    time.flops += seconds * (is_known ? start.peak : peak);
    time.ready += ranks * start.ready;
    if (&start != &last) time.ending += ranks * start.ending_seconds;
  }
  return time;
}

int idle_starts(const std::vector<StartRecord>& starts, std::int64_t step) {
  int idle = 0;
  // What a later start went on from was saved, if the record of that was lost or not.
  std::int64_t reached = step;
  for (auto start = starts.rbegin(); start != starts.rend(); ++start) {
    if (start->saved_step == kRefused ||
        !is_idle(*start, std::max(start->saved_step, reached))) {
      break;
    }
    reached = start->first_step;
    ++idle;
  }
  return idle;
}

double expected_save(const std::vector<StartRecord>& starts) {
  for (auto start = starts.rbegin(); start != starts.rend(); ++start) {
    if (start->longest_save > 0.0) return start->longest_save;
  }
  return 0.0;
}

RunHistory::RunHistory(const io::Path& directory) : path_(directory / kStartsName) {
  std::ifstream file(path_);
  for (std::string text; std::getline(file, text);) {
    is_torn_ = file.eof();
    const HistoryLine line = io::parse_json_or_null<HistoryLine>(text);
    try {
      if (line.is_object()) add_line(line, starts_);
    } catch (const io::JsonError&) {  // of another program, or damaged
    }
  }
  if (!starts_.empty() && !starts_.back().is_clean) {
    StartRecord& last = starts_.back();
    last.ended = std::max(last.ended, last_written(directory / "train.jsonl"));
  }
}

std::string RunHistory::begin(double age, std::int64_t first_step,
                              const std::string& job) {
  const double began = clock_.now() - age;
  HistoryLine line = {{"job", job}, {"step", first_step}};
  if (!starts_.empty() && !starts_.back().is_clean) {
    line["before_ended"] = starts_.back().ended;
  }
  StartRecord start;
  start.number = starts_.empty() ? 1 : starts_.back().number + 1;
  start.began = start.ended = began;
  start.first_step = first_step;
  start.job = job;
  starts_.push_back(start);
  return append(start.number, "began", began, line);
}

std::string RunHistory::note_first_step(std::int64_t step) {
  starts_.back().first_step = step;
  return append(starts_.back().number, "from", clock_.now(), {{"step", step}});
}

std::string RunHistory::note_devices(int ranks, double peak) {
  if (starts_.back().ranks == ranks && starts_.back().peak == peak) return "";
  starts_.back().ranks = ranks;
  starts_.back().peak = peak;
  return append(starts_.back().number, "devices", clock_.now(),
                {{"ranks", ranks}, {"peak", peak}});
}

std::string RunHistory::note_restart(const RestartTimes& times) {
  starts_.back().ready = times.launch + times.set_up + times.read;
  HistoryLine line = {{"launch", times.launch},
                      {"set_up", times.set_up},
                      {"read", times.read},
                      {"bytes", times.bytes},
                      {"first_step", times.first_step}};
  if (times.down >= 0.0) line["down"] = times.down;
  return append(starts_.back().number, "restarted", clock_.now(), line);
}

std::string RunHistory::note_saved(std::int64_t step, double step_seconds,
                                   double save_seconds) {
  StartRecord& start = starts_.back();
  start.saved_step = step;
  start.step_seconds = step_seconds;
  start.longest_save = std::max(start.longest_save, save_seconds);
  start.ended = clock_.now();
  return append(
      start.number, "saved", start.ended,
      {{"step", step}, {"step_seconds", step_seconds}, {"save_seconds", save_seconds}});
}

std::string RunHistory::end(int status, Ending ending, double seconds) {
  StartRecord& start = starts_.back();
  start.is_clean = true;
  start.status = status;
  start.ending = ending;
  start.ended = clock_.now();
  start.ending_seconds = seconds;
  HistoryLine line = {{"status", status}};
  if (seconds > 0.0) line["seconds"] = seconds;
  if (ending == Ending::as_asked) line["by"] = kAsAsked;
  if (ending == Ending::of_time) line["by"] = kOfTime;
  return append(start.number, "ended", start.ended, line);
}

std::string RunHistory::note_refusal() {
  const std::int64_t number = starts_.empty() ? 0 : starts_.back().number;
  return append(number, "refused", clock_.now(), {});
}

std::string RunHistory::append(std::int64_t start, const char* event, double time,
                               const HistoryLine& more) {
  HistoryLine line = {{"start", start}, {"event", event}, {"time", time}};
  if (!more.is_null()) line.update(more);
  if (!file_.is_open()) {
    file_ = Descriptor(
        ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  }
  if (!file_.is_open()) return io::system_message("cannot write", path_, errno);
  const std::string text = (is_torn_ ? "\n" : "") + io::exact_json_text(line) + "\n";
  is_torn_ = false;
  const ssize_t put = ::write(file_, text.data(), text.size());
  if (put == static_cast<ssize_t>(text.size())) return "";
  return io::system_message("cannot write", path_, put < 0 ? errno : ENOSPC);
}

double RunHistory::seconds_down() const {
  if (starts_.size() < 2) return -1.0;
  const StartRecord& before = starts_[starts_.size() - 2];
  return std::max(0.0, starts_.back().began - before.ended);
}

double process_age() {
  // proc(5): field 22 is the start in clock ticks since boot; names may have spaces. What
  // has passed since boot is asked from the clock: /proc/uptime has hundredths alone, and
  // two ages that differ by what passed between them make the parts of a start add up.
  std::ifstream stat("/proc/self/stat");
  std::string text;
  timespec up{};
  if (!std::getline(stat, text) || ::clock_gettime(CLOCK_BOOTTIME, &up) != 0) return 0.0;
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0.0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22 && fields >> field; ++i) {
  }
  char* end = nullptr;
  const double ticks = std::strtod(field.c_str(), &end);
  if (end == field.c_str()) return 0.0;
  constexpr double kNano = 1e-9;
  const double now =
      static_cast<double>(up.tv_sec) + kNano * static_cast<double>(up.tv_nsec);
  return std::max(0.0, now - ticks / static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

}  // namespace trireme::report
