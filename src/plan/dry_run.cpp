// plan/dry_run.cpp — see dry_run.hpp.
//
// The plan is made first, and its two forms, text and JSON, are made from it. Stages
// with the same layers need the less memory the later they come, so that of many alike
// the first and the last tell the range: of a pipeline of 96 stages with one layer each
// the stages 0, 1, 94 and 95 are planned, because the first and the last one also have
// the embedding and the head.
#include "plan/dry_run.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "comm/rank_grid.hpp"
#include "config/text.hpp"
#include "io/json.hpp"
#include "model/blueprint.hpp"
#include "model/facts.hpp"
#include "plan/deck_memory.hpp"
#include "plan/device_memory.hpp"
#include "step/attention_choice.hpp"
#include "step/deck_model.hpp"
#include "tensor/arena.hpp"

namespace trireme::plan {

namespace {

// All stages of a pipeline that a page can show. Of a deeper one the first and the last
// of the stages whose chunks have blocks of the same kinds: what those between them need
// lies between theirs, as a stage keeps fewer micro-batches the later it comes.
// A stage by its number, and how many it is shown for.
std::map<int, int> stages_to_plan(const step::PipelineLayout& layout,
                                  const model::Blueprint& blueprint, StagesShown shown) {
  constexpr int kMostOfAPage = 64, kMost = 1024;
  TRIREME_REQUIRE_INPUT(
      shown == StagesShown::that_differ || layout.stages <= kMost,
      "--all-stages: parallel.pipeline is {}, and each of at most {} is planned. "
      "Without it those are shown that differ",
      layout.stages, format_plural(kMost, "stage"));
  std::map<int, int> stages;
  if (shown == StagesShown::all || layout.stages <= kMostOfAPage) {
    for (int stage = 0; stage < layout.stages; ++stage) stages[stage] = 1;
    return stages;
  }
  std::vector<std::size_t> likes;  // of each block, the first that is like it
  for (std::size_t i = 0; i < blueprint.blocks.size(); ++i) {
    likes.push_back(blueprint.first_like(i));
  }
  using Kind = std::vector<std::vector<std::size_t>>;  // of each chunk, of its blocks
  const std::vector<std::size_t> cuts = step::piece_cuts(layout, blueprint);
  std::map<Kind, std::vector<int>> kinds;  // stages of each
  for (int stage = 0; stage < layout.stages; ++stage) {
    Kind kind;
    for (const model::BlockRange& range : step::chunk_ranges(layout, cuts, stage)) {
      const auto first = likes.begin() + static_cast<std::ptrdiff_t>(range.begin);
      kind.emplace_back(first, first + static_cast<std::ptrdiff_t>(range.size()));
    }
    kinds[std::move(kind)].push_back(stage);
  }
  for (const auto& [kind, alike] : kinds) {
    stages[alike.back()] = 1;
    stages[alike.front()] = std::max(static_cast<int>(alike.size()) - 1, 1);
  }
  return stages;
}

constexpr Carrier kCarrier = kHostExecution ? Carrier::host : Carrier::device;

// Plans a rank of each of these stages.
std::vector<DryRun::Stage> planned_stages(const config::Deck& deck, StagesShown shown) {
  const step::Sharing shared = step::sharing(deck);
  const model::Blueprint model = model::make_blueprint(deck.model);
  const step::PipelinePlans plans(shared.pipeline, model, step::step_shape(deck));
  std::vector<DryRun::Stage> stages;
  for (const auto& [stage, alike] : stages_to_plan(shared.pipeline, model, shown)) {
    const auto replica =
        step::make_replica(deck, planned_groups(deck.parallel, stage), shared);
    step::StepPlan plan = replica->plan_step(step::step_shape(deck), plans);
    std::vector<index_t> layers;
    for (const model::BlockRange& range : replica->part().ranges) {
      layers.push_back(model.layers_in(range));
    }
    stages.push_back({.number = stage,
                      .stands_for = alike,
                      .layers = std::move(layers),
                      .slots = plan.memory.workspace.slots,
                      .parameters = replica->part().registry.global_element_count(),
                      .memory = with_all_else(std::move(plan.memory), *replica, deck),
                      .libraries = library_bytes(replica->part().groups, kCarrier, deck),
                      .tally = std::move(plan.tally)});
  }
  return stages;
}

// "parallel.pipeline: 4": those of which no more than this can be told.
std::vector<std::string> settings_of(const std::vector<config::NotTrained>& lacks,
                                     config::Told most) {
  std::vector<std::string> settings;
  for (const config::NotTrained& lack : lacks) {
    if (lack.told <= most) settings.push_back(lack.key + ": " + lack.value);
  }
  return settings;
}

nlohmann::ordered_json not_trained_json(const std::vector<config::NotTrained>& lacks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const config::NotTrained& lack : lacks) {
    list.push_back({{"key", lack.key}, {"value", lack.value}, {"reason", lack.reason}});
  }
  return list;
}

nlohmann::ordered_json not_checked_json(const std::vector<check::NotChecked>& paths) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const check::NotChecked& path : paths) list.push_back(path.what);
  return list;
}

