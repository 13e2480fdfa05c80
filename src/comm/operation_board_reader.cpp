// comm/operation_board_reader.cpp — boards as text: where the run hangs, and at the next
// start.
//
// Readers take nothing for granted: the file may be of another program, cut, or damaged,
// and its writers may be at it, stopped or dead. Of what cannot be right only that is
// said. The file system may be the very thing that hangs, so that a report is made by a
// thread of its own, which the rank waits for a few seconds at most. Of all ranks that
// give up the one reports that makes the file kHangName; where nobody can make it, each
// does.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/plural.hpp"
#include "base/wall_time.hpp"
#include "comm/board_format.hpp"
#include "comm/operation_board.hpp"

namespace trireme::comm {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostUncleanEnds = 8;  // lines of the log
constexpr std::size_t kMostLines = 64;       // of the table on stderr
constexpr double kNoSignSeconds = 1.0;       // who waits gives one much more often
constexpr std::chrono::seconds kReportTime{3};
// How often a slot is read that is being written. The first readings come at once; then
// the writer gets time to have its turn on a busy core.
constexpr int kReadings = 100;
constexpr int kReadingsAtOnce = 10;
constexpr std::chrono::milliseconds kTurn{1};

// A field of a file that may be damaged.
template <std::size_t N>
std::string text_of(const char (&field)[N]) {
  std::string text(field, ::strnlen(field, N));
  for (char& c : text) {
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0) c = '?';
  }
  return text;
}

// Reads a slot or a device between two changes of it. Its owner may have been killed in
// the middle of one: then it is taken as it is.
template <class Part>
bool read_part(const OpenFile& file, std::size_t place, Part& part) {
  for (int reading = 0; reading < kReadings; ++reading) {
    std::uint32_t version = 0;
    if (!file.read_at(place, &part, sizeof(part))) return false;
    const std::uint32_t before = part.version.load(std::memory_order_relaxed);
    if (!file.read_at(place, &version, sizeof(version))) return false;
    if (before == version && version % 2 == 0) return true;
    if (reading >= kReadingsAtOnce) std::this_thread::sleep_for(kTurn);
  }
  return true;
}

double seconds_of(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-9;
}

// What was read may be of a file that is damaged: nothing of it is taken for more than it
// can be.
std::vector<LaneState> lanes_of(const BoardDevice& device) {
  std::vector<LaneState> lanes;
  for (std::uint32_t i = 0; i < std::min(device.lanes, BoardDevice::kMostLanes); ++i) {
    const BoardLane& lane = device.lane[i];
    lanes.push_back({.key = lane.key,
                     .begun = lane.begun,
                     .ended = lane.ended,
                     .since = seconds_of(lane.since),
                     .group = text_of(lane.group),
                     .operation = text_of(lane.operation),
                     .site = text_of(lane.site),
                     .elements = lane.elements,
                     .peer = lane.peer});
  }
  return lanes;
}

// What is wrong with the file; empty: nothing.
std::string read_board(const fs::path& path, std::vector<RankState>& states) {
  const OpenFile file(path, O_RDONLY);
  if (!file.is_open()) return "it cannot be opened";
  BoardHeader header;
  if (!file.read_at(0, &header, sizeof(header)) || !header.is_valid()) {
    return "it does not begin as one";
  }
  std::string problem;
  for (std::uint32_t i = 0; i < header.slots; ++i) {
    BoardSlot slot;
    if (!read_part(file, slot_place(i), slot)) return "it is too short";
    if (slot.process == 0) continue;  // its rank went without
    if (slot.activity > static_cast<std::uint32_t>(RankActivity::failed) ||
        slot.rank < 0 || static_cast<std::uint32_t>(slot.rank) >= header.ranks) {
      problem = fmt::format("slot {} is damaged", i);
      continue;
    }
    BoardDevice device;
    if (!read_part(file, device_place(header.slots, i), device)) {
      device.lanes = 0;
      problem = "it is too short";
    }
    RankState state{.rank = slot.rank,
                    .ranks = static_cast<int>(header.ranks),
                    .process = slot.process,
                    .host = text_of(header.host),
                    .activity = static_cast<RankActivity>(slot.activity),
                    .since = seconds_of(slot.since),
                    .group = text_of(slot.group),
                    .operation = text_of(slot.operation),
                    .site = text_of(slot.site),
                    .sequence = slot.sequence,
                    .elements = slot.elements,
                    .peer = slot.peer,
                    .lanes = lanes_of(device)};
    state.last_sign = std::max(state.since, seconds_of(slot.last_sign.load()));
    states.push_back(std::move(state));
  }
  return problem;
}

