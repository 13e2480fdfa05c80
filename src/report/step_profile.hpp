// report/step_profile.hpp — the profile of some steps of a run: which steps, what the
// rank measures in them, and the table of all ranks at the end.
//
// Every run samples a few of its steps, ever more seldom, for its account of time. With
// train --profile steps follow each other, and the first two are left out: libraries
// prepare their products in the first, and memory is touched. Only steps count;
// validations, saves and samples of text between them do not.
#ifndef TRIREME_REPORT_STEP_PROFILE_HPP_
#define TRIREME_REPORT_STEP_PROFILE_HPP_

#include <algorithm>
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
  // Single steps of all the start, ever further apart, and on no rhythm of its own that a
  // deck's numbers would have: 2, 3, 5, 8 and so on to 55, then every 61st.
  bool samples = false;

  bool has(std::int64_t number, std::int64_t steps_before) const;
};

// Seconds that profiled steps spent in kernels, and in the code that launches these.
class KernelSeconds {
 public:
  void add_step(const Timers::SectionSeconds& sections);
  void set_kernels(const KernelProfile& profile);

  // Of the host's time in passes, or in the update; 1 where no step was profiled.
  double share_of_passes() const { return share(passes_, passes_code_); }
  double share_of_optimizer() const { return share(optimizer_, optimizer_code_); }
  double passes_of_a_step() const { return of_a_step(passes_); }
  double optimizer_of_a_step() const { return of_a_step(optimizer_); }

 private:
  static double share(double kernels, double code) {
    return code > 0.0 ? std::min(1.0, kernels / code) : 1.0;
  }
  double of_a_step(double seconds) const {
    return steps_ > 0 ? seconds / static_cast<double>(steps_) : 0.0;
  }

  double passes_ = 0.0, optimizer_ = 0.0;
  double passes_code_ = 0.0, optimizer_code_ = 0.0;
  std::int64_t steps_ = 0;
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

  bool is_in_step() const { return is_in_step_; }
  // Whether this step will be profiled.
  bool has(std::int64_t number) const { return options_.has(number, steps_); }
  std::int64_t steps() const { return steps_; }
  const KernelSeconds& kernel_seconds() const { return kernel_seconds_; }
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
  Timers::SectionSeconds sections_begin_{}, sections_{};
  KernelSeconds kernel_seconds_;
};

// Collective: the table of what all ranks measured, on rank 0; none elsewhere.
std::optional<ProfileTable> table_of_ranks(comm::Communicator& world,
                                           const ProfileTable::Title& title,
                                           const RankProfile& mine);

}  // namespace trireme::report

#endif  // TRIREME_REPORT_STEP_PROFILE_HPP_