std::string line(const std::string& name, const std::string& value) {
  return fmt::format("  {:<24}{}\n", name, value);
}

std::string bytes(std::size_t count) {
  return format_bytes(static_cast<double>(count));
}

std::string not_known(const std::vector<std::string>& settings, int indent) {
  const std::string words = "not known yet with ";
  return words + wrap_list(settings, 80, indent + static_cast<int>(words.size()));
}

nlohmann::ordered_json stage_json(const DryRun::Stage& stage) {
  const step::MemoryPlan& memory = stage.memory;
  const Cost cost = stage.tally.total().cost;
  nlohmann::ordered_json saved;
  for (int c = 0; c < kCategoryCount; ++c) {
    saved[std::string(name_of(static_cast<Category>(c)))] =
        memory.saved_by_category[static_cast<std::size_t>(c)];
  }
  return {{"stage", stage.number},
          {"stands_for", stage.stands_for},
          {"layers", stage.layers},
          {"in_flight", stage.slots},
          {"parameters", stage.parameters},
          {"weights", memory.weights},
          {"gradients", memory.gradients},
          {"optimizer", memory.optimizer},
          {"activations", memory.saved()},
          {"activations_by_category", saved},
          {"scratch", memory.workspace.scratch + memory.workspace.held_bytes()},
          {"batch", memory.batch},
          {"buffers", memory.buffers},
          {"products", memory.products},
          {"generation", memory.generation},
          {"total", memory.total()},
          {"messages", stage.libraries.messages},
          {"context", stage.libraries.context},
          {"tiles", stage.libraries.tiles},
          {"device_total", stage.total()},
          {"checkpoint_copy", memory.checkpoint_copy},
          {"flops", cost.flops},
          {"bytes_moved", cost.bytes}};
}

nlohmann::ordered_json memory_json(const std::vector<DryRun::Stage>& stages) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const DryRun::Stage& stage : stages) list.push_back(stage_json(stage));
  return {{"stages", list}};
}

std::vector<MessageTally> sorted_messages(const DryRun::Stage& stage) {
  std::vector<MessageTally> messages = stage.tally.messages();
  std::sort(messages.begin(), messages.end());
  return messages;
}

nlohmann::ordered_json messages_json(const std::vector<DryRun::Stage>& stages) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const DryRun::Stage& stage : stages) {
    for (const MessageTally& message : sorted_messages(stage)) {
      list.push_back({{"stage", stage.number},
                      {"axis", message.axis},
                      {"site", message.site},
                      {"operation", message.operation},
                      {"calls", message.calls},
                      {"elements", message.elements},
                      {"bytes", message.bytes}});
    }
  }
  return list;
}

struct Traffic {
  std::int64_t calls = 0;
  double bytes = 0.0;
};

std::map<std::string, Traffic> by_axis(const DryRun::Stage& stage) {
  std::map<std::string, Traffic> axes;
  for (const MessageTally& message : stage.tally.messages()) {
    Traffic& traffic = axes[message.axis];
    traffic.calls += message.calls;
    traffic.bytes += static_cast<double>(message.bytes);
  }
  return axes;
}

}  // namespace

DryRun dry_run(const check::DeckCheckOptions& options, StagesShown shown) {
  check::CheckedDeck checked = check::check_deck(options);
  DryRun result;
  result.deck = std::move(checked.deck);
  result.not_trained = std::move(checked.not_trained);
  result.not_checked = std::move(checked.not_checked);
  result.warnings = std::move(checked.warnings);
  const config::Deck& deck = result.deck;
  if (!result.knows_size()) return result;
  const model::Blueprint model = model::make_blueprint(deck.model);
  result.parameters = model.parameter_count();
  const auto samples = static_cast<double>(deck.batch.global);
  result.model_flops = samples * model.model_flops();
  result.model_flops_causal = samples * model.model_flops(model::AttentionCount::causal);
  if (!result.memory_not_known().empty()) return result;
  result.stages = planned_stages(deck, shown);
  const double ranks = deck.parallel.ranks() / deck.parallel.pipeline;  // of a stage
  for (const DryRun::Stage& stage : result.stages) {
    result.hardware_flops += stage.stands_for * ranks * stage.tally.total().cost.flops;
  }
  return result;
}

