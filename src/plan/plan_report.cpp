// plan/plan_report.cpp — see plan_report.hpp.
//
// The table has one line of reasons for each grid that was not taken, since whoever plans
// wants to know what another grid would cost, not which other variants of the best one
// are nearly as good. What would be faster if it fitted stands apart: it tells how much
// memory is worth. The deck that is written is a resolved one, so that it trains as it
// was planned whatever later versions take for defaults.
#include "plan/plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"
#include "config/capability.hpp"
#include "config/load.hpp"
#include "io/json.hpp"
#include "plan/counts.hpp"
#include "step/deck_model.hpp"

namespace trireme::plan {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kTera = 1e12, kSecondsOfDay = 86400.0;
constexpr int kValueColumn = 28;

std::string report_line(const std::string& name, const std::string& value) {
  return fmt::format("  {:<{}}{}\n", name, kValueColumn - 2, value);
}

std::string seconds_text(double seconds) {
  return seconds < 1.0 ? fmt::format("{:.1f} ms", 1e3 * seconds)
                       : fmt::format("{:.2f} s", seconds);
}

// Another layout beside the best, and why it is not the best.
std::string other_text(const Plan& plan, const std::string& why) {
  return fmt::format("  {:<18}{:>9}  {}\n      {}\n", plan.layout.grid_text(),
                     seconds_text(plan.seconds()), why, plan.layout.text());
}

struct MemoryPart {
  const char* name;
  double LayoutMemory::*bytes;
};
constexpr MemoryPart kMemoryParts[] = {
    {"weights", &LayoutMemory::weights},     {"gradients", &LayoutMemory::gradients},
    {"optimizer", &LayoutMemory::optimizer}, {"activations", &LayoutMemory::activations},
    {"scratch", &LayoutMemory::scratch},     {"buffers", &LayoutMemory::other},
    {"libraries", &LayoutMemory::reserved}};

std::string key_of(std::string name) {
  std::ranges::replace(name, ' ', '_');
  return name;
}

Json layout_json(const Layout& layout) {
  return {{"tensor", layout.tensor},
          {"pipeline", layout.pipeline},
          {"virtual_pipeline", layout.chunks},
          {"data", layout.data},
          {"sequence", layout.sequence},
          {"zero", layout.zero},
          {"schedule", config::name_of(layout.schedule)},
          {"micro", layout.micro},
          {"recompute", config::name_of(layout.recompute)}};
}

const char* name_of(Schedule schedule) {
  switch (schedule) {
    case Schedule::estimated:
      return "estimated";
    case Schedule::by_rule:
      return "simulated by rule";
    case Schedule::of_run:
      return "simulated as a run";
  }
  return "";
}

// "bubble +3.1 s, optimizer +0.2 s".
std::string why_slower(const Plan& best, const Plan& other) {
  std::string text;
  for (const LostTime& lost : lost_time(best, other)) {
    text += fmt::format("{}{} +{}", text.empty() ? "" : ", ", lost.part,
                        seconds_text(lost.seconds));
  }
  return text.empty() ? "a little of everything" : text;
}

Json lost_json(const Plan& best, const Plan& other) {
  Json list = Json::array();
  for (const LostTime& lost : lost_time(best, other)) {
    list.push_back({{"part", key_of(lost.part)}, {"seconds", lost.seconds}});
  }
  return list;
}

Json plan_json(const Plan& plan, double nominal) {
  const Prediction& prediction = plan.prediction;
  Json parts, memory;
  for (const NamedPart& part : step_parts()) {
    parts[key_of(part.name)] = prediction.parts.*part.seconds;
  }
  for (const MemoryPart& part : kMemoryParts) {
    memory[part.name] = plan.memory.*part.bytes;
  }
  memory["total"] = plan.memory.total();
  return {{"layout", layout_json(plan.layout)},
          {"step_seconds", plan.seconds()},
          {"time_by", name_of(prediction.schedule)},
          {"parts", parts},
          {"model_tflops", prediction.model_rate() / kTera},
          {"hardware_tflops", prediction.hardware_rate() / kTera},
          {"share_of_peak", prediction.model_rate() / nominal},
          {"memory", memory}};
}

// Kinds of models that cannot be planned, by what the deck says.
void require_plannable(const config::Deck& deck) {
  for (const config::NotTrained& lack : config::not_trained(deck)) {
    TRIREME_REQUIRE_INPUT(lack.told == config::Told::memory,
                          "{}: {} cannot be planned yet ({})", lack.key, lack.value,
                          lack.reason);
  }
}

// "1.25 x the time of the machine file", and of messages what became of it.
std::string factor_text(const Calibration::Factor& factor) {
  if (!factor.factor) return "as in the machine file; " + factor.why;
  const std::string text =
      fmt::format("{:.2f} x the time of the machine file", *factor.factor);
  if (factor.level.empty()) return text;
  return text + (factor.is_applied
                     ? fmt::format(", on {}", factor.level)
                     : fmt::format("; not applied, as {} has one above", factor.level));
}

std::string calibrated_line(const std::string& name, const std::string& value) {
  return report_line(name, wrap_words(value, kScreenColumns, kValueColumn));
}

// Whose network it is, and what of it the run did not set and is not as its file says.
std::string calibrated_network_text(const Calibration& calibration,
                                    const Machine& machine) {
  if (!machine.network_of.empty()) {
    return wrap_lines(
        fmt::format("the network of {} is as its file says: factors of "
                    "messages are of the run's own network\n",
                    machine.network_of));
  }
  std::string text;
  for (const Calibration::BoundLevel& bound : calibration.bound_levels) {
    text += calibrated_line(
        bound.level,
        fmt::format("{:.3g} GB/s in place of {:.3g} GB/s of the machine file: what is "
                    "nearer is not slower to reach ({})",
                    1e-9 * bound.bandwidth, 1e-9 * bound.of_file, bound.neighbour));
  }
  return text;
}

// The machine file of the calibration is what the search went by. `type`: that the deck
// computes in.
std::string calibration_text(const Calibration& calibration, const Machine& machine,
                             DType type) {
  // The file has a line of its own, so that no number is parted from its unit.
  std::string text = wrap_lines(fmt::format(
      "calibrated by {}\nits step of {} is reproduced as {}, {:+.1f} %; expect other "
      "layouts no nearer\n",
      calibration.file, seconds_text(calibration.measured),
      seconds_text(calibration.reproduced), 100.0 * calibration.error()));
  if (type != calibration.type) {
    text += wrap_lines(
        fmt::format("the run computed in {}: kernels of {} are as in the machine file, "
                    "and how far off they are it does not say\n",
                    ByType::key_of(calibration.type), ByType::key_of(type)));
  }
  for (const Calibration::Factor& factor : calibration.factors) {
    text += calibrated_line(factor.part, factor_text(factor));
  }
  text += calibrated_network_text(calibration, machine);
  if (calibration.doubts.empty()) return text;
  text += "not to be trusted: it is hardly a run on the machine of that file\n";
  for (const std::string& doubt : calibration.doubts) {
    text += wrap_lines(fmt::format("  {}\n", doubt));
  }
  return text;
}

Json calibration_json(const Calibration& calibration, DType type) {
  Json factors = Json::object(), levels = Json::object(), bounds = Json::array();
  for (const Calibration::Factor& factor : calibration.factors) {
    const std::string key = key_of(factor.part);
    factors[key] = factor.factor ? Json(*factor.factor) : Json();
    if (!factor.level.empty() && factor.is_applied) levels[key] = factor.level;
  }
  for (const Calibration::BoundLevel& bound : calibration.bound_levels) {
    bounds.push_back({{"level", bound.level},
                      {"neighbour", bound.neighbour},
                      {"bandwidth_of_file", bound.of_file},
                      {"bandwidth", bound.bandwidth}});
  }
  return {{"from", calibration.file},
          {"compute", ByType::key_of(calibration.type)},
          {"has_kernels_of_deck", calibration.type == type},
          {"step_seconds_measured", calibration.measured},
          {"step_seconds_reproduced", calibration.reproduced},
          {"error", calibration.error()},
          {"factors", std::move(factors)},
          {"levels", std::move(levels)},
          {"levels_bound", std::move(bounds)},
          {"doubts", calibration.doubts}};
}

// Estimated beside a whole batch: an order of passes is looked for at that size alone.
double first_step_seconds(PerformanceModel& model, const config::Deck& deck,
                          const Plan& best) {
  if (!deck.batch.ramp_up || deck.batch.ramp_up->start >= deck.batch.global) return 0.0;
  config::Deck first = deck;
  first.batch.global = deck.batch.ramp_up->start;
  const auto estimated = [&](const config::Deck& of) {
    return model.predict(of, Schedule::estimated).seconds();
  };
  return best.seconds() * estimated(first) / estimated(deck);
}

double nominal_peak(const Machine& machine, const config::Deck& deck) {
  return machine.device.nominal_peak.of(step::compute_type(deck));
}

}  // namespace

