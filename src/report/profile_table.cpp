// report/profile_table.cpp — see profile_table.hpp.
//
// Every rank makes a RankProfile and sends it to rank 0 as text, where the ProfileTable
// is made: stages of a pipeline run different kernels, so there is no list that all ranks
// share. Example with two ranks: an attention kernel that takes 3 ms on rank 0 and 5 ms
// on rank 1 is one row of 4 ms, at most 5 ms on rank 1; the embedding, which rank 0 alone
// has and which takes it 2 ms, is one of 1 ms, at most 2 ms on rank 0. So the rows of a
// table add up to the mean step.
#include "report/profile_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "base/error.hpp"
#include "base/format.hpp"
#include "io/json.hpp"
#include "report/ratio.hpp"

namespace trireme::report {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kProfileSchema = 1;
// Of a step; what takes less stands in one line together.
constexpr double kLeastShownShare = 0.001;
constexpr const char* kOther = "other";

std::string_view region_name(Section section, Component component) {
  switch (section) {
    case Section::data:
    case Section::optimizer:
    case Section::communication:
      return name_of(section);
    default:
      return component == Component::none ? kOther : name_of(component);
  }
}

std::string kernel_name(std::string_view label) {
  constexpr std::string_view kPrefix = "trireme::";
  if (label.starts_with(kPrefix)) label.remove_prefix(kPrefix.size());
  return std::string(label);
}

bool is_in_layer(const KernelUse& use) {
  return use.region == name_of(Component::norms) ||
         use.region == name_of(Component::attention) ||
         use.region == name_of(Component::mlp);
}

// Whether it is neither a matrix product nor a kernel of attention.
bool passes_over_rows(const KernelUse& use) {
  return use.flops == 0.0 && use.kernel.find("::attention_") == std::string::npos;
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.2f}", 1e3 * seconds);
}

std::string percent(double part, double whole) {
  return whole > 0.0 && part > 0.0 ? fmt::format("{:.0f}", 100.0 * part / whole) : "-";
}

std::string giga(double amount, double seconds) {
  return amount > 0.0 && seconds > 0.0 ? fmt::format("{:.1f}", 1e-9 * amount / seconds)
                                       : "-";
}

// Of one rank, in one step. What no other region has is the last, "other".
std::vector<ProfileTable::Region> regions_of(const RankProfile& rank) {
  const auto steps = static_cast<double>(rank.steps);
  std::vector<ProfileTable::Region> regions;
  for (const std::string_view name :
       {name_of(Component::embedding), name_of(Component::norms),
        name_of(Component::attention), name_of(Component::mlp), name_of(Component::head),
        name_of(Section::optimizer), name_of(Section::communication),
        name_of(Section::data), std::string_view(kOther)}) {
    regions.push_back({.name = std::string(name)});
  }
  for (const KernelUse& use : rank.kernels) {
    const auto found =
        std::ranges::find(regions, use.region, &ProfileTable::Region::name);
    TRIREME_REQUIRE(found != regions.end(), "no region '{}'", use.region);
    const double seconds = use.seconds / steps;
    found->seconds += seconds;
    found->bound += use.bound / steps;
    found->flops += use.flops / steps;
    found->bytes += use.bytes / steps;
    if (use.section == name_of(Section::forward)) found->forward += seconds;
    if (use.section == name_of(Section::backward)) found->backward += seconds;
  }
  double rest = rank.seconds / steps;
  for (ProfileTable::Region& region : regions) {
    // What the rank waits, kernels within that included.
    if (region.name == name_of(Section::communication)) {
      region.seconds = rank.communication / steps;
    }
    if (region.name == name_of(Section::data)) region.seconds = rank.data / steps;
    if (region.name != kOther) rest -= region.seconds;
  }
  regions.back().seconds = rest;
  return regions;
}

// A name of any length, then figures: on a line of their own where the name is too long.
std::string kernel_line(const std::string& name, const std::vector<std::string>& cells) {
  constexpr int kNameWidth = 33;
  constexpr int kWidths[] = {6, 8, 6, 8, 6, 8, 5};
  std::string line = fmt::format("{:<{}}", name, kNameWidth);
  if (static_cast<int>(name.size()) > kNameWidth) {
    line += fmt::format("\n{:{}}", "", kNameWidth);
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    line += fmt::format("{:>{}}", cells[i], kWidths[i]);
  }
  return line + "\n";
}

std::string region_line(const std::string& name, const std::vector<std::string>& cells) {
  std::string line = fmt::format("{:<13}", name);
  for (const std::string& cell : cells) line += fmt::format(" | {:>8}", cell);
  return line + "\n";
}

}  // namespace

