// plan/calibration.cpp — see calibration.hpp.
//
// A share says what a class of kernels reaches; beside that the model has launches and
// waves of tiles, which no share changes. So a share is found in some rounds, each of
// which sets it by what the round before made of it: they come together at once where
// kernels are long. Messages set the level of the network that they are as slow as: the
// narrowest that they cross. Tensor messages come first, since passes wait for each of
// them; then those of gradients, then those between stages. Levels that the run does not
// reach stay as they are in the file, unless they would be faster than one inside them.
//
// How long ranks wait for messages between stages says little of the network: passes hide
// these, and what is left depends on how even the stages are to a few percent. So their
// speed is the one that the run's probe found for a message alone.
#include "plan/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <ranges>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"
#include "io/json.hpp"
#include "plan/counts.hpp"
#include "plan/performance_model.hpp"
#include "report/efficiency_schema.hpp"
#include "report/kernel_classes.hpp"
#include "schedule/balance.hpp"
#include "step/deck_model.hpp"
#include "step/pipeline.hpp"

namespace trireme::plan {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kRounds = 8;
// Of a share or a rate: what a measurement can change it to.
constexpr double kLeastChange = 1e-3, kMostChange = 1e3;
// A start of ten steps has times of kernels of four of them: 2, 3, 5 and 8.
constexpr int kFewestSteps = 10, kFewestProfiled = 3;
// Sampled steps may be slower than the mean one, but not by so much.
constexpr double kMostOfStep = 10.0;
// What a part may take of the time by the machine file, either way; what a peak may be
// beside the file's, and what products may reach of that; and how far off the run's own
// step may be reproduced.
constexpr double kMostOfPart = 10.0, kMostOfPeak = 2.0, kMostShare = 1.1,
                 kMostError = 0.25;
// Parts of a rank's time that lie between steps.
constexpr std::string_view kBetweenSteps[] = {"warm_up", "validation", "checkpoint",
                                              "sample", "other"};

const Json& member(const Json& of, const char* key, const std::string& file) {
  const auto found = of.find(key);
  TRIREME_REQUIRE_INPUT(found != of.end() && !found->is_null(),
                        "'{}' has no '{}': it is no efficiency.json of a start that "
                        "has ended",
                        file, key);
  return *found;
}

// A number that is not below 0, nor 0 where there must be some of it.
enum class Least { zero, more };
double number_of(const Json& of, const char* key, Least least, const std::string& owner,
                 const std::string& file) {
  const auto number = io::json_value<double>(of, key);
  TRIREME_REQUIRE_INPUT(
      number > 0.0 || (number == 0.0 && least == Least::zero),
      "'{}' has '{}' of {} for {}: no run measures that. The file was changed; give the "
      "one that the run wrote",
      file, key, number, owner);
  return number;
}

bool is_of_step(std::string_view part) {
  return std::ranges::find(kBetweenSteps, part) == std::end(kBetweenSteps);
}

// Seconds of a step, by part and axis: the mean over the ranks of this start.
using StartSeconds = std::map<std::string, double>;

StartSeconds start_seconds(const Json& start, const std::string& file) {
  StartSeconds sum;
  double ranks = 0.0;
  for (const Json& stage : io::json_list(start, "stages")) {
    const double count = number_of(stage, "ranks", Least::more, "a stage", file);
    const Json& seconds = member(stage, "seconds", file);
    for (const auto& [part, value] : seconds.items()) {
      if (!is_of_step(part)) continue;
      sum[part] +=
          count * number_of(seconds, part.c_str(), Least::zero, "a stage's step", file);
    }
    ranks += count;
  }
  TRIREME_REQUIRE_INPUT(ranks > 0.0, "'{}' has no stages under 'this_start'", file);
  for (auto& [part, seconds] : sum) seconds /= ranks;
  return sum;
}

double step_of(const StartSeconds& seconds) {
  double step = 0.0;
  for (const auto& [part, of_part] : seconds) step += of_part;
  return step;
}

double at_or_zero(const StartSeconds& seconds, const char* part) {
  const auto found = seconds.find(part);
  return found == seconds.end() ? 0.0 : found->second;
}

// Of what ranks wait for messages along an axis, the share that the transfer takes, as
// sampled steps have it.
double transfer_share(const Json& messages, const char* axis, const std::string& file) {
  const auto found = messages.find(axis);
  if (found == messages.end()) return 0.0;
  const auto seconds = [&](const char* key) {
    return number_of(*found, key, Least::zero, fmt::format("messages of '{}'", axis),
                     file);
  };
  const double skew = seconds("sampled_skew_seconds");
  const double transfer = seconds("sampled_transfer_seconds");
  return skew + transfer > 0.0 ? transfer / (skew + transfer) : 1.0;
}

std::optional<ProbedMessages> probed_messages(const Json& links,
                                              const std::string& file) {
  for (const Json& link : links) {
    if (io::json_value<std::string>(link, "axis") != "pipeline") continue;
    const auto number = [&](const char* key, Least least) {
      return number_of(link, key, least, "the link of 'pipeline'", file);
    };
    return ProbedMessages{.latency = number("latency_seconds", Least::zero),
                          .rate = number("payload_bytes_per_second", Least::more)};
  }
  return {};
}

report::KernelKind kernel_kind(const std::string& name, const std::string& file) {
  std::string known;
  for (std::size_t i = 0; i < report::kKernelKinds; ++i) {
    const auto kind = static_cast<report::KernelKind>(i);
    if (report::name_of(kind) == name) return kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", report::name_of(kind));
  }
  throw InputError(fmt::format(
      "'{}' has times of kernels of a class '{}', and this program knows {}: give a run "
      "of this program",
      file, name, known));
}

double& part_of(RunTimes& times, report::KernelKind kind) {
  switch (kind) {
    case report::KernelKind::products:
      return times.products;
    case report::KernelKind::attention:
      return times.attention;
    case report::KernelKind::optimizer:
      return times.optimizer;
    default:
      return times.rows;
  }
}

void read_kernels(const Json& kernels, RunTimes& times) {
  const Json& classes = io::json_list(kernels, "classes");
  TRIREME_REQUIRE_INPUT(!classes.empty(),
                        "'{}' has no times of kernels: it was written before the start "
                        "had ended, or after a single step",
                        times.file);
  for (const Json& one : classes) {
    const auto name = io::json_value<std::string>(one, "name");
    part_of(times, kernel_kind(name, times.file)) += number_of(
        one, "seconds", Least::more, fmt::format("kernels of '{}'", name), times.file);
  }
}

void require_kernels_in_step(const RunTimes& times) {
  const double kernels = times.products + times.attention + times.rows + times.optimizer;
  TRIREME_REQUIRE_INPUT(
      times.step > 0.0 && kernels <= kMostOfStep * times.step,
      "'{}' has steps of {} s, in which kernels took {} s: no run measures that. The "
      "file was changed; give the one that the run wrote",
      times.file, times.step, kernels);
}

void require_enough_steps(const Json& start, const Json& kernels,
                          const std::string& file) {
  const int steps = io::json_value<int>(start, "steps");
  const std::string way_out = fmt::format(
      "train for {} or more in one start, without --profile=N, or give another run",
      format_plural(kFewestSteps, "step"));
  TRIREME_REQUIRE_INPUT(steps >= kFewestSteps,
                        "'{}' is of a start of {}, too few to plan by: {}", file,
                        format_plural(steps, "step"), way_out);
  const int profiled = io::json_value<int>(kernels, "steps_profiled");
  TRIREME_REQUIRE_INPUT(profiled >= kFewestProfiled,
                        "'{}' has times of kernels of {}, {} are needed: {}", file,
                        format_plural(profiled, "step"), kFewestProfiled, way_out);
}

RunTimes read_times(const Json& json, const std::string& file) {
  const int schema = io::json_value<int>(json, "schema_version");
  TRIREME_REQUIRE_INPUT(schema == report::kEfficiencySchema,
                        "'{}' has schema_version {}; this program reads {}", file, schema,
                        report::kEfficiencySchema);
  const Json& run = member(json, "run", file);
  const Json& kernels = member(json, "kernels", file);
  const Json& start = member(json, "this_start", file);
  RunTimes times{.file = file, .devices = io::json_value<int>(run, "devices")};
  times.compute = io::json_value<std::string>(run, "compute");
  read_kernels(kernels, times);
  require_enough_steps(start, kernels, file);
  const StartSeconds seconds = start_seconds(start, file);
  times.step = step_of(seconds);
  require_kernels_in_step(times);
  times.beside = at_or_zero(seconds, "host") + at_or_zero(seconds, "input");
  const Json& messages = member(member(json, "device_seconds", file), "messages", file);
  const auto transfer = [&](const char* axis) {
    return transfer_share(messages, axis, file) * at_or_zero(seconds, axis);
  };
  times.tensor_messages = transfer("tensor");
  times.data_messages = transfer("gradient");
  const Json& machine = member(json, "machine", file);
  constexpr double kTera = 1e12;
  times.peak = kTera * number_of(machine, "peak_tflops", Least::zero, "a device", file);
  times.stage_messages = probed_messages(io::json_list(machine, "links"), file);
  return times;
}

double& of(ByType& numbers, config::Precision compute) {
  switch (compute) {
    case config::Precision::bf16:
      return numbers.bf16;
    case config::Precision::fp16:
      return numbers.fp16;
    default:
      return numbers.fp32;
  }
}

double change_of(double predicted, double measured) {
  if (predicted <= 0.0 || measured <= 0.0) return 1.0;
  return std::clamp(predicted / measured, kLeastChange, kMostChange);
}

// What the model says of the run's step, in the parts that RunTimes has.
struct Predicted {
  double products = 0.0, attention = 0.0, rows = 0.0, optimizer = 0.0;
  double tensor_messages = 0.0, data_messages = 0.0;
};

// A class of kernels, and the share of the machine that its time follows from.
struct KernelPart {
  const char* name;
  double RunTimes::*measured;
  double Predicted::*predicted;
  ByType Device::*share;
};
constexpr KernelPart kKernelParts[] = {
    {"products", &RunTimes::products, &Predicted::products, &Device::gemm_share},
    {"attention", &RunTimes::attention, &Predicted::attention, &Device::attention_share},
    {"other kernels of passes", &RunTimes::rows, &Predicted::rows, &Device::row_share},
    {"optimizer", &RunTimes::optimizer, &Predicted::optimizer, &Device::update_share}};

// Collectives of a kind of group; the first in this list have first choice of a level.
struct MessagePart {
  const char* name;
  double RunTimes::*measured;
  double Predicted::*predicted;
  GroupPlace Places::*place;
};
constexpr MessagePart kMessageParts[] = {{"tensor messages", &RunTimes::tensor_messages,
                                          &Predicted::tensor_messages, &Places::tensor},
                                         {"data messages", &RunTimes::data_messages,
                                          &Predicted::data_messages, &Places::gradient}};
constexpr const char* kStageMessages = "stage messages";

class Calibrator {
 public:
  // `deck`: with its layers dealt as the run dealt them.
  Calibrator(const Machine& machine, config::Deck deck, const RunTimes& run)
      : deck_(std::move(deck)),
        run_(run),
        places_(places_of(deck_)),
        owners_(machine.network.size()),
        model_(machine, deck_),
        result_{.machine = machine,
                .file = run.file,
                .type = step::compute_type(deck_),
                .measured = run.step} {
    result_.machine.software.microbatch_seconds =
        run.beside / as_double(deck_.microbatches());
  }

