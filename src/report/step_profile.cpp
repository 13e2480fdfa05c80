// report/step_profile.cpp — see step_profile.hpp.
#include "report/step_profile.hpp"

#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/kernel_clock.hpp"
#include "base/words.hpp"

namespace trireme::report {

ProfileOptions parse_profile_steps(const std::string& steps) {
  if (steps == kAllSteps) return {};
  const auto number = number_in<std::int64_t>(steps);
  TRIREME_REQUIRE_INPUT(number && *number >= 1,
                        "--profile={}: expected the number of steps to profile, at least "
                        "1, after the first {} of this start: --profile=10; or --profile "
                        "alone, for all steps after these",
                        steps, ProfileOptions::kLeftOut);
  return {.most_steps = *number};
}

StepProfile::StepProfile(const ProfileOptions& options, const Exec& exec, Timers& timers)
    : options_(options),
      exec_(exec),
      timers_(timers),
      profile_(make_kernel_clock(exec.space())) {}

void StepProfile::begin_step(std::int64_t number) {
  is_in_step_ = number > ProfileOptions::kLeftOut && steps_ < options_.most_steps;
  if (!is_in_step_) return;
  sections_begin_ = timers_.seconds();
  timers_.profile_to(&profile_);
  begin_ = timers_.total_seconds();
}

void StepProfile::end_step() {
  if (!is_in_step_) return;
  exec_.fence("trireme::report::StepProfile");
  seconds_ += timers_.total_seconds() - begin_;
  timers_.profile_to(nullptr);
  const auto sections = timers_.seconds();
  for (std::size_t i = 0; i < sections.size(); ++i) {
    sections_[i] += sections[i] - sections_begin_[i];
  }
  profile_.resolve();
  ++steps_;
}

RankProfile StepProfile::of_rank(const MachineSpeed& machine, double row_bytes) const {
  RankProfile mine{
      .steps = steps_,
      .seconds = seconds_,
      .communication = sections_[static_cast<std::size_t>(Section::communication)],
      .data = sections_[static_cast<std::size_t>(Section::data)],
      .machine = machine,
      .layers = 0,
      .row_bytes = row_bytes,
      .kernels = {}};
  mine.take(profile_);
  return mine;
}

std::optional<ProfileTable> table_of_ranks(comm::Communicator& world,
                                           const ProfileTable::Title& title,
                                           const RankProfile& mine) {
  const std::vector<std::string> texts = world.gather_to_first(mine.text());
  if (world.rank() != 0) return {};
  std::vector<RankProfile> ranks;
  for (const std::string& text : texts) ranks.push_back(RankProfile::of_text(text));
  return ProfileTable(title, ranks);
}

}  // namespace trireme::report