double PlanReport::tokens() const {
  if (options.tokens > 0.0) return options.tokens;
  return as_double(config::samples_of(deck.run.steps.steps, deck.batch)) *
         as_double(deck.model.sequence);
}

// A step takes some time whatever its batch, and some for each sample. The last one is
// whole, however few tokens are left for it.
double PlanReport::days() const {
  config::Length length(std::llround(tokens()));
  length.unit = config::LengthUnit::tokens;
  const index_t steps = config::steps_of(length, deck.batch, deck.model.sequence);
  double of_step = best().seconds(), of_sample = 0.0;
  if (first_step > 0.0) {
    const double whole = as_double(deck.batch.global);
    of_sample = (of_step - first_step) / (whole - as_double(deck.batch.ramp_up->start));
    of_step -= of_sample * whole;
  }
  return (as_double(steps) * of_step +
          as_double(config::samples_of(steps, deck.batch)) * of_sample) /
         kSecondsOfDay;
}

std::string PlanReport::best_text() const {
  const Plan& plan = best();
  const Prediction& prediction = plan.prediction;
  const double peak = nominal_peak(machine, deck);
  std::string text =
      fmt::format("deck '{}' on {} of {}", deck.name,
                  format_plural(options.devices, "device"), title_of(machine));
  if (!options.is_fixed) {
    text += fmt::format(": of {} {} fit", format_plural(result.legal, "layout"),
                        format_grouped(result.fitting));
  }
  text = wrap_lines(text + "\n");
  if (machine.software.is_other()) {
    text += fmt::format("as with {} in place of Trireme\n", machine.software.name);
  }
  if (calibration) {
    text += calibration_text(*calibration, machine, step::compute_type(deck));
  }
  text += options.is_fixed ? "\nlayout of the deck\n" : "\nfastest layout\n";
  text += report_line("tensor x pipeline x data", plan.layout.grid_text());
  text += fmt::format("      {}\n", plan.layout.text());
  const bool is_estimate = prediction.schedule == Schedule::estimated;
  text += report_line("step",
                      seconds_text(plan.seconds()) +
                          (is_estimate ? ", by a formula: it has too many passes" : ""));
  text += report_line("rate of a device",
                      fmt::format("{} of the model ({:.0f} % of the nominal peak)",
                                  format_flops(prediction.model_rate() / kTera),
                                  100.0 * prediction.model_rate() / peak));
  text += report_line(
      "", format_flops(prediction.hardware_rate() / kTera) + " with what is made again");
  text += report_line("memory", fmt::format("{} of {}", format_bytes(plan.memory.total()),
                                            format_bytes(machine.device.memory)));
  const std::string lasting = days() < 1.0 ? format_duration(days() * kSecondsOfDay)
                                           : fmt::format("{:.1f} days", days());
  return text +
         report_line("training",
                     fmt::format("{} for {}{}", lasting, format_count(tokens(), "token"),
                                 first_step > 0.0 ? ", with batch.ramp_up" : ""));
}