  Calibration calibrated() {
    const Predicted first = predicted();
    for (const KernelPart& part : kKernelParts) {
      add_factor({.part = part.name, .factor = {}}, run_.*part.measured,
                 first.*part.predicted);
    }
    for (const MessagePart& part : kMessageParts) add_factor_of(part, first);
    const std::optional<std::size_t> of_stages = add_factor_of_stages();
    for (int round = 0; round < kRounds; ++round) {
      const Predicted now = predicted();
      for (const KernelPart& part : kKernelParts) {
        of(result_.machine.device.*part.share, deck_.precision.compute) *=
            change_of(now.*part.predicted, run_.*part.measured);
      }
      for (const MessagePart& part : kMessageParts) slow_down(part, now);
    }
    if (of_stages) set_as_probed(result_.machine.network[*of_stages]);
    bound_levels();
    model_.set_machine(result_.machine);
    result_.reproduced = model_.predict(deck_, Schedule::of_run).seconds();
    doubt();
    return std::move(result_);
  }

 private:
  Predicted predicted() {
    model_.set_machine(result_.machine);
    const StepKernels kernels = model_.step_kernels(deck_);
    return {.products = kernels.passes.products,
            .attention = kernels.passes.attention,
            .rows = kernels.passes.rows,
            .optimizer = kernels.update.kernels(),
            .tensor_messages = kernels.tensor_messages,
            .data_messages = kernels.data_messages};
  }

