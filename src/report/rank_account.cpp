// report/rank_account.cpp — see rank_account.hpp.
//
// Everything is a difference of sums that only grow. Example of a step of 100 ms: 80 ms
// in forward and backward sections, of which sampled steps spent 95 % in kernels, 5 in
// the optimizer's, 10 in messages, 5 elsewhere: passes 76, optimizer 5, messages 10, and
// 9 for the host. The first step of a start is taken for one like the second, and what it
// took longer for warm-up: it makes libraries ready and touches memory, and no sampled
// step says how much of it was kernels.
#include "report/rank_account.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <ranges>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme::report {

namespace {

constexpr std::size_t kCounts = 6;  // numbers of AxisCounts
static_assert(sizeof(AxisCounts) == kCounts * sizeof(double));

double at(const Timers::SectionSeconds& seconds, Section section) {
  return seconds[static_cast<std::size_t>(section)];
}

double sum_of(const Timers::SectionSeconds& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

void append(std::vector<double>& numbers, const PartSeconds& seconds) {
  for (std::size_t i = 0; i < kTimeParts; ++i) {
    numbers.push_back(seconds[static_cast<TimePart>(i)]);
  }
  numbers.insert(numbers.end(), seconds.axes().begin(), seconds.axes().end());
}

template <class Iterator>
PartSeconds read_parts(Iterator& next, std::size_t axes) {
  PartSeconds seconds(axes);
  for (std::size_t i = 0; i < kTimeParts; ++i) {
    seconds[static_cast<TimePart>(i)] = *next++;
  }
  for (double& axis : seconds.axes()) axis = *next++;
  return seconds;
}

}  // namespace

std::string_view name_of(TimePart part) {
  constexpr std::array<std::string_view, kTimeParts> kNames = {
      "passes",     "optimizer",  "input",  "host", "warm_up",
      "validation", "checkpoint", "sample", "other"};
  return kNames[static_cast<std::size_t>(part)];
}

double PartSeconds::messages() const {
  return std::accumulate(axes_.begin(), axes_.end(), 0.0);
}

double PartSeconds::total() const {
  return std::accumulate(parts_.begin(), parts_.end(), messages());
}

PartSeconds& PartSeconds::operator+=(const PartSeconds& other) {
  for (std::size_t i = 0; i < kTimeParts; ++i) parts_[i] += other.parts_[i];
  axes_.resize(std::max(axes_.size(), other.axes_.size()), 0.0);
  for (std::size_t i = 0; i < other.axes_.size(); ++i) axes_[i] += other.axes_[i];
  return *this;
}

PartSeconds& PartSeconds::operator*=(double factor) {
  for (double& part : parts_) part *= factor;
  for (double& axis : axes_) axis *= factor;
  return *this;
}

AxisCounts& AxisCounts::operator+=(const AxisCounts& other) {
  calls += other.calls;
  bytes += other.bytes;
  begin += other.begin;
  skew += other.skew;
  transfer += other.transfer;
  sampled_bytes += other.sampled_bytes;
  return *this;
}

AxisCounts AxisCounts::operator-(const AxisCounts& other) const {
  return {calls - other.calls,       bytes - other.bytes,
          begin - other.begin,       skew - other.skew,
          transfer - other.transfer, sampled_bytes - other.sampled_bytes};
}

void RankAccount::add_waits(const comm::Group& group, const MessageWaits& waits) {
  for (const auto& [known, axis] : groups_) {
    if (known != &group) continue;
    counts_[axis] += AxisCounts{
        .skew = waits.skew, .transfer = waits.transfer, .sampled_bytes = waits.bytes};
  }
}

RankAccount::RankAccount(const Sources& sources) : sources_(sources) {
  for (const auto& [name, traffic] : sources.groups.traffic()) names_.push_back(name);
  for (comm::Group* group : sources.groups.all()) {
    const auto found = std::ranges::find(names_, group->name());
    if (found == names_.end()) continue;
    groups_.emplace_back(group, static_cast<std::size_t>(found - names_.begin()));
  }
  names_.emplace_back(kWorldAxis);
  axes_.assign(names_.size(), 0.0);
  counts_.assign(names_.size(), {});
  taken_counts_ = counts_;
  enter_steps();
  before_ = sums();
}

// Messages that pass through the host also take the rank's time between kernels, where
// they are moved on.
void RankAccount::read_traffic(std::vector<double>& seconds,
                               std::vector<AxisCounts>& counts) const {
  seconds.assign(names_.size(), 0.0);
  counts.assign(names_.size(), {});
  for (const auto& [group, axis] : groups_) {
    const comm::Traffic traffic = group->traffic();
    seconds[axis] += traffic.seconds + traffic.progress_seconds;
    counts[axis].calls += static_cast<double>(traffic.calls);
    counts[axis].bytes += static_cast<double>(traffic.bytes);
    counts[axis].begin += traffic.seconds - traffic.wait_seconds;
  }
}

void RankAccount::enter_steps() {
  read_traffic(entered_, entered_counts_);
}

void RankAccount::leave_steps() {
  std::vector<double> seconds;
  std::vector<AxisCounts> counts;
  read_traffic(seconds, counts);
  for (std::size_t i = 0; i < names_.size(); ++i) {
    axes_[i] += seconds[i] - entered_[i];
    counts_[i] += counts[i] - entered_counts_[i];
  }
}

RankAccount::Sums RankAccount::sums() {
  return {sources_.timers.seconds(Phase::step), axes_,
          sources_.pass_seconds ? sources_.pass_seconds() : 0.0};
}

void RankAccount::end_step(std::int64_t step) {
  Sums now = sums();
  PartSeconds seconds = parts_since(before_, now);
  before_ = std::move(now);
  ++count_;
  if (count_ == 1) {
    first_ = {step, std::move(seconds)};
    return;
  }
  if (count_ == 2) settle_first(seconds);
  passes_ += seconds[TimePart::passes];
  ++passes_steps_;
  steps_.push_back({step, std::move(seconds)});
}

void RankAccount::settle_first(const PartSeconds& second) {
  const double all = first_->seconds.step();
  PartSeconds like_second = second;
  like_second *= second.step() > all ? all / second.step() : 1.0;
  warm_up_ += all - like_second.step();
  steps_.push_back({first_->number, std::move(like_second)});
  first_.reset();
}

PartSeconds RankAccount::parts_since(const Sums& before, const Sums& now) const {
  Timers::SectionSeconds sections{};
  for (std::size_t i = 0; i < sections.size(); ++i) {
    sections[i] = now.sections[i] - before.sections[i];
  }
  const double all = sum_of(sections);
  PartSeconds parts(names_.size());
  for (std::size_t i = 0; i < names_.size(); ++i) {
    parts.axes()[i] = now.axes[i] - before.axes[i];
  }
  // Of messages under way together each counts the time that all were moved on in.
  const double waits = parts.messages();
  if (waits > all) parts *= all / waits;
  const KernelSeconds& kernels = sources_.profile.kernel_seconds();
  double passes = 0.0, optimizer = 0.0, input = 0.0;
  if (sources_.pass_seconds) {
    passes = now.passes - before.passes;
    for (const auto& [group, axis] : groups_) {
      const bool is_within =
          group == sources_.groups.tensor.get() || group == sources_.groups.context.get();
      if (is_within) passes -= parts.axes()[axis];
    }
    optimizer = kernels.optimizer_of_a_step();
  } else {
    passes = kernels.share_of_passes() *
             (at(sections, Section::forward) + at(sections, Section::backward));
    optimizer = kernels.share_of_optimizer() * at(sections, Section::optimizer);
    input = at(sections, Section::data);
  }
  // What sampled steps say of this one may be a little too much.
  double rest = std::max(0.0, all - parts.messages());
  const auto take = [&rest](double seconds) {
    const double taken = std::clamp(seconds, 0.0, rest);
    rest -= taken;
    return taken;
  };
  parts[TimePart::input] = take(input);
  parts[TimePart::passes] = take(passes);
  parts[TimePart::optimizer] = take(optimizer);
  parts[TimePart::host] = rest;
  return parts;
}

RankAccount::Taken RankAccount::take() {
  if (first_) {  // it is alone
    steps_.push_back(std::move(*first_));
    first_.reset();
    ++count_;  // the second is no measure of it any more
  }
  Taken taken{.steps = std::exchange(steps_, {}),
              .between = PartSeconds(names_.size()),
              .counts = counts_};
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    taken.counts[i] = counts_[i] - taken_counts_[i];
  }
  taken_counts_ = counts_;
  taken.between[TimePart::warm_up] = std::exchange(warm_up_, 0.0);
  taken.saving = std::exchange(saving_, 0.0);
  for (const auto& [phase, part] : {std::pair(Phase::validation, TimePart::validation),
                                    std::pair(Phase::checkpoint, TimePart::checkpoint),
                                    std::pair(Phase::sample, TimePart::sample),
                                    std::pair(Phase::other, TimePart::other)}) {
    double& before = taken_phases_[static_cast<std::size_t>(phase)];
    const double seconds = sum_of(sources_.timers.seconds(phase));
    taken.between[part] = seconds - before;
    before = seconds;
  }
  return taken;
}

