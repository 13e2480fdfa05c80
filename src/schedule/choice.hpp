// schedule/choice.hpp — which order of passes a pipeline takes: the fastest of those that
// its schedule allows, found by simulation.
#ifndef TRIREME_SCHEDULE_CHOICE_HPP_
#define TRIREME_SCHEDULE_CHOICE_HPP_

#include <memory>
#include <optional>
#include <vector>

#include "config/enums.hpp"
#include "schedule/simulate.hpp"

namespace trireme::schedule {

using config::PipelineSchedule;

struct Choice {
  OrderOf order_of;
  // When each pass begins, where orders were searched for: with_messages() needs it.
  std::shared_ptr<const Timeline> timeline;
  int groups = 1;  // the argument of interleaved()
  // How long a step takes, where orders were simulated to choose among them. It is not
  // known where a rule gave the order, because there is but one, or because there are too
  // many passes to simulate (Megatron's groups, ZB-H1).
  std::optional<double> seconds;
};
// The fastest orders of a kind, by simulation where there are several; of those that are
// equally fast the one with fewest micro-batches in flight. Every rank calls this at its
// start, so that what is simulated is bounded: some tenths of a second, some ten
// megabytes.
Choice choose_orders(const PipelineShape& shape, PipelineSchedule kind,
                     const Costs& costs);
// How long a step takes with the orders chosen, at these costs. Simulates all stages
// where choose_orders() has not done so.
double seconds_of(const PipelineShape& shape, const Choice& choice, const Costs& costs);
// By more than rounding makes it.
inline bool is_less(double value, double than) {
  constexpr double kSame = 1e-9;
  return value < than * (1.0 - kSame);
}
// How many passes choose_orders() goes through in all its tries together.
double passes_to_choose(const PipelineShape& shape, PipelineSchedule kind);
// Whether these are few enough for choose_orders() to simulate the pipeline, and for
// whoever wants to see all stages' times.
bool is_simulated(const PipelineShape& shape, PipelineSchedule kind);

// The orders that choose_orders() chooses from, fewest micro-batches in flight first; one
// where a rule gives it. Of zero_bubble, whose orders are searched for by their costs,
// that of the rule.
std::vector<OrderOf> orders_to_try(const PipelineShape& shape, PipelineSchedule kind);

}  // namespace trireme::schedule

#endif  // TRIREME_SCHEDULE_CHOICE_HPP_