  void add_factor(Calibration::Factor factor, double measured, double predicted) {
    if (measured <= 0.0 && predicted <= 0.0) return;
    if (measured <= 0.0) {
      factor.why = "the run has none";
    } else if (predicted <= 0.0) {
      factor.why = "it has none, and the run has some";
    } else {
      factor.factor = measured / predicted;
    }
    result_.factors.push_back(std::move(factor));
  }

  // Whether the speed of a level is this part's to set.
  bool owns(std::size_t level, std::string_view part) {
    std::string_view& owner = owners_.at(level);
    if (owner.empty()) owner = part;
    return owner == part;
  }

  void add_factor_of(const MessagePart& part, const Predicted& first) {
    const double measured = run_.*part.measured, by_model = first.*part.predicted;
    Calibration::Factor factor{.part = part.name, .factor = {}, .is_applied = false};
    if (measured > 0.0 && by_model > 0.0) {
      const std::size_t level =
          collective_crossing(result_.machine, places_.*part.place).narrowest;
      factor.level = result_.machine.network[level].name;
      factor.is_applied = owns(level, part.name);
    }
    add_factor(std::move(factor), measured, by_model);
  }

  void slow_down(const MessagePart& part, const Predicted& now) {
    const double change = change_of(now.*part.predicted, run_.*part.measured);
    const std::size_t i =
        collective_crossing(result_.machine, places_.*part.place).narrowest;
    if (change == 1.0 || !owns(i, part.name)) return;
    NetworkLevel& level = result_.machine.network[i];
    level.bandwidth *= change;
    level.latency /= change;
  }