void RankProfile::take(const KernelProfile& profile) {
  layers = profile.visits(Section::forward, Component::norms);
  std::map<std::tuple<std::string, std::string_view, std::string_view>, KernelUse> uses;
  for (const KernelRecord& record : profile.records()) {
    const auto calls = static_cast<double>(record.calls);
    const auto bytes = static_cast<double>(record.cost.bytes);
    const std::string kernel = kernel_name(record.label);
    const std::string_view region = region_name(record.section, record.component);
    const std::string_view section = name_of(record.section);
    KernelUse& use = uses[{kernel, region, section}];
    use.kernel = kernel;
    use.region = region;
    use.section = section;
    use.calls += calls;
    use.flops += calls * record.cost.flops;
    use.masked_flops += calls * record.cost.masked_flops;
    use.bytes += calls * bytes;
    use.seconds += record.seconds;
    use.bound += calls * std::max(ratio(record.cost.flops - record.cost.masked_flops,
                                        machine.flops),
                                  ratio(bytes, machine.bytes));
  }
  kernels.clear();
  for (auto& [key, use] : uses) kernels.push_back(std::move(use));
}

std::string RankProfile::text() const {
  Json list = Json::array();
  for (const KernelUse& use : kernels) {
    list.push_back({{"kernel", use.kernel},
                    {"region", use.region},
                    {"section", use.section},
                    {"calls", use.calls},
                    {"flops", use.flops},
                    {"masked_flops", use.masked_flops},
                    {"bytes", use.bytes},
                    {"seconds", use.seconds},
                    {"bound", use.bound}});
  }
  return io::json_text(Json{{"steps", steps},
                            {"seconds", seconds},
                            {"communication", communication},
                            {"data", data},
                            {"peak_flops", machine.flops},
                            {"peak_bytes", machine.bytes},
                            {"layers", layers},
                            {"row_bytes", row_bytes},
                            {"kernels", std::move(list)}});
}

RankProfile RankProfile::of_text(const std::string& text) {
  const auto json = io::parse_json<Json>(text);
  const auto number = [](const Json& of, const char* key) {
    return io::json_value<double>(of, key);
  };
  RankProfile profile{.steps = io::json_value<std::int64_t>(json, "steps"),
                      .seconds = number(json, "seconds"),
                      .communication = number(json, "communication"),
                      .data = number(json, "data"),
                      .machine = {.flops = number(json, "peak_flops"),
                                  .bytes = number(json, "peak_bytes")},
                      .layers = io::json_value<std::int64_t>(json, "layers"),
                      .row_bytes = number(json, "row_bytes"),
                      .kernels = {}};
  for (const Json& use : io::json_list(json, "kernels")) {
    profile.kernels.push_back({.kernel = io::json_value<std::string>(use, "kernel"),
                               .region = io::json_value<std::string>(use, "region"),
                               .section = io::json_value<std::string>(use, "section"),
                               .calls = number(use, "calls"),
                               .flops = number(use, "flops"),
                               .masked_flops = number(use, "masked_flops"),
                               .bytes = number(use, "bytes"),
                               .seconds = number(use, "seconds"),
                               .bound = number(use, "bound")});
  }
  return profile;
}

ProfileTable::ProfileTable(Title title, const std::vector<RankProfile>& ranks)
    : title_(title), ranks_(static_cast<int>(ranks.size())) {
  TRIREME_REQUIRE(!ranks.empty() && ranks.front().steps > 0, "a profile of no steps");
  for (const RankProfile& rank : ranks) {
    const double seconds = rank.seconds / static_cast<double>(rank.steps);
    step_seconds_ += seconds / ranks_;
    if (seconds > most_step_seconds_) {
      most_step_seconds_ = seconds;
      most_step_rank_ = static_cast<int>(&rank - ranks.data());
    }
    machine_.flops += rank.machine.flops / ranks_;
    machine_.bytes += rank.machine.bytes / ranks_;
  }
  merge_kernels(ranks);
  merge_regions(ranks);
  count_passes(ranks);
}

