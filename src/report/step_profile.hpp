// report/step_profile.hpp — the profile of some steps of a run (train --profile): which
// steps, what the rank measures in them, and the table of all ranks at the end.
//
// The first two steps are left out: libraries prepare their products in the first, and
// memory is touched. Only steps count; validations, saves and samples of text between
// them do not.
#ifndef TRIREME_REPORT_STEP_PROFILE_HPP_
#define TRIREME_REPORT_STEP_PROFILE_HPP_

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "base/exec.hpp"
#include "base/kernel_profile.hpp"
#include "base/timers.hpp"
#include "comm/communicator.hpp"
#include "report/profile_table.hpp"

namespace trireme::report {

struct ProfileOptions {
  static constexpr std::int64_t kLeftOut = 2;  // steps of this start, before the first
  std::int64_t most_steps = std::numeric_limits<std::int64_t>::max();
};

// The number of steps, or kAllSteps. InputError otherwise.
inline constexpr const char* kAllSteps = "all";
ProfileOptions parse_profile_steps(const std::string& steps);

class StepProfile {
 public:
  StepProfile(const ProfileOptions& options, const Exec& exec, Timers& timers);
  ~StepProfile() { timers_.profile_to(nullptr); }
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  // Around each step, by its number in this start, from 1.
  void begin_step(std::int64_t number);
  void end_step();

  std::int64_t steps() const { return steps_; }
  // What this rank measured. `row_bytes` is what (rows, hidden) takes.
  RankProfile of_rank(const MachineSpeed& machine, double row_bytes) const;

 private:
  ProfileOptions options_;
  Exec exec_;
  Timers& timers_;
  KernelProfile profile_;
  bool is_in_step_ = false;
  std::int64_t steps_ = 0;
  double begin_ = 0.0, seconds_ = 0.0;  // of the step; of all
  std::array<double, kSectionCount> sections_begin_{}, sections_{};
};

// Collective: the table of what all ranks measured, on rank 0; none elsewhere.
std::optional<ProfileTable> table_of_ranks(comm::Communicator& world,
                                           const ProfileTable::Title& title,
                                           const RankProfile& mine);

}  // namespace trireme::report

#endif  // TRIREME_REPORT_STEP_PROFILE_HPP_
