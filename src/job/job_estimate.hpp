// job/job_estimate.hpp — what a job's script says of the plan in its comments: memory
// of ranks and nodes, and how long the deck's steps take, as far as that is known and
// from where.
#ifndef TRIREME_JOB_JOB_ESTIMATE_HPP_
#define TRIREME_JOB_JOB_ESTIMATE_HPP_

#include <cstdint>
#include <optional>
#include <string>

#include "config/deck.hpp"
#include "plan/dry_run.hpp"

namespace trireme::job {

struct JobSize {
  std::int64_t ranks = 1, nodes = 1;
  double seconds = 0.0;  // that the job may take
};

// What a run wrote down of its steps, where its last start was on the deck's grid.
struct MeasuredSteps {
  double seconds = 0.0;  // of one: the median over records
  std::int64_t records = 0;
  std::int64_t done = 0;  // steps of the run so far
};
// The steps measured in the deck's run directory; none where there is no such run, or too
// little of it.
std::optional<MeasuredSteps> measured_steps(const config::Deck& deck);

// FLOP/s that a rank's device can do with this precision, by the line "#PEAK fp32=19.5e12
// ..." of a machine's file; none without one. InputError where the line says no numbers.
std::optional<double> rank_peak(const std::string& machine, const std::string& file,
                                config::Precision precision);

// The plan as lines that begin with "# ".
std::string plan_comment(const plan::DryRun& plan, const JobSize& job,
                         const std::optional<MeasuredSteps>& measured,
                         const std::optional<double>& peak);

}  // namespace trireme::job

#endif  // TRIREME_JOB_JOB_ESTIMATE_HPP_