  // The level that messages between stages set, if they do.
  std::optional<std::size_t> add_factor_of_stages() {
    if (deck_.parallel.pipeline == 1) return {};
    const std::size_t level = message_level(result_.machine, places_.pipeline);
    Calibration::Factor factor{.part = kStageMessages,
                               .factor = {},
                               .why = "run.probe: true would tell",
                               .level = result_.machine.network[level].name,
                               .is_applied = false};
    if (run_.stage_messages) {
      factor.factor = kProbedBytes / run_.stage_messages->rate /
                      message_seconds(result_.machine, places_.pipeline, kProbedBytes);
      factor.is_applied = owns(level, kStageMessages);
    }
    result_.factors.push_back(factor);
    if (!factor.is_applied) return {};
    return level;
  }

  void set_as_probed(NetworkLevel& level) const {
    const ProbedMessages& probed = *run_.stage_messages;
    const double seconds = kProbedBytes / probed.rate;
    level.latency = std::min(probed.latency, seconds);
    level.bandwidth =
        std::min(kProbedBytes / (seconds - level.latency), kMostChange * level.bandwidth);
  }

  // No machine file may have a level that is slower than the one outside it.
  void bound_levels() {
    const std::vector<NetworkLevel>& levels = result_.machine.network;
    for (std::size_t i = 1; i < levels.size(); ++i) {
      if (levels[i].bandwidth <= levels[i - 1].bandwidth) continue;
      if (owners_[i].empty()) {
        bound(i, i - 1);
      } else {
        bound_inside(i);
      }
    }
  }

