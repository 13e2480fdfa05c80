// report/step_profile.cpp — see step_profile.hpp.
#include "report/step_profile.hpp"

#include <algorithm>
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

bool ProfileOptions::has(std::int64_t number, std::int64_t steps_before) const {
  constexpr std::int64_t kFirst[] = {2, 3, 5, 8, 13, 21, 34, 55};
  constexpr std::int64_t kSeldom = 61;
  if (!samples) return number > kLeftOut && steps_before < most_steps;
  return std::ranges::count(kFirst, number) > 0 || number % kSeldom == 0;
}

void KernelSeconds::add_step(const Timers::SectionSeconds& sections) {
  ++steps_;
  passes_code_ += sections[static_cast<std::size_t>(Section::forward)] +
                  sections[static_cast<std::size_t>(Section::backward)];
  optimizer_code_ += sections[static_cast<std::size_t>(Section::optimizer)];
}

void KernelSeconds::set_kernels(const KernelProfile& profile) {
  passes_ = optimizer_ = 0.0;
  for (const KernelRecord& record : profile.records()) {
    const bool is_of_passes =
        record.section == Section::forward || record.section == Section::backward;
    if (is_of_passes) passes_ += record.seconds;
    if (record.section == Section::optimizer) optimizer_ += record.seconds;
  }
}

void StepProfile::begin_step(std::int64_t number) {
  is_in_step_ = has(number);
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
  Timers::SectionSeconds sections = timers_.seconds();
  for (std::size_t i = 0; i < sections.size(); ++i) {
    sections[i] -= sections_begin_[i];
    sections_[i] += sections[i];
  }
  profile_.resolve();
  kernel_seconds_.add_step(sections);
  kernel_seconds_.set_kernels(profile_);
  ++steps_;
  is_in_step_ = false;
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
