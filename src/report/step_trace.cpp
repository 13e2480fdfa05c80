// report/step_trace.cpp — see step_trace.hpp.
//
// Each rank writes its events to a file of its own, and rank 0 puts these together one by
// one: no rank needs memory for the events of all. What was recorded stays in the clock
// of its rank until then, as only a reading after the last step says how fast that goes.
// A file that cannot be written ends no training: the failure is the run's last word.
#include "report/step_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/words.hpp"
#include "comm/on_ranks.hpp"
#include "io/atomic_file.hpp"
#include "io/json.hpp"

namespace trireme::report {

namespace {

// The most events of a rank: enough for some steps of hundreds of passes and messages,
// 100 bytes each.
constexpr std::size_t kMostEvents = 400'000;

// Rows of a rank's timeline in which events do not overlap: row 0 is what the rank does,
// messages of a group lie in as many as are under way at once.
class Rows {
 public:
  int row_of(const TraceEvent& event) {
    if (*event.group == '\0') return 0;
    for (Row& row : rows_) {
      if (row.group != event.group || row.end > event.begin) continue;
      row.end = event.end;
      return row.number;
    }
    const int number = static_cast<int>(rows_.size()) + 1;
    rows_.push_back({event.group, number, event.end});
    return number;
  }
  // (number, group), in the order in which rows appeared.
  std::vector<std::pair<int, std::string>> names() const {
    std::vector<std::pair<int, std::string>> names;
    for (const Row& row : rows_) names.emplace_back(row.number, row.group);
    return names;
  }

