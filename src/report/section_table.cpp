// report/section_table.cpp — see section_table.hpp.
//
// Every figure of a table is gathered from all ranks (row_of), one message a figure. All
// ranks must therefore ask for the same figures in the same order: the constructor makes
// each row on every rank, and only afterwards leaves out those that say nothing, which
// all ranks know by then.
#include "report/section_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/format.hpp"

namespace trireme::report {

namespace {

// Seconds in five characters or so, whatever their size.
std::string seconds_text(double seconds) {
  if (seconds < 10.0) return fmt::format("{:.3f}", seconds);
  if (seconds < 1000.0) return fmt::format("{:.2f}", seconds);
  return fmt::format("{:.1f}", seconds);
}

std::string capitalised(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(text[0]));
  return text;
}

SectionTable::Row row_of(std::string name, const std::vector<double>& values) {
  SectionTable::Row row;
  row.name = std::move(name);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  row.min = *low;
  row.max = *high;
  for (const double one : values) row.avg += one / static_cast<double>(values.size());
  row.avg = std::clamp(row.avg, row.min, row.max);  // rounding
  return row;
}

SectionTable::Row row_of(comm::Communicator& world, std::string name, double value) {
  return row_of(std::move(name), world.gather(value));
}

// All tables have columns of the same width: a name, then figures.
std::string table_line(const std::string& name, const std::vector<std::string>& cells) {
  std::string line = fmt::format("{:<13}", name);
  for (const std::string& cell : cells) line += fmt::format(" | {:>9}", cell);
  return line + '\n';
}

std::string table_head(const std::string& name, const std::vector<std::string>& cells) {
  std::string line = '\n' + table_line(name, cells) + std::string(14, '-');
  for (std::size_t c = 0; c < cells.size(); ++c) line += '+' + std::string(11, '-');
  line.back() = '\n';
  return line;
}

}  // namespace

SectionTable::SectionTable(comm::Communicator& world, const RunTimes& times)
    : times_(times), ranks_(world.size()) {
  const Row loop = row_of(world, "loop", times.loop_seconds);
  loop_seconds_ = loop.max;
  step_seconds_ = row_of(world, "steps", times.step_seconds).max;
  step_median_ = row_of(world, "median", times.step_median).max;
  const Row best = row_of(world, "best", times.peak.best);
  peak_ = {.best = best.avg,
           .least = row_of(world, "least", times.peak.least).min,
           .probes = static_cast<int>(row_of(world, "probes", times.peak.probes).max)};
  highest_peak_ = best.max;
  for (int i = 0; i < kSectionCount; ++i) {
    Row row = row_of(world, std::string(name_of(static_cast<Section>(i))),
                     times.seconds[static_cast<std::size_t>(i)]);
    row.share = loop.avg > 0.0 ? row.avg / loop.avg : 0.0;
    rows_.push_back(std::move(row));
  }
  for (const AxisTraffic& axis : times.traffic) {
    const comm::Traffic& traffic = axis.traffic;
    const auto over_ranks = [&](double value) { return row_of(world, axis.axis, value); };
    const TrafficRow row{
        .axis = axis.axis,
        .calls = over_ranks(static_cast<double>(traffic.calls)).max,
        .bytes = over_ranks(static_cast<double>(traffic.bytes)).max,
        .has_seconds = traffic.has_seconds,
        .in_flight = over_ranks(traffic.under_way_seconds).avg,
        .exposed = over_ranks(traffic.seconds + traffic.progress_seconds).avg};
    if (row.calls > 0.0) traffic_.push_back(row);
  }
  for (const MemoryUse& use : times.memory) {
    MemoryRow row{use.name, world.gather(use.planned), world.gather(use.measured)};
    if (row.most_planned() > 0.0 || row.row().max > 0.0)
      memory_.push_back(std::move(row));
  }
}

double SectionTable::MemoryRow::most_planned() const {
  return std::ranges::max(planned);
}

SectionTable::Row SectionTable::MemoryRow::row() const {
  return row_of(name, measured);
}

double SectionTable::TrafficRow::hidden() const {
  return in_flight > 0.0 ? std::clamp(1.0 - exposed / in_flight, 0.0, 1.0) : 0.0;
}

// An amount of all steps.
double SectionTable::per_second(double amount) const {
  return step_median_ > 0.0 && times_.steps > 0
             ? amount / (step_median_ * static_cast<double>(times_.steps))
             : 0.0;
}

double SectionTable::other_share() const {
  return loop_seconds_ > 0.0 ? std::max(0.0, 1.0 - step_seconds_ / loop_seconds_) : 0.0;
}

double SectionTable::tokens_per_second() const {
  return per_second(static_cast<double>(times_.tokens));
}

double SectionTable::model_tflops() const {
  return per_second(times_.model_flops) * 1e-12 / ranks_;
}

double SectionTable::hardware_tflops() const {
  return per_second(times_.hardware_flops) * 1e-12 / ranks_;
}

double SectionTable::peak_share() const {
  return peak_.best > 0.0 ? hardware_tflops() / peak_.best
                          : std::numeric_limits<double>::quiet_NaN();
}

std::string SectionTable::text() const {
  std::string out =
      fmt::format("Loop time {} s on {} x {}: {}, {}\n", seconds_text(loop_seconds_),
                  format_plural(ranks_, "rank"), format_plural(times_.threads, "thread"),
                  format_plural(times_.steps, "step"),
                  format_count(static_cast<double>(times_.tokens), "token"));
  return out + speed_text() + sections_text() + traffic_text() + memory_text();
}