std::string PlanReport::parts_text() const {
  std::string text = "\na step's time\n";
  for (const NamedPart& part : step_parts()) {
    const double seconds = best().prediction.parts.*part.seconds;
    if (seconds <= 0.0) continue;
    text += fmt::format("  {:<26}{:>10}{:>6.1f} %\n", part.name, seconds_text(seconds),
                        100.0 * seconds / best().seconds());
  }
  return text;
}

std::string PlanReport::memory_text() const {
  std::string text = "\nmemory of a device, of the stage that takes most\n";
  for (const MemoryPart& part : kMemoryParts) {
    const double bytes = best().memory.*part.bytes;
    if (bytes <= 0.0) continue;
    text += fmt::format("  {:<26}{:>10}\n", part.name, format_bytes(bytes));
  }
  const double excess = best().memory.total() - machine.device.memory;
  if (excess <= 0.0) return text;
  return text + fmt::format("  it does not fit: {} too much\n", format_bytes(excess));
}

std::string PlanReport::others_text() const {
  std::string text;
  for (std::size_t i = 1; i < result.plans.size(); ++i) {
    if (i == 1) text += "\nnext, and where their time goes\n";
    text += other_text(result.plans[i], why_slower(best(), result.plans[i]));
  }
  if (options.is_fixed || result.too_large.empty()) return text;
  text += "\nfaster, but too large\n";
  for (const Plan& plan : result.too_large) {
    const double excess = plan.memory.total() - machine.device.memory;
    text += other_text(plan, format_bytes(excess) + " too much");
  }
  return text;
}