 private:
  struct Row {
    std::string group;
    int number = 0;
    TraceEvent::Clock::time_point end;
  };
  std::vector<Row> rows_;
};

nlohmann::ordered_json metadata(const char* what, int rank, int row,
                                nlohmann::ordered_json arguments) {
  return {{"name", what},
          {"ph", "M"},
          {"pid", rank},
          {"tid", row},
          {"args", std::move(arguments)}};
}

io::Path part_of(const io::Path& path, int rank) {
  return path.string() + fmt::format(".rank{}", rank);
}

}  // namespace

TraceOptions parse_trace_steps(const std::string& steps, io::Path path) {
  const std::size_t dash = steps.find('-');
  const auto first = number_in<std::int64_t>(steps.substr(0, dash));
  const auto last =
      dash == std::string::npos ? first : number_in<std::int64_t>(steps.substr(dash + 1));
  TRIREME_REQUIRE_INPUT(first && last && *first >= 1 && *first <= *last,
                        "--trace-steps {}: expected two numbers from 1, the first and "
                        "the last step to record, counted from where this start begins: "
                        "--trace-steps 2-4",
                        steps);
  return {.path = std::move(path), .first = *first, .last = *last};
}

StepTrace::StepTrace(TraceOptions options, const comm::RankGrid& grid, Timers& timers,
                     Log& log)
    : options_(std::move(options)), grid_(grid), timers_(timers), log_(log) {}

void StepTrace::begin_step(std::int64_t step) {
  if (step != options_.first) return;
  trace_.emplace(kMostEvents);
  clock_.emplace(*grid_.groups().world);
  before_ = clock_->read();
  timers_.begin_trace(*trace_);
}

void StepTrace::end_step(std::int64_t step) {
  if (!trace_) return;
  ++recorded_;
  if (step == options_.last) end_recording();
}

void StepTrace::finish() {
  if (trace_) end_recording();
  if (recorded_ == 0) {
    log_.warning(
        "--trace: the run ended before step {}, the first to be recorded; '{}' was not "
        "written",
        options_.first, options_.path.string());
  }
  if (!failure_.empty()) {
    throw Error(fmt::format("the run is complete, its trace is not there: {}", failure_));
  }
}

void StepTrace::end_recording() {
  comm::Communicator& world = *grid_.groups().world;
  timers_.end_trace();
  const ClockReading after = clock_->read();
  double zero = std::numeric_limits<double>::infinity();
  for (const TraceEvent& event : trace_->events()) {
    zero = std::min(zero, reference_time(seconds_of(event.begin), before_, after));
  }
  zero = world.all_reduce(zero, comm::Op::min);
  try {
    write(after, zero);
  } catch (const Error& error) {  // the same on all ranks
    failure_ = error.what();
    log_.warning("the trace could not be written, training goes on: {}", failure_);
    std::error_code ignored;
    std::filesystem::remove(part_of(options_.path, world.rank()), ignored);
  }
  trace_.reset();
}

std::string StepTrace::text_of_rank(const ClockReading& after, double zero) const {
  const int rank = grid_.rank();
  const comm::Coordinates& at = grid_.coordinates();
  const auto time_of = [&](TraceEvent::Clock::time_point time) {
    return 1e6 * (reference_time(seconds_of(time), before_, after) - zero);
  };
  std::vector<TraceEvent> events = trace_->events();
  std::stable_sort(events.begin(), events.end(),
                   [](const TraceEvent& a, const TraceEvent& b) {
                     return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
                   });
  Rows rows;
  std::string text;
  for (const TraceEvent& event : events) {
    nlohmann::ordered_json arguments = nlohmann::ordered_json::object();
    if (*event.detail != '\0') arguments["site"] = event.detail;
    if (event.microbatch >= 0) arguments["microbatch"] = event.microbatch;
    if (event.chunk >= 0) arguments["chunk"] = event.chunk;
    if (event.elements >= 0) arguments["elements"] = event.elements;
    std::string name = event.name;
    if (event.microbatch >= 0) name += fmt::format(" {}", event.microbatch);
    const double begin = time_of(event.begin);
    const nlohmann::ordered_json line = {{"name", name},
                                         {"ph", "X"},
                                         {"pid", rank},
                                         {"tid", rows.row_of(event)},
                                         {"ts", begin},
                                         {"dur", time_of(event.end) - begin},
                                         {"args", std::move(arguments)}};
    text += io::json_text(line) + ",\n";
  }
  const std::string name = fmt::format("rank {}: stage {}, data {}, tensor {}", rank,
                                       at.pipeline, at.data, at.tensor);
  text += io::json_text(metadata("process_name", rank, 0, {{"name", name}})) + ",\n";
  text += io::json_text(metadata("process_sort_index", rank, 0, {{"sort_index", rank}})) +
          ",\n";
  text += io::json_text(metadata("thread_name", rank, 0, {{"name", "passes"}})) + ",\n";
  for (const auto& [row, group] : rows.names()) {
    const bool is_messages =
        group != "checkpoint" && group != "kernels" && group != "copies";
    text +=
        io::json_text(metadata("thread_name", rank, row,
                               {{"name", is_messages ? group + " messages" : group}})) +
        ",\n";
  }
  return text;
}

// Ranks write parts, which rank 0 puts together: no rank needs memory for all.
void StepTrace::write(const ClockReading& after, double zero) {
  comm::Communicator& world = *grid_.groups().world;
  comm::on_every_rank(world, [&] {
    io::write_file(part_of(options_.path, world.rank()), text_of_rank(after, zero));
  });
  const auto lost = world.all_reduce(static_cast<std::int64_t>(trace_->lost()));
  const double error =
      world.all_reduce(std::max(before_.error, after.error), comm::Op::max);
  comm::on_first_rank(world, [&] {
    io::AtomicFile file(options_.path);
    file.write("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    for (int rank = 0; rank < world.size(); ++rank) {
      std::string part = io::read_file(part_of(options_.path, rank), "part of the trace");
      if (rank + 1 == world.size()) part.resize(part.size() - 2);  // the last comma
      file.write(part);
    }
    file.write(
        fmt::format("\n], \"otherData\": {}}}\n",
                    io::json_text(nlohmann::ordered_json{{"ranks", world.size()},
                                                         {"steps", recorded_},
                                                         {"clock_error_us", 1e6 * error},
                                                         {"lost_events", lost}})));
    file.commit();
    for (int rank = 0; rank < world.size(); ++rank) {
      std::filesystem::remove(part_of(options_.path, rank));
    }
  });
  log_.info("{}",
            wrap_lines(fmt::format(
                "trace of {} of {} in '{}' (clocks agree within {:.1f} us); open it with "
                "ui.perfetto.dev, or draw it with tools/plot_trace",
                format_plural(recorded_, "step"), format_plural(world.size(), "rank"),
                options_.path.string(), 1e6 * error)));
  if (lost > 0) {
    log_.warning(
        "the trace is not whole: {} more events than there is room for; take "
        "fewer steps with --trace-steps",
        lost);
  }
}

}  // namespace trireme::report