  // `level` has been found faster than what is nearer.
  void bound_inside(std::size_t level) {
    const std::vector<NetworkLevel>& levels = result_.machine.network;
    for (std::size_t i = level;
         i-- > 0 && levels[i].bandwidth < levels[level].bandwidth;) {
      if (owners_[i].empty()) {
        bound(i, level);
        continue;
      }
      result_.doubts.push_back(
          fmt::format("level '{}' of the network reached {:.3g} GB/s, and '{}' inside it "
                      "{:.3g} GB/s",
                      levels[level].name, 1e-9 * levels[level].bandwidth, levels[i].name,
                      1e-9 * levels[i].bandwidth));
      return;
    }
  }

  void bound(std::size_t level, std::size_t neighbour) {
    const double bandwidth = result_.machine.network[neighbour].bandwidth;
    NetworkLevel& changed = result_.machine.network[level];
    result_.bound_levels.push_back({.level = changed.name,
                                    .neighbour = result_.machine.network[neighbour].name,
                                    .of_file = changed.bandwidth,
                                    .bandwidth = bandwidth});
    changed.bandwidth = bandwidth;
  }

  // What a run on the machine of the file would hardly have.
  void doubt() {
    const auto is_far = [](double factor, double most) {
      return factor > most || factor < 1.0 / most;
    };
    std::vector<std::string>& doubts = result_.doubts;
    const Device& device = result_.machine.device;
    const double peak = device.gemm_peak.of(result_.type);
    if (run_.peak > 0.0 && is_far(run_.peak / peak, kMostOfPeak)) {
      doubts.push_back(fmt::format(
          "the run measured {} as the peak of a device, the machine file has {}",
          format_flops(1e-12 * run_.peak), format_flops(1e-12 * peak)));
    }
    for (const Calibration::Factor& factor : result_.factors) {
      if (!factor.factor || !is_far(*factor.factor, kMostOfPart)) continue;
      doubts.push_back(fmt::format("'{}' took {:.3g} x the time of the machine file",
                                   factor.part, *factor.factor));
    }
    const double share = device.gemm_share.of(result_.type);
    if (share > kMostShare) {
      doubts.push_back(fmt::format(
          "products reached {:.2f} of device.gemm_peak, which is of the fastest", share));
    }
    if (std::abs(result_.error()) > kMostError) {
      doubts.push_back(fmt::format("the run's own step is reproduced {:+.0f} % off",
                                   100.0 * result_.error()));
    }
  }

  config::Deck deck_;
  const RunTimes& run_;
  Places places_;
  std::vector<std::string_view> owners_;  // of each level: the part that sets its speed
  PerformanceModel model_;
  Calibration result_;
};

}  // namespace

RunTimes run_times(const std::string& text, const std::string& file) {
  const Json json = io::parse_json_file<Json>(text, file);
  TRIREME_REQUIRE_INPUT(
      json.is_object() && json.contains("schema_version") && json.contains("identity"),
      "'{}' is no efficiency.json of a run", file);
  try {
    return read_times(json, file);
  } catch (const io::JsonError& error) {
    throw InputError(error.in_file(file));
  }
}

Calibration calibrate(const Machine& machine, const config::Deck& deck,
                      const RunTimes& run) {
  TRIREME_REQUIRE_INPUT(
      !machine.software.is_other(),
      "the machine file is of steps of {} (software.name), and '{}' is of a run of "
      "Trireme: give a machine file of Trireme, as inputs/machines/ has some",
      machine.software.name, run.file);
  TRIREME_REQUIRE_INPUT(deck.parallel.ranks() == run.devices,
                        "'{}' is of a run on {}, the deck beside it is for {}", run.file,
                        format_plural(run.devices, "device"), deck.parallel.ranks());
  const std::string compute(name_of(step::compute_type(deck)));
  TRIREME_REQUIRE_INPUT(compute == run.compute,
                        "'{}' is of a run in {}, the deck beside it computes in {}",
                        run.file, run.compute, compute);
  config::Deck dealt = deck;
  const schedule::Split split = step::pipeline_layout(deck).split;
  dealt.parallel.stages = {split.begin(), split.end()};
  return Calibrator(machine, std::move(dealt), run).calibrated();
}

}  // namespace trireme::plan