void ProfileTable::merge_kernels(const std::vector<RankProfile>& ranks) {
  std::map<std::tuple<std::string, std::string, std::string>, KernelUse> uses;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto steps = static_cast<double>(ranks[r].steps);
    const double share = 1.0 / (steps * ranks_);
    for (const KernelUse& use : ranks[r].kernels) {
      KernelUse& sum = uses[{use.kernel, use.region, use.section}];
      sum.kernel = use.kernel;
      sum.region = use.region;
      sum.section = use.section;
      sum.calls += share * use.calls;
      sum.flops += share * use.flops;
      sum.masked_flops += share * use.masked_flops;
      sum.bytes += share * use.bytes;
      sum.seconds += share * use.seconds;
      sum.bound += share * use.bound;
      if (use.seconds / steps > sum.most_seconds) {
        sum.most_seconds = use.seconds / steps;
        sum.most_rank = static_cast<int>(r);
      }
    }
  }
  for (auto& [key, use] : uses) {
    roofline_ += use.bound;
    kernels_.push_back(std::move(use));
  }
  std::ranges::stable_sort(kernels_, std::ranges::greater(), &KernelUse::seconds);
}

void ProfileTable::merge_regions(const std::vector<RankProfile>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<Region> mine = regions_of(ranks[r]);
    if (regions_.empty()) {
      for (const Region& region : mine) regions_.push_back({.name = region.name});
    }
    for (std::size_t i = 0; i < mine.size(); ++i) {
      Region& sum = regions_[i];
      sum.forward += mine[i].forward / ranks_;
      sum.backward += mine[i].backward / ranks_;
      sum.seconds += mine[i].seconds / ranks_;
      sum.bound += mine[i].bound / ranks_;
      sum.flops += mine[i].flops / ranks_;
      sum.bytes += mine[i].bytes / ranks_;
      if (mine[i].seconds > sum.most_seconds) {
        sum.most_seconds = mine[i].seconds;
        sum.most_rank = static_cast<int>(r);
      }
    }
  }
}

void ProfileTable::count_passes(const std::vector<RankProfile>& ranks) {
  double layers = 0.0, forward = 0.0, backward = 0.0;
  for (const RankProfile& rank : ranks) {
    layers += static_cast<double>(rank.layers) * rank.row_bytes;
    for (const KernelUse& use : rank.kernels) {
      if (!is_in_layer(use) || !passes_over_rows(use)) continue;
      (use.section == name_of(Section::forward) ? forward : backward) += use.bytes;
    }
  }
  passes_forward_ = ratio(forward, layers);
  passes_backward_ = ratio(backward, layers);
}

std::string ProfileTable::head_text() const {
  std::string text = fmt::format(
      "Profile of {} ({} to {}) in {}: {} a step{}\n",
      format_plural(title_.last_step - title_.first_step + 1, "step"),
      format_grouped(title_.first_step), format_grouped(title_.last_step),
      name_of(title_.type), format_duration(step_seconds_),
      ranks_ > 1 ? fmt::format(", mean of {}", format_plural(ranks_, "rank")) : "");
  text += fmt::format("Roofline {}, {} of the step: products at {}, memory at {}\n",
                      format_duration(roofline_),
                      format_percent(ratio(roofline_, step_seconds_)),
                      format_flops(1e-12 * machine_.flops),
                      fmt::format("{:.1f} GB/s", 1e-9 * machine_.bytes));
  return text + fmt::format(
                    "Passes over (rows, h) per layer outside products and attention: "
                    "{:.1f}\n",
                    passes_per_layer());
}

std::string ProfileTable::regions_text() const {
  const bool is_one = ranks_ == 1;
  std::string text = "\n" + region_line("Region", {is_one ? "forward" : "max",
                                                   is_one ? "backward" : "rank", "ms",
                                                   "%step", "bound", "%bound"});
  text += std::string(14, '-');
  for (int i = 0; i < 6; ++i) text += '+' + std::string(i < 5 ? 10 : 9, '-');
  text += "\n";
  const auto cell = [](double seconds) {
    return seconds != 0.0 ? milliseconds(seconds) : "-";
  };
  const auto line = [&](const Region& of) {
    return region_line(of.name,
                       {cell(is_one ? of.forward : of.most_seconds),
                        is_one                  ? cell(of.backward)
                        : of.most_seconds > 0.0 ? fmt::format("{}", of.most_rank)
                                                : "-",
                        milliseconds(of.seconds),
                        fmt::format("{:.1f}", 100.0 * ratio(of.seconds, step_seconds_)),
                        cell(of.bound), percent(of.bound, of.seconds)});
  };
  Region sum{.name = "step"};
  for (const Region& region : regions_) {
    text += line(region);
    sum.forward += region.forward;
    sum.backward += region.backward;
    sum.seconds += region.seconds;
    sum.bound += region.bound;
  }
  sum.most_seconds = most_step_seconds_;
  sum.most_rank = most_step_rank_;
  return text + line(sum);
}

