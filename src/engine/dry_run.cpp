// engine/dry_run.cpp — see dry_run.hpp.
#include "engine/dry_run.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "comm/self_communicator.hpp"
#include "config/check.hpp"
#include "config/load.hpp"
#include "data/corpus.hpp"
#include "engine/deck_model.hpp"
#include "engine/format.hpp"
#include "model/formulae.hpp"

namespace trireme::engine {

namespace {

comm::ProcessGroups one_rank() {
  const auto self = comm::make_self_communicator("dry run");
  return {self, self, self, self, self, self, self};
}

void find_vocabulary(config::Deck& deck) {
  if (deck.model.vocab > 0) return;
  if (deck.data.train.empty()) {
    throw config::DeckErrors({config::error_at(
        deck, "model.vocab", "the size of the vocabulary is not known",
        "a number, or data.train: a corpus that says it", "model.vocab: 50257")});
  }
  const data::Corpus corpus(deck.data.train.front().path);
  auto errors =
      config::set_vocabulary(deck, corpus.vocabulary_size(), corpus.path().string());
  if (!errors.empty()) throw config::DeckErrors(std::move(errors));
}

std::string line(const std::string& name, const std::string& value) {
  return fmt::format("  {:<24}{}\n", name, value);
}

std::string bytes(std::size_t count) {
  return format_bytes(static_cast<double>(count));
}

}  // namespace

DryRun dry_run(const std::string& path, const std::vector<std::string>& overrides,
               const std::string& run_dir, int ranks) {
  DryRun result;
  result.deck =
      config::load(path, {.overrides = overrides, .run_dir = run_dir, .ranks = ranks});
  config::Deck& deck = result.deck;
  TRIREME_REQUIRE_INPUT(deck.model.kind == config::ModelKind::gpt,
                        "model.kind: {} is not implemented yet: only gpt is",
                        config::name_of(deck.model.kind));
  find_vocabulary(deck);
  const model::GptConfig model = gpt_config(deck);
  result.parameters = model::parameter_count(model);
  const index_t samples = deck.batch.global;
  result.model_flops = model::model_flops(model, samples, deck.model.sequence);
  result.model_flops_causal = model::model_flops(model, samples, deck.model.sequence,
                                                 model::AttentionCount::causal);
  result.hardware_flops = result.model_flops;
  ModelState<float> state(one_rank(), model);
  result.memory = plan_memory(state, step_shape(deck), 1);
  return result;
}

std::string DryRun::text() const {
  const model::GptConfig model = gpt_config(deck);
  std::string out = fmt::format("deck '{}' is valid\n\nmodel\n", deck.name);
  out += line("parameters", fmt::format("{} ({})", format_grouped(parameters),
                                        format_count(static_cast<double>(parameters))));
  out += line("layers x hidden x heads",
              fmt::format("{} x {} x {}", model.layers, model.hidden, model.heads));
  out += line("sequence, vocabulary",
              fmt::format("{}, {}", model.sequence, format_grouped(model.vocabulary)));
  out += "\nstep\n";
  out += line("ranks", fmt::format("{} ({})", deck.parallel.ranks(),
                                   comm::to_string(grid_shape(deck))));
  out +=
      line("samples", fmt::format("{} = {} micro-batches of {} on {} data-parallel ranks",
                                  deck.batch.global, deck.microbatches(),
                                  deck.batch.micro, deck.parallel.data));
  out += line("tokens", format_grouped(deck.batch.global * deck.model.sequence));
  out += line("model FLOPs",
              fmt::format("{} (attention counted in full: {}; causal: {})",
                          format_count(model_flops), format_count(model_flops),
                          format_count(model_flops_causal)));
  out += line("hardware FLOPs", format_count(hardware_flops));
  out += line(
      "steps",
      fmt::format("{}: {} tokens in all", deck.run.steps.steps,
                  format_count(static_cast<double>(
                      deck.run.steps.steps * deck.batch.global * deck.model.sequence))));
  out += "\nmemory of each rank\n";
  out += line("weights", bytes(memory.weights));
  out += line("gradients", bytes(memory.gradients));
  out += line("optimizer state", bytes(memory.optimizer));
  for (int c = 0; c < kCategoryCount; ++c) {
    const std::size_t amount = memory.saved_by_category[static_cast<std::size_t>(c)];
    if (amount == 0) continue;
    out +=
        line(fmt::format("saved: {}", name_of(static_cast<Category>(c))), bytes(amount));
  }
  out += line("scratch", bytes(memory.workspace.scratch + memory.workspace.held));
  out += line("batch", bytes(memory.batch));
  out += line("total", bytes(memory.total()));
  return out;
}

std::string DryRun::json() const {
  nlohmann::ordered_json saved;
  for (int c = 0; c < kCategoryCount; ++c) {
    saved[std::string(name_of(static_cast<Category>(c)))] =
        memory.saved_by_category[static_cast<std::size_t>(c)];
  }
  const config::ParallelConfig& p = deck.parallel;
  const nlohmann::ordered_json stage = {
      {"weights", memory.weights},
      {"gradients", memory.gradients},
      {"optimizer", memory.optimizer},
      {"activations", memory.saved()},
      {"activations_by_category", saved},
      {"scratch", memory.workspace.scratch + memory.workspace.held},
      {"batch", memory.batch},
      {"total", memory.total()}};
  const nlohmann::ordered_json result = {
      {"deck", deck.name},
      {"parameters", parameters},
      {"ranks", p.ranks()},
      {"grid",
       {{"tensor", p.tensor},
        {"context", p.context},
        {"data", p.data},
        {"pipeline", p.pipeline}}},
      {"memory", {{"stages", nlohmann::ordered_json::array({stage})}}},
      {"flops",
       {{"model", model_flops},
        {"model_causal", model_flops_causal},
        {"hardware", hardware_flops}}},
      {"errors", nlohmann::ordered_json::array()}};
  return result.dump(2) + "\n";
}

}  // namespace trireme::engine