// A row for each stage of a pipeline.
std::string DryRun::stages_text() const {
  std::string out = "\nstages of the pipeline, memory of each rank\n";
  if (std::ssize(stages) < deck.parallel.pipeline) {
    out += fmt::format(
        "  {} of {}: of those that have the same layers the first and the last\n"
        "  (--all-stages: all)\n",
        stages.size(), deck.parallel.pipeline);
  }
  out += fmt::format("  {:>5} {:>10} {:>9} {:>10} {:>9} {:>9} {:>11} {:>8}\n", "stage",
                     "layers", "in flight", "parameters", "weights", "state",
                     "activations", "total");
  for (const Stage& stage : stages) {
    const step::MemoryPlan& memory = stage.memory;
    out += fmt::format("  {:>5} {:>10} {:>9} {:>10} {:>9} {:>9} {:>11} {:>8}\n",
                       stage.number, fmt::format("{}", fmt::join(stage.layers, "+")),
                       fmt::format("{}", fmt::join(stage.slots, "+")),
                       format_count(static_cast<double>(stage.parameters)),
                       bytes(memory.weights), bytes(memory.gradients + memory.optimizer),
                       bytes(memory.saved()), bytes(stage.total()));
  }
  const auto most = std::ranges::max_element(
      stages, {}, [](const Stage& stage) { return stage.total(); });
  out +=
      fmt::format("\nmemory of each rank of stage {}, which takes most\n", most->number);
  return out + memory_text(*most);
}

std::string DryRun::memory_text() const {
  const std::string head = "\nmemory of each rank\n";
  if (stages.empty()) {
    return fmt::format("{}  {}\n", head, not_known(memory_not_known(), 2));
  }
  return stages.size() == 1 ? head + memory_text(stages.front()) : stages_text();
}

std::string DryRun::memory_text(const Stage& stage) const {
  const step::MemoryPlan& memory = stage.memory;
  std::string out;
  // What ZeRO leaves on each rank, from which stage on.
  const auto state = [&](const char* name, std::size_t amount, int first) {
    const int zero = deck.parallel.zero;
    const int parts = zero >= first ? deck.parallel.data : 1;
    out += line(
        name,
        bytes(amount) +
            (parts == 1 ? "" : fmt::format(" (ZeRO {}: a part in {})", zero, parts)));
  };
  state("weights", memory.weights, 3);
  state("gradients", memory.gradients, 2);
  state("optimizer state", memory.optimizer, 1);
  for (int c = 0; c < kCategoryCount; ++c) {
    const std::size_t amount = memory.saved_by_category[static_cast<std::size_t>(c)];
    if (amount == 0) continue;
    out +=
        line(fmt::format("saved: {}", name_of(static_cast<Category>(c))), bytes(amount));
  }
  out += line("scratch", bytes(memory.workspace.scratch + memory.workspace.held_bytes()));
  out += line("batch", bytes(memory.batch));
  if (memory.buffers > 0) out += line("buffers", bytes(memory.buffers));
  if (memory.products > 0) {
    out += line("matrix products", bytes(memory.products) +
                                       (stage.libraries.context > 0
                                            ? ", cuBLASLt's workspace"
                                            : ", by the instructions and threads here"));
  }
  if (memory.generation > 0) {
    out += line("samples of text", bytes(memory.generation));
  }
  if (stage.libraries.tiles > 0) {
    out += line("attention's tiles",
                bytes(stage.libraries.tiles) + ", in fp32 they are in no shared memory");
  }
  if (stage.libraries.messages > 0) {
    out +=
        line("messages", bytes(stage.libraries.messages) + ", NCCL's buffers, estimated");
  }
  if (stage.libraries.context > 0) {
    out += line("context", bytes(stage.libraries.context) + ", CUDA's, estimated");
  }
  const char* rest = deck.parallel.ranks() == 1 ? "" : ", without the MPI library's own";
  if (stage.libraries.context > 0) rest = " of a GPU";
  out += line("total", bytes(stage.total()) + rest);
  if (memory.checkpoint_copy > 0) {
    out += line("on the host", bytes(memory.checkpoint_copy) +
                                   ", the copy that a checkpoint is written from");
  }
  return out;
}

// Messages by axis; which sites they come from is in the JSON.
std::string DryRun::messages_text() const {
  if (stages.empty() || stages.front().tally.messages().empty()) return {};
  std::string out = "\nmessages of each rank in a step\n";
  if (stages.size() == 1) {
    for (const auto& [axis, traffic] : by_axis(stages.front())) {
      out += line(axis, fmt::format("{} of {} in all", format_grouped(traffic.calls),
                                    format_bytes(traffic.bytes)));
    }
    return out;
  }
  std::set<std::string> axes;
  for (const Stage& stage : stages) {
    for (const auto& [axis, traffic] : by_axis(stage)) axes.insert(axis);
  }
  out += "  stage";
  for (const std::string& axis : axes) out += fmt::format(" {:>13}", axis);
  out += "\n";
  for (const Stage& stage : stages) {
    std::map<std::string, Traffic> traffic = by_axis(stage);
    out += fmt::format("  {:>5}", stage.number);
    for (const std::string& axis : axes) {
      out += fmt::format(
          " {:>13}", traffic.contains(axis) ? format_bytes(traffic[axis].bytes) : "-");
    }
    out += "\n";
  }
  return out;
}