std::string PlanReport::text() const {
  return best_text() + parts_text() + memory_text() + others_text();
}

std::string PlanReport::json() const {
  const double peak = nominal_peak(machine, deck);
  Json plans = Json::array(), too_large = Json::array();
  for (const Plan& plan : result.plans) {
    plans.push_back(plan_json(plan, peak));
    plans.back()["loses"] = lost_json(best(), plan);
  }
  for (const Plan& plan : result.too_large) {
    too_large.push_back(plan_json(plan, peak));
    too_large.back()["excess"] = plan.memory.total() - machine.device.memory;
  }
  const Json result_json = {
      {"deck", deck.name},
      {"resolved_deck", config::resolved_text(deck)},
      {"machine", machine.name},
      {"network_of", machine.network_of.empty() ? Json() : Json(machine.network_of)},
      {"devices", options.devices},
      {"fixed", options.is_fixed},
      {"legal", result.legal},
      {"fitting", result.fitting},
      {"tokens", tokens()},
      {"days", days()},
      {"device_memory", machine.device.memory},
      {"machine_file", machine_json(machine)},
      {"calibration",
       calibration ? calibration_json(*calibration, step::compute_type(deck)) : Json()},
      {"plans", plans},
      {"too_large", too_large}};
  return io::json_text(result_json, 2) + "\n";
}

std::string PlanReport::deck_text() const {
  const Plan& plan = best();
  return fmt::format("# Layout for {} of {} by trireme plan: {}, {}.\n",
                     format_plural(options.devices, "device"), title_of(machine),
                     plan.layout.grid_text(), plan.layout.text()) +
         config::resolved_text(deck);
}

PlanReport make_plan(const config::Deck& deck, const Machine& machine,
                     const PlanOptions& options) {
  require_plannable(deck);
  TRIREME_REQUIRE_INPUT(options.devices <= machine.network.back().devices,
                        "{} has {}, {} are asked for", title_of(machine),
                        format_plural(machine.network.back().devices, "device"),
                        options.devices);
  PlanReport report{.machine = machine,
                    .calibration = {},
                    .deck = deck,
                    .options = options,
                    .result = {}};
  PerformanceModel model(machine, deck);
  if (options.is_fixed) {
    report.deck.parallel.stages = dealt_layers(machine, deck);
    report.result.plans = {plan_of(model, report.deck)};
    report.result.legal = 1;
    const bool fits = report.best().memory.total() <= machine.device.memory;
    report.result.fitting = fits ? 1 : 0;
  } else {
    report.result = search(model, deck, options.devices);
    set_layout(report.deck, report.best().layout);
    report.deck.parallel.stages = report.best().stages;
  }
  report.first_step = first_step_seconds(model, report.deck, report.best());
  return report;
}

}  // namespace trireme::plan