std::string who(const RankState& state) {
  return fmt::format("rank {} (process {} on {})", state.rank, state.process, state.host);
}

// "all_reduce 'row-parallel output' of group tensor (call 17, 4096 elements)"
std::string operation_of(const RankState& state) {
  std::string text = state.operation;
  if (!state.site.empty()) text += fmt::format(" '{}'", state.site);
  text += " of group " + state.group;
  if (state.peer >= 0) text += fmt::format(" with its rank {}", state.peer);
  text += fmt::format(" (call {}", state.sequence);
  if (state.elements > 0)
    text += fmt::format(", {}", format_plural(state.elements, "element"));
  return text + ")";
}

// "all_reduce 'row-parallel output' of group tensor (number 17, 4096 elements)"
std::string operation_of(const LaneState& lane) {
  std::string text = lane.operation;
  if (!lane.site.empty()) text += fmt::format(" '{}'", lane.site);
  text += " of group " + lane.group;
  if (lane.peer >= 0) text += fmt::format(" with rank {}", lane.peer);
  return text + fmt::format(" (number {}, {})", lane.ended + 1,
                            format_plural(lane.elements, "element"));
}

// What the device of a rank is at, a line each.
std::string device_lines(const RankState& state, double now) {
  std::string text;
  for (const LaneState& lane : state.lanes) {
    if (lane.since <= 0.0 || lane.begun <= lane.ended) continue;
    text += fmt::format("    on its device: {}, since {:.1f} s\n", operation_of(lane),
                        std::max(0.0, now - lane.since));
  }
  return text;
}

std::string describe(const RankState& state, const std::string& time) {
  const std::string last =
      state.operation.empty() ? "no message before" : "last: " + operation_of(state);
  switch (state.activity) {
    case RankActivity::waiting:
      return fmt::format("{}: in {}, since {}", who(state), operation_of(state), time);
    case RankActivity::computing:
      return fmt::format("{}: not in a message since {}; {}", who(state), time, last);
    case RankActivity::done:
      return fmt::format("{}: ended cleanly, since {}", who(state), time);
    case RankActivity::failed:
      return fmt::format("{}: ended by an error, since {}; {}", who(state), time, last);
  }
  throw Error("describe: not a RankActivity");
}

// What the kernel says of a process of this host, where that explains a silence.
std::string process_state(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  if (!std::getline(file, line)) return "the process is gone";
  const std::size_t name_end = line.rfind(") ");  // a name may hold anything
  if (name_end == std::string::npos || name_end + 2 >= line.size()) return {};
  switch (line[name_end + 2]) {
    case 'T':
    case 't':
      return "the process is stopped (SIGSTOP or a debugger)";
    case 'Z':
    case 'X':
      return "the process has died";
    case 'D':
      return "the process waits for a device or a file system";
    default:
      return {};
  }
}

// Ranks that are likely the cause stand first: they do not wait, or have gone silent.
bool suspicious(const RankState& state, double now) {
  return state.activity != RankActivity::waiting ||
         now - state.last_sign > kNoSignSeconds;
}

