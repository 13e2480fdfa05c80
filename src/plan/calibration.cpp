// plan/calibration.cpp — see calibration.hpp.
//
// A share says what a class of kernels reaches; beside that the model has launches and
// waves of tiles, which no share changes. So a share is found in some rounds, each of
// which sets it by what the round before made of it: they come together at once where
// kernels are long. Messages set the level of the network that they are as slow as: the
// narrowest that they cross. Tensor messages come first, since passes wait for each of
// them; then those of gradients, then those between stages. Levels that the run does not
// reach stay as they are in the file.
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
#include "base/plural.hpp"
#include "io/json.hpp"
#include "plan/counts.hpp"
#include "plan/performance_model.hpp"
#include "schedule/balance.hpp"
#include "step/deck_model.hpp"
#include "step/pipeline.hpp"

namespace trireme::plan {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;
constexpr int kRounds = 8;
// Of a share or a rate: what a measurement can change it to.
constexpr double kLeastChange = 1e-3, kMostChange = 1e3;
// A start of ten steps has times of kernels of four of them: 2, 3, 5 and 8.
constexpr int kFewestSteps = 10, kFewestProfiled = 3;
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

double number_or_zero(const Json& of, const char* key) {
  const auto found = of.find(key);
  return found != of.end() && found->is_number() ? found->get<double>() : 0.0;
}

// Seconds of a step, by part and axis: the mean over the ranks of this start.
using StartSeconds = std::map<std::string, double>;

StartSeconds start_seconds(const Json& start, const std::string& file) {
  StartSeconds sum;
  double ranks = 0.0;
  for (const Json& stage : io::json_list(start, "stages")) {
    const double count = io::json_value<double>(stage, "ranks");
    const Json& seconds = member(stage, "seconds", file);
    for (const auto& [part, value] : seconds.items()) {
      sum[part] += count * io::json_value<double>(seconds, part.c_str());
    }
    ranks += count;
  }
  TRIREME_REQUIRE_INPUT(ranks > 0.0, "'{}' has no stages under 'this_start'", file);
  for (auto& [part, seconds] : sum) seconds /= ranks;
  return sum;
}

double step_of(const StartSeconds& seconds) {
  double step = 0.0;
  for (const auto& [part, of_part] : seconds) {
    if (std::ranges::find(kBetweenSteps, part) == std::end(kBetweenSteps)) {
      step += of_part;
    }
  }
  return step;
}

double at_or_zero(const StartSeconds& seconds, const char* part) {
  const auto found = seconds.find(part);
  return found == seconds.end() ? 0.0 : found->second;
}

// Of what ranks wait for messages along an axis, the share that the transfer takes, as
// sampled steps have it.
double transfer_share(const Json& messages, const char* axis) {
  const auto found = messages.find(axis);
  if (found == messages.end()) return 0.0;
  const double skew = number_or_zero(*found, "sampled_skew_seconds");
  const double transfer = number_or_zero(*found, "sampled_transfer_seconds");
  return skew + transfer > 0.0 ? transfer / (skew + transfer) : 1.0;
}

std::optional<ProbedMessages> probed_messages(const Json& links) {
  for (const Json& link : links) {
    if (io::json_value<std::string>(link, "axis") != "pipeline") continue;
    const ProbedMessages probed{
        .latency = io::json_value<double>(link, "latency_seconds"),
        .rate = io::json_value<double>(link, "payload_bytes_per_second")};
    if (probed.rate > 0.0 && probed.latency >= 0.0) return probed;
  }
  return {};
}

void read_kernels(const Json& kernels, RunTimes& times) {
  const Json& classes = io::json_list(kernels, "classes");
  TRIREME_REQUIRE_INPUT(!classes.empty(),
                        "'{}' has no times of kernels: it was written before the start "
                        "had ended, or after a single step",
                        times.file);
  for (const Json& one : classes) {
    const auto name = io::json_value<std::string>(one, "name");
    double& part = name == "products"    ? times.products
                   : name == "attention" ? times.attention
                   : name == "optimizer" ? times.update
                                         : times.rows;
    part += io::json_value<double>(one, "seconds");
  }
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
  TRIREME_REQUIRE_INPUT(schema == kSchemaVersion,
                        "'{}' has schema_version {}; this program reads {}", file, schema,
                        kSchemaVersion);
  const Json& run = member(json, "run", file);
  const Json& kernels = member(json, "kernels", file);
  const Json& start = member(json, "this_start", file);
  RunTimes times{.file = file, .devices = io::json_value<int>(run, "devices")};
  times.compute = io::json_value<std::string>(run, "compute");
  read_kernels(kernels, times);
  require_enough_steps(start, kernels, file);
  const StartSeconds seconds = start_seconds(start, file);
  times.step = step_of(seconds);
  TRIREME_REQUIRE_INPUT(times.step > 0.0, "'{}' has steps that took no time", file);
  times.beside = at_or_zero(seconds, "host") + at_or_zero(seconds, "input");
  const Json& messages = member(member(json, "device_seconds", file), "messages", file);
  const auto transfer = [&](const char* axis) {
    return transfer_share(messages, axis) * at_or_zero(seconds, axis);
  };
  times.tensor_messages = transfer("tensor");
  times.gradient_messages = transfer("gradient");
  times.stage_messages =
      probed_messages(io::json_list(member(json, "machine", file), "links"));
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
  double products = 0.0, attention = 0.0, rows = 0.0, update = 0.0;
  double tensor_messages = 0.0, gradient_messages = 0.0;
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
    {"update", &RunTimes::update, &Predicted::update, &Device::update_share}};

// Collectives of a kind of group; the first in this list have first choice of a level.
struct MessagePart {
  const char* name;
  double RunTimes::*measured;
  double Predicted::*predicted;
  GroupPlace Places::*place;
};
constexpr MessagePart kMessageParts[] = {
    {"tensor messages", &RunTimes::tensor_messages, &Predicted::tensor_messages,
     &Places::tensor},
    {"gradient messages", &RunTimes::gradient_messages, &Predicted::gradient_messages,
     &Places::gradient}};
constexpr const char* kStageMessages = "pipeline messages";

class Calibrator {
 public:
  // `deck`: with its layers dealt as the run dealt them.
  Calibrator(const Machine& machine, config::Deck deck, const RunTimes& run)
      : deck_(std::move(deck)),
        run_(run),
        places_(places_of(deck_)),
        owners_(machine.network.size()),
        model_(machine, deck_),
        result_{
            .machine = machine, .file = run.file, .measured = run.step, .factors = {}} {
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
    model_.set_machine(result_.machine);
    result_.reproduced = model_.predict(deck_, Schedule::of_run).seconds();
    return std::move(result_);
  }

 private:
  Predicted predicted() {
    model_.set_machine(result_.machine);
    const StepKernels kernels = model_.step_kernels(deck_);
    return {.products = kernels.passes.products,
            .attention = kernels.passes.attention,
            .rows = kernels.passes.rows,
            .update = kernels.update.kernels(),
            .tensor_messages = kernels.tensor_messages,
            .gradient_messages = kernels.gradient_messages};
  }

  void add_factor(Calibration::Factor factor, double measured, double predicted) {
    if (measured <= 0.0 || predicted <= 0.0) return;
    factor.factor = measured / predicted;
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
    if (measured <= 0.0 || by_model <= 0.0) return;
    const std::size_t level =
        collective_crossing(result_.machine, places_.*part.place).narrowest;
    add_factor({.part = part.name,
                .factor = {},
                .level = result_.machine.network[level].name,
                .is_applied = owns(level, part.name)},
               measured, by_model);
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
