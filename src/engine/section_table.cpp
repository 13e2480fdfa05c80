// engine/section_table.cpp — see section_table.hpp.
#include "engine/section_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/format.hpp"

namespace trireme::engine {

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

SectionTable::Row row_of(comm::Communicator& world, std::string name, double value) {
  const std::vector<double> values = world.gather(value);
  SectionTable::Row row;
  row.name = std::move(name);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  row.min = *low;
  row.max = *high;
  for (const double one : values) row.avg += one / static_cast<double>(values.size());
  row.avg = std::clamp(row.avg, row.min, row.max);  // rounding
  return row;
}

}  // namespace

SectionTable::SectionTable(comm::Communicator& world, const RunTimes& times)
    : times_(times), ranks_(world.size()) {
  const Row loop = row_of(world, "loop", times.loop_seconds);
  loop_seconds_ = loop.max;
  peak_tflops_ = row_of(world, "peak", times.peak_tflops).avg;
  for (int i = 0; i < kSectionCount; ++i) {
    Row row = row_of(world, std::string(name_of(static_cast<Section>(i))),
                     times.seconds[static_cast<std::size_t>(i)]);
    row.share = loop.avg > 0.0 ? row.avg / loop.avg : 0.0;
    rows_.push_back(std::move(row));
  }
  for (const auto& [name, bytes] : times.memory) {
    memory_.push_back(row_of(world, name, bytes));
  }
}

double SectionTable::per_second(double amount) const {
  return loop_seconds_ > 0.0 ? amount / loop_seconds_ : 0.0;
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
  return peak_tflops_ > 0.0 ? hardware_tflops() / peak_tflops_
                            : std::numeric_limits<double>::quiet_NaN();
}

std::string SectionTable::text() const {
  std::string out = fmt::format(
      "Loop time {} s on {} rank{} x {} thread{}: {} steps, {} tokens\n",
      seconds_text(loop_seconds_), ranks_, ranks_ == 1 ? "" : "s", times_.threads,
      times_.threads == 1 ? "" : "s", format_grouped(times_.steps),
      format_count(static_cast<double>(times_.tokens)));
  out += fmt::format("Performance: {}, {}", format_rate(tokens_per_second(), "tokens"),
                     format_rate(per_second(static_cast<double>(times_.steps)), "steps"));
  if (times_.model_flops > 0.0) {
    out += fmt::format(", {}{}", format_flops(model_tflops()),
                       ranks_ > 1 ? " per device" : "");
  }
  if (peak_tflops_ > 0.0 && times_.hardware_flops > 0.0) {
    out += fmt::format("\n             {} of the measured GEMM peak ({}{})",
                       format_percent(peak_share()), format_flops(peak_tflops_),
                       ranks_ > 1 ? " per device" : "");
  }

  out += "\n\nSection       |   min (s) |   avg (s) |   max (s) | %total\n";
  out += std::string(14, '-') + "+" + std::string(11, '-') + "+" + std::string(11, '-') +
         "+" + std::string(11, '-') + "+-------\n";
  for (const Row& row : rows_) {
    out += fmt::format("{:<13} | {:>9} | {:>9} | {:>9} | {:>6.2f}\n",
                       capitalised(row.name), seconds_text(row.min),
                       seconds_text(row.avg), seconds_text(row.max), 100.0 * row.share);
  }

  if (!memory_.empty()) {
    const std::string head =
        fmt::format("Memory{}: ", ranks_ > 1 ? " of the fullest rank" : "");
    std::vector<std::string> list;
    for (const Row& row : memory_) {
      list.push_back(fmt::format("{} {}", row.name, format_bytes(row.max)));
    }
    out += '\n' + head + wrap_list(list, 80, static_cast<int>(head.size())) + '\n';
  }
  return out;
}

std::string SectionTable::json() const {
  using Json = nlohmann::ordered_json;
  Json sections = Json::object(), memory = Json::object();
  for (const Row& row : rows_) {
    sections[row.name] = {
        {"min", row.min}, {"avg", row.avg}, {"max", row.max}, {"share", row.share}};
  }
  for (const Row& row : memory_) {
    memory[row.name] = {{"min", row.min}, {"avg", row.avg}, {"max", row.max}};
  }
  const Json json = {{"loop_seconds", loop_seconds_},
                     {"ranks", ranks_},
                     {"threads", times_.threads},
                     {"steps", times_.steps},
                     {"samples", times_.samples},
                     {"tokens", times_.tokens},
                     {"tokens_per_second", tokens_per_second()},
                     {"model_tflops", model_tflops()},
                     {"hardware_tflops", hardware_tflops()},
                     {"peak_tflops", peak_tflops_},
                     {"peak_share", peak_share()},
                     {"sections", sections},
                     {"memory_bytes", memory}};
  return json.dump(2);
}

}  // namespace trireme::engine
