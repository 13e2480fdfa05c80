// plan/search.hpp — the fastest layout of a deck on a machine: all legal ones are
// estimated, those that do not fit the memory are put aside, and of the best the
// pipelines are simulated.
#ifndef TRIREME_PLAN_SEARCH_HPP_
#define TRIREME_PLAN_SEARCH_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "plan/layout_memory.hpp"
#include "plan/layouts.hpp"
#include "plan/performance_model.hpp"

namespace trireme::plan {

struct Plan {
  Layout layout;
  Prediction prediction;
  LayoutMemory memory;

  double seconds() const { return prediction.seconds(); }
};

struct SearchResult {
  // The best of each grid (tensor x pipeline x data), best first.
  std::vector<Plan> plans;
  // Estimated to be faster than the best, but they do not fit: those that are nearest to
  // it. Where nothing fits: the nearest.
  std::vector<Plan> too_large;
  std::int64_t legal = 0, fitting = 0;
};

// InputError where the machine has fewer devices, where no layout is legal, or where none
// fits: with what rules out the nearest, and by how much.
SearchResult search(PerformanceModel& model, const config::Deck& deck, int devices);

// What a layout takes, without asking whether it fits: its own pipeline, simulated.
Plan plan_of(PerformanceModel& model, const config::Deck& deck);

// Where `other` loses its time: "bubble +3.1 s, optimizer +0.2 s".
std::string why_slower(const Plan& best, const Plan& other);

// The parts of a step by name, in the order of StepParts.
struct NamedPart {
  const char* name;
  double StepParts::*seconds;
};
const std::vector<NamedPart>& step_parts();

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_SEARCH_HPP_