// A table of at most so many lines, with the suspicious ranks among them. Only processes
// of this host can be asked after.
std::string table_of(std::vector<RankState> states, const std::string& host, double now,
                     std::size_t most) {
  const std::size_t all = states.size();
  if (all > most) {
    std::stable_partition(states.begin(), states.end(),
                          [&](const RankState& state) { return suspicious(state, now); });
    states.resize(most);
  }
  std::string text;
  for (const RankState& state : states) {
    std::string line = describe_now(state, now);
    const std::string process = state.host == host ? process_state(state.process) : "";
    if (!process.empty()) line += "; " + process;
    text += "  " + line + "\n" + device_lines(state, now);
  }
  if (all > most) text += fmt::format("  and {} more ranks\n", all - most);
  return text;
}

// True for the one rank of the run that makes the file; the others leave the report to
// it.
bool claim(const fs::path& path, std::optional<OpenFile>& file) {
  file.emplace(path, O_WRONLY | O_CREAT | O_EXCL);
  return file->is_open() || errno != EEXIST;
}

// Now, in seconds since 1970. `wall_offset` makes a time of the boards, which no change
// of the system's clock moves, of one of OperationBoard::Clock.
double wall_now(std::int64_t wall_offset) {
  const std::chrono::nanoseconds now = OperationBoard::Clock::now().time_since_epoch();
  return seconds_of(now.count() + wall_offset);
}

// Until another rank has written its report, or it is certain that it will not. A rank
// that gives up while the report is made stays on its board as what it waited in, so that
// the report shows that, and not a rank that is in no message.
void await_report(const fs::path& path) {
  constexpr auto kPause = std::chrono::milliseconds(1);
  constexpr int kMostPauses = 1000;
  std::error_code error;
  for (int i = 0; i < kMostPauses && fs::file_size(path, error) == 0 && !error; ++i) {
    std::this_thread::sleep_for(kPause);
  }
}

void print_hang(const fs::path& directory, const std::string& host, int rank,
                double waited, std::int64_t wall_offset) {
  std::optional<OpenFile> copy;
  if (!claim(directory / kHangName, copy)) {
    await_report(directory / kHangName);
    return;
  }
  const BoardReading reading = read_boards(directory);
  const double now = wall_now(wall_offset);
  const std::string why =
      waited > 0.0
          ? fmt::format("run.hang_timeout: rank {} waited {:.1f} s for the others", rank,
                        waited)
          : fmt::format("rank {} ends the run", rank);
  const std::string head = fmt::format("trireme: {}. What each rank does ({}):\n", why,
                                       iso_time(wall_seconds()));
  std::string text = head + table_of(reading.ranks, host, now, kMostLines);
  for (const std::string& problem : reading.problems) text += "  " + problem + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
  if (!copy->is_open()) return;
  const std::string all = head + table_of(reading.ranks, host, now, kMostSlots);
  // The file is only a copy of what is on stderr, so that an error in writing it is of no
  // consequence.
  [[maybe_unused]] const ssize_t written = ::write(*copy, all.data(), all.size());
}

}  // namespace

