// config/compare.cpp — see compare.hpp.
#include "config/compare.hpp"

#include <algorithm>
#include <tuple>

#include "config/check.hpp"
#include "config/key_table.hpp"
#include "config/kinds.hpp"

namespace trireme::config {
namespace {

enum class Rule { free, with_set, fixed };

bool begins(const std::string& text, const char* prefix) {
  return text.rfind(prefix, 0) == 0;
}

Rule rule_of(const std::string& key) {
  if (key == "run.seed") return Rule::fixed;
  for (const char* prefix :
       {"parallel.", "precision.", "memory.", "run.", "checkpoint."}) {
    if (begins(key, prefix)) return Rule::free;
  }
  if (key == "batch.micro") return Rule::free;
  for (const char* name : {"lr", "min_lr", "schedule", "warmup", "decay", "cooldown"}) {
    if (key == std::string("optimizer.") + name) return Rule::with_set;
  }
  return Rule::fixed;
}

// Whether the checkpoint's value of a key that may not change is what that is by default
// there: then a default of another value only follows the change of another key.
bool is_default_in(const Deck& checkpoint, const Key& key) {
  const std::string& path = key.info.path;
  if (rule_of(path) != Rule::fixed || followed_keys(path).empty()) return false;
  Deck by_default = checkpoint;
  fill_model_defaults(by_default, [&](const char* other) { return other != path; });
  return key.write(by_default) == key.write(checkpoint);
}

// Whether the decks' corpora of this key may be the same files, at other paths.
bool differs_in_paths_alone(const Deck& checkpoint, const Deck& deck,
                            const std::string& key) {
  if (key == "data.train") {
    return std::ranges::equal(checkpoint.data.train, deck.data.train, {},
                              &WeightedPath::weight, &WeightedPath::weight);
  }
  return key == "data.validation" &&
         std::ranges::equal(checkpoint.data.validation, deck.data.validation, {},
                            &NamedPath::name, &NamedPath::name);
}

}  // namespace

Comparison compare_for_resume(const Deck& checkpoint, const Deck& deck,
                              const std::set<std::string>& bad, Corpora corpora) {
  Comparison result;
  for (const Key& key : key_table()) {
    const std::string& path = key.info.path;
    const std::string before = key.write(checkpoint);
    const std::string now = key.write(deck);
    if (before == now || bad.count(path) > 0) continue;
    // Kinds that differ are the error, and not what either has beside.
    if (!has_key(checkpoint.model.kind, path) || !has_key(deck.model.kind, path))
      continue;
    if (!deck.given(path) && is_default_in(checkpoint, key)) continue;
    if (path == "model.vocab" && deck.model.vocab == 0) continue;  // the corpus decides
    const bool has_moved = corpora == Corpora::may_have_moved &&
                           differs_in_paths_alone(checkpoint, deck, path);
    // It has no place beside data.validation, which is the error where it is gone.
    if (path == "data.split" && before.empty() && !deck.given(path)) continue;
    const Rule rule = has_moved ? Rule::free : rule_of(path);
    const auto origin = deck.origins.find(path);
    const bool by_set = origin != deck.origins.end() && origin->second == "--set";
    const bool follows = !deck.given(path) && !followed_keys(path).empty();
    if (rule == Rule::free || (rule == Rule::with_set && (by_set || follows))) {
      result.changes.push_back(fmt::format("{}: {} -> {}", path, before, now));
      continue;
    }
    const std::string shown = before.empty() ? "none" : before;
    DeckError error = error_at(
        deck, path,
        fmt::format("the checkpoint has {}, the deck has {}", shown,
                    now.empty() ? "none" : now),
        rule == Rule::with_set
            ? "a change of the learning rate's schedule only with --set"
            : "the checkpoint's value: it defines the run",
        rule == Rule::with_set
            ? fmt::format("--set {}={}, or {}: {}", path, now, path, shown)
            : fmt::format("{}, or start a new run in another run.dir",
                          before.empty() ? "remove " + path : path + ": " + before));
    result.errors.push_back(std::move(error));
  }
  return result;
}

void take_measured_stages(const Deck& checkpoint, Deck& deck) {
  const ParallelConfig &before = checkpoint.parallel, &now = deck.parallel;
  const auto on = [](const Deck& d) {
    return std::tuple(d.parallel.pipeline, d.parallel.virtual_pipeline, d.parallel.tensor,
                      d.parallel.sequence, d.parallel.schedule, d.batch.micro,
                      d.memory.recompute, d.memory.recompute_layers, d.precision.compute,
                      d.model.layers, d.model.decoder_layers);
  };
  if (!now.is_to_be_measured() || before.balance != now.balance) return;
  if (on(checkpoint) == on(deck)) deck.parallel.stages = before.stages;
}

}  // namespace trireme::config