std::vector<KernelUse> ProfileTable::kernels_of_all_sections() const {
  std::vector<KernelUse> merged;
  for (const KernelUse& use : kernels_) {
    const auto found = std::ranges::find_if(merged, [&](const KernelUse& other) {
      return other.kernel == use.kernel && other.region == use.region;
    });
    if (found == merged.end()) {
      merged.push_back(use);
      continue;
    }
    found->calls += use.calls;
    found->flops += use.flops;
    found->masked_flops += use.masked_flops;
    found->bytes += use.bytes;
    found->seconds += use.seconds;
    found->bound += use.bound;
  }
  std::ranges::stable_sort(merged, std::ranges::greater(), &KernelUse::seconds);
  return merged;
}

std::string ProfileTable::kernels_text() const {
  std::string text = "\n" +
                     kernel_line("Kernel", {"calls", "ms", "%step", "GFLOP/s", "GB/s",
                                            "bound", "%bnd"}) +
                     std::string(kScreenColumns, '-') + "\n";
  const auto line = [&](const std::string& name, const KernelUse& use) {
    return kernel_line(
        name, {fmt::format("{:.0f}", use.calls), milliseconds(use.seconds),
               fmt::format("{:.1f}", 100.0 * ratio(use.seconds, step_seconds_)),
               giga(use.needed_flops(), use.seconds), giga(use.bytes, use.seconds),
               use.bound > 0.0 ? milliseconds(use.bound) : "-",
               percent(use.bound, use.seconds)});
  };
  KernelUse rest;
  for (const KernelUse& use : kernels_of_all_sections()) {
    if (use.seconds < kLeastShownShare * step_seconds_) {
      rest.calls += use.calls;
      rest.seconds += use.seconds;
      rest.bound += use.bound;
      continue;
    }
    std::string_view name = use.kernel;
    constexpr std::string_view kUsual = "kernels::";
    if (name.starts_with(kUsual)) name.remove_prefix(kUsual.size());
    text += line(fmt::format("{} ({})", name, use.region), use);
  }
  if (rest.calls > 0.0) text += line("all others", rest);
  return text;
}

std::string ProfileTable::text() const {
  return head_text() + regions_text() + kernels_text();
}

std::string ProfileTable::json() const {
  Json regions = Json::object(), kernels = Json::array();
  for (const Region& region : regions_) {
    regions[region.name] = {{"seconds", region.seconds},
                            {"seconds_forward", region.forward},
                            {"seconds_backward", region.backward},
                            {"seconds_max", region.most_seconds},
                            {"rank_max", region.most_rank},
                            {"share", ratio(region.seconds, step_seconds_)},
                            {"flops", region.flops},
                            {"bytes", region.bytes},
                            {"bound_seconds", region.bound},
                            {"bound_share", ratio(region.bound, region.seconds)}};
  }
  for (const KernelUse& use : kernels_) {
    kernels.push_back(
        {{"kernel", use.kernel},
         {"region", use.region},
         {"section", use.section},
         {"calls", use.calls},
         {"seconds", use.seconds},
         {"seconds_max", use.most_seconds},
         {"rank_max", use.most_rank},
         {"share", ratio(use.seconds, step_seconds_)},
         {"flops", use.flops},
         {"masked_flops", use.masked_flops},
         {"bytes", use.bytes},
         {"gflops_per_second", 1e-9 * ratio(use.needed_flops(), use.seconds)},
         {"gigabytes_per_second", 1e-9 * ratio(use.bytes, use.seconds)},
         {"bound_seconds", use.bound},
         {"bound_share", ratio(use.bound, use.seconds)}});
  }
  const Json json = {{"schema_version", kProfileSchema},
                     {"start", title_.start},
                     {"first_step", title_.first_step},
                     {"last_step", title_.last_step},
                     {"ranks", ranks_},
                     {"compute_type", name_of(title_.type)},
                     {"step_seconds", step_seconds_},
                     {"step_seconds_max", most_step_seconds_},
                     {"peak_tflops", 1e-12 * machine_.flops},
                     {"peak_gigabytes_per_second", 1e-9 * machine_.bytes},
                     {"roofline_seconds", roofline_},
                     {"roofline_share", ratio(roofline_, step_seconds_)},
                     {"passes_per_layer",
                      {{"forward", passes_forward_},
                       {"backward", passes_backward_},
                       {"all", passes_per_layer()}}},
                     {"regions", std::move(regions)},
                     {"kernels", std::move(kernels)}};
  return io::json_text(json, 2) + "\n";
}

}  // namespace trireme::report