std::vector<fs::path> board_files(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (name.starts_with(kBoardPrefix) && name != kHangName &&
        entry->is_regular_file(ignored)) {
      files.push_back(entry->path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool is_board(const fs::path& file) {
  BoardHeader header;
  const OpenFile open(file, O_RDONLY);
  return open.is_open() && open.read_at(0, &header, sizeof(header)) && header.is_valid();
}

BoardReading read_boards(const fs::path& directory) {
  BoardReading reading;
  for (const fs::path& path : board_files(directory)) {
    const std::string problem = read_board(path, reading.ranks);
    if (problem.empty()) continue;
    reading.problems.push_back(
        fmt::format("'{}' is no whole account of ranks: {}", path.string(), problem));
  }
  std::ranges::stable_sort(reading.ranks, {}, &RankState::rank);
  return reading;
}

std::string describe_now(const RankState& state, double now) {
  std::string text =
      describe(state, fmt::format("{:.1f} s", std::max(0.0, now - state.since)));
  const double silence = now - state.last_sign;
  if (state.activity == RankActivity::waiting && silence > kNoSignSeconds) {
    text += fmt::format(", no sign of life for {:.1f} s", silence);
  }
  return text;
}

std::string describe_late(const BoardReading& reading, int rank,
                          const OperationBoard::DeviceLane& lane, double now) {
  const std::int64_t number = lane.ended + 1;
  std::string late, others;
  std::size_t count = 0;
  for (const RankState& state : reading.ranks) {
    for (const LaneState& theirs : state.lanes) {
      if (theirs.key != lane.key || state.rank == rank) continue;
      ++count;
      if (theirs.begun < number) {
        late += fmt::format("\n  late: it has begun {} there. {}",
                            format_plural(theirs.begun, "operation"),
                            describe_now(state, now));
      } else if (theirs.ended + 1 == number &&
                 (theirs.elements != lane.elements ||
                  (lane.peer < 0 && theirs.operation != lane.operation))) {
        others += fmt::format("\n  rank {} does something else there: {}", state.rank,
                              operation_of(theirs));
      }
    }
  }
  if (!late.empty() || !others.empty()) return late + others;
  if (count == 0) return "\n  Which rank is late is not known: no other one has noted it";
  return "\n  All its ranks have begun it: a GPU has failed, or what links them";
}

std::string describe_past(const RankState& state) {
  std::string text = describe(state, iso_time(state.since));
  if (state.activity == RankActivity::waiting) {
    text += ", last sign of life " + iso_time(state.last_sign);
  }
  return text;
}

std::vector<std::string> unclean_ends(const fs::path& directory) {
  BoardReading reading = read_boards(directory);
  std::vector<RankState>& states = reading.ranks;
  const std::size_t all = states.size();
  std::erase_if(states, [](const RankState& state) {
    return state.activity == RankActivity::done;
  });
  std::vector<std::string> lines = std::move(reading.problems);
  if (states.empty()) return lines;
  std::ranges::stable_sort(states, {}, [](const RankState& state) {
    return std::pair(state.activity != RankActivity::failed, state.last_sign);
  });
  const std::size_t unclean = states.size();
  lines.push_back(fmt::format(
      "the start before did not end cleanly: {} of {} did not{}", unclean,
      format_plural(all, "rank"),
      unclean > 1 ? "; who fell silent first comes first (0.1 s apart says little)"
                  : ""));
  for (std::size_t i = 0; i < std::min(unclean, kMostUncleanEnds); ++i) {
    lines.push_back("  " + describe_past(states[i]));
  }
  if (unclean > kMostUncleanEnds) {
    lines.push_back(fmt::format("  and {} more ranks", unclean - kMostUncleanEnds));
  }
  return lines;
}

namespace {

// Has another thread do something for which it asks the file system, which may be what
// hangs, and waits for it a few seconds; false where that was not enough. The work owns
// all that it touches.
template <class Work>
bool is_done_in_time(const Work& work) {
  struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  };
  try {
    const auto progress = std::make_shared<Progress>();
    std::thread([progress, work] {
      try {
        work();
      } catch (const std::exception&) {  // the error that follows says the rest
      }
      const std::lock_guard<std::mutex> lock(progress->mutex);
      progress->done = true;
      progress->changed.notify_all();
    }).detach();
    std::unique_lock<std::mutex> lock(progress->mutex);
    return progress->changed.wait_for(lock, kReportTime, [&] { return progress->done; });
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

void OperationBoard::report_hang(double waited) const noexcept {
  is_done_in_time([directory = file_.parent_path(), host = host_, rank = rank_, waited,
                   wall_offset = wall_offset_] {
    print_hang(directory, host, rank, waited, wall_offset);
  });
}

std::string OperationBoard::late_ranks(const DeviceLane& lane) const noexcept {
  const auto text = std::make_shared<std::string>();
  const bool is_known = is_done_in_time([text, directory = file_.parent_path(),
                                         rank = rank_, lane, wall_offset = wall_offset_] {
    *text = describe_late(read_boards(directory), rank, lane, wall_now(wall_offset));
  });
  return is_known ? *text : "\n  Which rank is late is not known: the file system hangs";
}

}  // namespace trireme::comm
