// plan/dry_run.hpp — a deck checked whole, with the corpora that are there, and what
// the run would take, without model or memory (`trireme train --dry-run`).
#ifndef TRIREME_PLAN_DRY_RUN_HPP_
#define TRIREME_PLAN_DRY_RUN_HPP_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/tally.hpp"
#include "base/types.hpp"
#include "check/deck_check.hpp"
#include "config/capability.hpp"
#include "config/deck.hpp"
#include "plan/device_memory.hpp"
#include "step/memory_plan.hpp"

namespace trireme::plan {

struct DryRun {
  config::Deck deck;
  // What of it this version cannot train; it is valid all the same.
  std::vector<config::NotTrained> not_trained;
  std::int64_t parameters = 0;  // of the whole model; with knows_size()
  // One rank of each pipeline stage, all of a stage being alike; in deep pipelines of the
  // first and the last of the stages that have the same layers, if not all are asked for.
  // None where the deck asks for what there is no plan of yet: a number that is printed
  // is meant.
  struct Stage {
    int number = 0;
    int stands_for = 1;           // stages of the same layers, itself among them
    std::vector<index_t> layers;  // of its chunks
    std::vector<int> slots;       // of its chunks: micro-batches in flight
    std::int64_t parameters = 0;  // of all its ranks, tied copies not counted
    step::MemoryPlan memory;
    LibraryBytes libraries;  // beside it, of a GPU
    std::size_t total() const { return memory.total() + libraries.total(); }
    // What its first rank computes and sends in a step.
    Tally tally;
  };
  std::vector<Stage> stages;
  // Per optimizer step of the full batch, all ranks together.
  double model_flops = 0.0;         // full attention count, as the Megatron papers
  double model_flops_causal = 0.0;  // only the scores that causal attention needs
  // What the stages' passes count: with what is recomputed and with rows of padding.
  double hardware_flops = 0.0;
  // Paths of the deck that are not looked at, its corpora first: a deck can be planned
  // before its corpus is made, or where it cannot be seen.
  std::vector<check::NotChecked> not_checked;
  std::vector<std::string> warnings;  // CheckedDeck::warnings

  std::string text() const;  // for people, at most 80 columns
  std::string json() const;

  // The keys and values ("parallel.context: 2") because of which something is not known:
  // the model's parameters and FLOPs, or only the memory.
  std::vector<std::string> size_not_known() const;
  std::vector<std::string> memory_not_known() const;
  bool knows_size() const { return size_not_known().empty(); }

 private:
  std::string headline() const;
  std::string model_text() const;
  std::string step_text() const;
  std::string memory_text() const;
  std::string memory_text(const Stage& stage) const;
  std::string stages_text() const;
  std::string messages_text() const;
};

// Which stages of a pipeline are planned, where a page cannot show all.
enum class StagesShown { that_differ, all };

// Reads and checks the deck as training would (check_deck). The vocabulary comes from
// model.vocab, or from the corpus where only that says it. InputError where all stages
// are asked for of a pipeline that is too deep to plan each.
DryRun dry_run(const check::DeckCheckOptions& options,
               StagesShown shown = StagesShown::that_differ);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_DRY_RUN_HPP_
