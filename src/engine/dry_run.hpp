// engine/dry_run.hpp — a deck checked whole, and what the run would take, without corpus,
// model or memory (`trireme train --dry-run`).
#ifndef TRIREME_ENGINE_DRY_RUN_HPP_
#define TRIREME_ENGINE_DRY_RUN_HPP_

#include <string>

#include "config/deck.hpp"
#include "engine/memory_plan.hpp"

namespace trireme::engine {

struct DryRun {
  config::Deck deck;
  std::int64_t parameters = 0;  // of the whole model
  MemoryPlan memory;            // of one rank
  // Per optimizer step, all ranks together.
  double model_flops = 0.0;         // full attention count, as the Megatron papers
  double model_flops_causal = 0.0;  // only the scores that causal attention needs
  double hardware_flops = 0.0;      // with what is recomputed

  std::string text() const;  // for people, at most 80 columns
  std::string json() const;
};

// Reads the deck as training would. `ranks` 0: as many as its grid asks for. Throws
// config::DeckErrors with everything that is wrong. The vocabulary comes from
// model.vocab, or from the corpus where only that says it.
DryRun dry_run(const std::string& path, const std::vector<std::string>& overrides,
               const std::string& run_dir, int ranks);

}  // namespace trireme::engine

#endif  // TRIREME_ENGINE_DRY_RUN_HPP_
