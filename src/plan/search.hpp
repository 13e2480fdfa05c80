// plan/search.hpp — the fastest layout of a deck on a machine: all legal ones are
// estimated, those that do not fit the memory are put aside, of the best the pipelines
// are simulated, and what is told of the memory of the best is the plan of their steps.
#ifndef TRIREME_PLAN_SEARCH_HPP_
#define TRIREME_PLAN_SEARCH_HPP_

#include <cstdint>
#include <vector>

#include "base/types.hpp"
#include "config/deck.hpp"
#include "plan/layout_memory.hpp"
#include "plan/layouts.hpp"
#include "plan/performance_model.hpp"

namespace trireme::plan {

struct Plan {
  Layout layout;
  std::vector<index_t> stages;  // layers of each piece; without a pipeline none
  Prediction prediction;
  LayoutMemory memory;

  double seconds() const { return prediction.seconds(); }
};

struct SearchResult {
  // The best of each grid (tensor x pipeline x data), best first: their layers dealt and
  // their memory planned as by a run, their pipelines simulated in its order.
  std::vector<Plan> plans;
  // Faster than the best, but they do not fit: those that are nearest to it. Where
  // nothing fits: the nearest.
  std::vector<Plan> too_large;
  std::int64_t legal = 0, fitting = 0;
};

// InputError where no layout is legal, or where none fits: with what rules out the
// nearest, and by how much.
SearchResult search(PerformanceModel& model, const config::Deck& deck, int devices);

// The layers of a deck's stages as a run deals them; other programs deal evenly what the
// deck does not. Without a pipeline none.
std::vector<index_t> dealt_layers(const Machine& machine, const config::Deck& deck);

// What a layout takes, without asking whether it fits: its own pipeline, simulated, and
// the memory of its own steps.
Plan plan_of(PerformanceModel& model, const config::Deck& deck);

// The parts of a step in which `other` loses most of its time, and how much in each.
struct LostTime {
  const char* part;
  double seconds;
};
std::vector<LostTime> lost_time(const Plan& best, const Plan& other);

// The parts of a step by name, in the order of StepParts.
struct NamedPart {
  const char* name;
  double StepParts::*seconds;
};
const std::vector<NamedPart>& step_parts();

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_SEARCH_HPP_