std::string DryRun::headline() const {
  if (not_trained.empty()) return fmt::format("deck '{}' is valid\n", deck.name);
  std::string out =
      fmt::format("deck '{}' is valid, but this version cannot train it:\n", deck.name);
  for (const config::NotTrained& lack : not_trained) {
    out += fmt::format("  {}: {} ({})\n", lack.key, lack.value, lack.reason);
  }
  return out;
}

std::string DryRun::model_text() const {
  std::string out = "\nmodel\n";
  if (knows_size()) {
    out += line("parameters", fmt::format("{} ({})", format_grouped(parameters),
                                          format_count(static_cast<double>(parameters))));
  } else {
    out += line("parameters", not_known(size_not_known(), 26));
  }
  for (const auto& [name, value] : model::facts_of(deck.model).table) {
    out += line(name, value);
  }
  return out;
}

std::string DryRun::step_text() const {
  std::string out = "\nstep\n";
  out += line("ranks", fmt::format("{} ({})", deck.parallel.ranks(),
                                   comm::to_string(step::grid_shape(deck))));
  out +=
      line("samples",
           fmt::format("{} = {} of {} on {}", deck.batch.global,
                       format_plural(deck.microbatches(), "micro-batch", "micro-batches"),
                       deck.batch.micro,
                       format_plural(deck.parallel.data, "data-parallel rank")));
  out += line("tokens", format_grouped(deck.batch.global * deck.model.sequence));
  if (knows_size()) {
    if (const std::string name = step::attention_name(deck); !name.empty()) {
      out += line("attention", name);
    }
    const bool has_causal = model_flops_causal < model_flops;
    out += line(
        "model FLOPs",
        fmt::format("{} (attention counted in full{})", format_count(model_flops),
                    has_causal ? "; causal: " + format_count(model_flops_causal) : ""));
    if (!stages.empty()) out += line("hardware FLOPs", format_count(hardware_flops));
  }
  out += line("steps", fmt::format("{}: {}{} in all", deck.run.steps.steps,
                                   deck.batch.ramp_up ? "at most " : "",
                                   format_count(static_cast<double>(deck.run.steps.steps *
                                                                    deck.batch.global *
                                                                    deck.model.sequence),
                                                "token")));
  if (!deck.run.stop_after) return out;
  return out +
         line("run.stop_after", fmt::format("{}: each start ends then, with a checkpoint",
                                            config::to_text(*deck.run.stop_after)));
}

std::string DryRun::text() const {
  std::string out = headline();
  for (const check::NotChecked& path : not_checked) out += wrap_lines(path.text()) + "\n";
  const std::string own = knows_size() ? step::own_attention_note(deck) : "";
  if (!own.empty()) out += wrap_lines(own) + "\n";
  return out + model_text() + step_text() + memory_text() + messages_text();
}

std::vector<std::string> DryRun::size_not_known() const {
  return settings_of(not_trained, config::Told::nothing);
}

std::vector<std::string> DryRun::memory_not_known() const {
  return settings_of(not_trained, config::Told::size);
}

std::string DryRun::json() const {
  using Json = nlohmann::ordered_json;
  const config::ParallelConfig& p = deck.parallel;
  const Json result = {
      {"deck", deck.name},
      {"trainable", not_trained.empty()},
      {"not_trainable", not_trained_json(not_trained)},
      {"parameters", knows_size() ? Json(parameters) : Json(nullptr)},
      {"ranks", p.ranks()},
      {"grid",
       {{"tensor", p.tensor},
        {"context", p.context},
        {"data", p.data},
        {"pipeline", p.pipeline}}},
      {"memory", stages.empty() ? Json(nullptr) : memory_json(stages)},
      {"flops", knows_size() ? Json({{"model", model_flops},
                                     {"model_causal", model_flops_causal},
                                     {"hardware", stages.empty() ? Json(nullptr)
                                                                 : Json(hardware_flops)}})
                             : Json(nullptr)},
      {"messages", messages_json(stages)},
      // Why a number is null: the deck's settings with which it is not known yet.
      {"not_known",
       {{"parameters", size_not_known()},
        {"flops", size_not_known()},
        {"memory", memory_not_known()}}},
      {"not_checked", not_checked_json(not_checked)},
      {"warnings", warnings},
      {"errors", Json::array()}};
  return io::json_text(result, 2) + "\n";
}

}  // namespace trireme::plan