std::string SectionTable::speed_text() const {
  const char* per_device = ranks_ > 1 ? " per device" : "";
  std::string out =
      fmt::format("Performance: {}, {}", format_rate(tokens_per_second(), "tokens"),
                  format_rate(per_second(static_cast<double>(times_.steps)), "steps"));
  if (times_.model_flops > 0.0) {
    out += fmt::format(", {}{}", format_flops(model_tflops()), per_device);
  }
  if (times_.steps > 0) {
    const double mean = step_seconds_ / static_cast<double>(times_.steps);
    out += fmt::format("\n             in steps of {} (median; mean {}); {} other work",
                       format_duration(step_median_), format_duration(mean),
                       format_percent(other_share()));
  }
  if (peak_.best > 0.0 && times_.hardware_flops > 0.0) {
    out +=
        fmt::format("\n             {} of the measured GEMM peak, {}{}",
                    format_percent(peak_share()), format_flops(peak_.best), per_device);
    out += fmt::format("\n             (best of {}: {} to {})",
                       format_plural(peak_.probes, "probe"), format_flops(peak_.least),
                       format_flops(highest_peak_));
  }
  return out + "\n";
}

std::string SectionTable::sections_text() const {
  std::string out = table_head("Section", {"min (s)", "avg (s)", "max (s)", "%total"});
  for (const Row& row : rows_) {
    out += table_line(capitalised(row.name),
                      {seconds_text(row.min), seconds_text(row.avg),
                       seconds_text(row.max), fmt::format("{:.2f}", 100.0 * row.share)});
  }
  return out;
}

std::string SectionTable::traffic_text() const {
  if (traffic_.empty()) return {};
  std::string out =
      table_head("Messages", {"calls", "payload", "flight(s)", "expos.(s)", "hidden"});
  for (const TrafficRow& row : traffic_) {
    std::vector<std::string> cells = {format_count(row.calls), format_bytes(row.bytes),
                                      "-", "-", "-"};
    if (row.has_seconds) {
      cells[2] = seconds_text(row.in_flight);
      cells[3] = seconds_text(row.exposed);
      cells[4] = format_percent(row.hidden());
    }
    out += table_line(capitalised(row.axis), cells);
  }
  return out;
}

std::string SectionTable::memory_text() const {
  if (memory_.empty()) return {};
  std::string out = table_head("Memory", {"planned", "min", "avg", "max"});
  for (const MemoryRow& memory : memory_) {
    const Row row = memory.row();
    const double planned = memory.most_planned();
    out += table_line(capitalised(row.name),
                      {planned > 0.0 ? format_bytes(planned) : "-", format_bytes(row.min),
                       format_bytes(row.avg), format_bytes(row.max)});
  }
  return out;
}

nlohmann::ordered_json SectionTable::json() const {
  using Json = nlohmann::ordered_json;
  Json sections = Json::object(), messages = Json::object();
  for (const Row& row : rows_) {
    sections[row.name] = {{"seconds_min", row.min},
                          {"seconds_avg", row.avg},
                          {"seconds_max", row.max},
                          {"share", row.share}};
  }
  for (const TrafficRow& row : traffic_) {
    Json& message = messages[row.axis] = {{"calls", row.calls}, {"bytes", row.bytes}};
    if (!row.has_seconds) continue;
    message.update({{"seconds_in_flight", row.in_flight},
                    {"seconds_exposed", row.exposed},
                    {"hidden_share", row.hidden()}});
  }
  return {{"loop_seconds", loop_seconds_},
          {"step_seconds", step_seconds_},
          {"step_seconds_median", step_median_},
          {"other_share", other_share()},
          {"ranks", ranks_},
          {"threads_per_rank", times_.threads},
          {"steps", times_.steps},
          {"samples", times_.samples},
          {"tokens", times_.tokens},
          {"tokens_per_second", tokens_per_second()},
          {"model_tflops", model_tflops()},
          {"hardware_tflops", hardware_tflops()},
          {"peak_tflops", peak_.best},
          {"peak_tflops_least", peak_.least},
          {"peak_tflops_most", highest_peak_},
          {"peak_probes", peak_.probes},
          {"peak_share", peak_share()},
          {"sections", sections},
          {"messages", messages},
          {"memory", memory_json(memory_)}};
}

nlohmann::ordered_json memory_json(const std::vector<SectionTable::MemoryRow>& rows,
                                   const std::function<bool(int)>& is_of) {
  auto memory = nlohmann::ordered_json::object();
  for (const SectionTable::MemoryRow& all : rows) {
    SectionTable::MemoryRow some{all.name, {}, {}};
    for (std::size_t rank = 0; rank < all.measured.size(); ++rank) {
      if (is_of && !is_of(static_cast<int>(rank))) continue;
      some.planned.push_back(all.planned.at(rank));
      some.measured.push_back(all.measured[rank]);
    }
    if (some.measured.empty()) continue;
    const SectionTable::Row row = some.row();
    memory[row.name] = {{"bytes_planned", some.most_planned()},
                        {"bytes_min", row.min},
                        {"bytes_avg", row.avg},
                        {"bytes_max", row.max}};
  }
  return memory;
}

}  // namespace trireme::report