double RankAccount::passes_of_a_step() const {
  return passes_steps_ > 0 ? passes_ / static_cast<double>(passes_steps_) : 0.0;
}

std::string bytes_of(const RankAccount::Taken& taken) {
  std::vector<double> numbers;
  append(numbers, taken.between);
  for (const AxisCounts& axis : taken.counts) {
    numbers.insert(numbers.end(), {axis.calls, axis.bytes, axis.begin, axis.skew,
                                   axis.transfer, axis.sampled_bytes});
  }
  numbers.insert(numbers.end(), {taken.saving, taken.joules, taken.hertz});
  for (const RankAccount::Step& step : taken.steps) {
    numbers.push_back(static_cast<double>(step.number));
    append(numbers, step.seconds);
  }
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double)};
}

RankAccount::Taken taken_from_bytes(std::string_view bytes, std::size_t axes) {
  const std::size_t of_parts = kTimeParts + axes;
  const std::size_t head = of_parts + kCounts * axes + 3, of_step = 1 + of_parts;
  const std::size_t count = bytes.size() / sizeof(double);
  TRIREME_REQUIRE(bytes.size() % sizeof(double) == 0 && count >= head &&
                      (count - head) % of_step == 0,
                  "a rank's account of {}, with {}",
                  format_plural(static_cast<index_t>(bytes.size()), "byte"),
                  format_plural(static_cast<index_t>(axes), "axis", "axes"));
  std::vector<double> numbers(count);
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  auto next = numbers.begin();
  RankAccount::Taken taken{.steps = {}, .between = read_parts(next, axes), .counts = {}};
  for (std::size_t i = 0; i < axes; ++i) {
    AxisCounts& counts = taken.counts.emplace_back();
    for (double* of : {&counts.calls, &counts.bytes, &counts.begin, &counts.skew,
                       &counts.transfer, &counts.sampled_bytes}) {
      *of = *next++;
    }
  }
  for (double* of : {&taken.saving, &taken.joules, &taken.hertz}) *of = *next++;
  while (next != numbers.end()) {
    const auto number = static_cast<std::int64_t>(*next++);
    taken.steps.push_back({number, read_parts(next, axes)});
  }
  return taken;
}

}  // namespace trireme::report
