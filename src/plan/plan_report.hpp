// plan/plan_report.hpp — what a deck would take on a machine, and why this layout: the
// result of `trireme plan`, for people and as JSON.
#ifndef TRIREME_PLAN_PLAN_REPORT_HPP_
#define TRIREME_PLAN_PLAN_REPORT_HPP_

#include <optional>
#include <string>

#include "config/deck.hpp"
#include "plan/calibration.hpp"
#include "plan/machine.hpp"
#include "plan/search.hpp"

namespace trireme::plan {

struct PlanOptions {
  int devices = 0;        // that are used
  bool is_fixed = false;  // the deck's own layout, no search
  double tokens = 0.0;    // of the whole training; 0: those of run.steps
};

struct PlanReport {
  Machine machine;
  std::optional<Calibration> calibration;  // by which the machine is what it is
  config::Deck deck;                       // with the best layout
  PlanOptions options;
  SearchResult result;
  // Seconds of the best layout's step with the first batch of batch.ramp_up; 0: all
  // batches are whole.
  double first_step = 0.0;

  const Plan& best() const { return result.plans.front(); }
  // How long training takes on all tokens; of batches that rise, each by its size.
  double days() const;

  std::string text() const;  // at most 80 columns
  std::string json() const;
  // The deck with the best layout, every default written out.
  std::string deck_text() const;

 private:
  double tokens() const;
  std::string best_text() const;
  std::string parts_text() const;
  std::string memory_text() const;
  std::string others_text() const;
};

// InputError where the deck is of a kind that cannot be planned, where the machine has
// fewer devices, and as search() has it. A fixed layout need not fit.
PlanReport make_plan(const config::Deck& deck, const Machine& machine,
                     const PlanOptions& options);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_PLAN_REPORT_HPP_
