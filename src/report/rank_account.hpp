// report/rank_account.hpp — what one rank's time goes into, step by step.
//
// A step lasts from one look for requests to stop to the next, which all ranks come to
// together, less what validations, saves and samples take: so it has one length on all
// ranks. Its parts add up to that by construction: every second lies in one section of
// one phase of the Timers. Of a section that computes, kernels take the share that
// sampled steps show (StepProfile); the rest is the host's. Where launches go on by
// themselves (a GPU), kernels of passes are the queue's own spans without the waits for
// messages in them, and the update's are those of sampled steps.
#ifndef TRIREME_REPORT_RANK_ACCOUNT_HPP_
#define TRIREME_REPORT_RANK_ACCOUNT_HPP_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/timers.hpp"
#include "comm/process_groups.hpp"
#include "report/message_waits.hpp"
#include "report/step_profile.hpp"

namespace trireme::report {

// The first are of steps; beside these a step has waits for messages, a part for each
// axis.
enum class TimePart {
  passes,     // kernels of forward and backward passes
  optimizer,  // kernels of the update
  input,      // waiting for the next batch
  host,       // neither in a kernel nor in a message
  warm_up,    // what the first step of a start took more than the second
  validation,
  checkpoint,
  sample,
  other
};
inline constexpr std::size_t kTimeParts = 9;
inline constexpr TimePart kBusyParts[] = {TimePart::passes, TimePart::optimizer,
                                          TimePart::input, TimePart::host};
inline constexpr TimePart kPartsBetweenSteps[] = {TimePart::warm_up, TimePart::validation,
                                                  TimePart::checkpoint, TimePart::sample,
                                                  TimePart::other};
std::string_view name_of(TimePart part);
// The axis of the waits for all ranks at the end of a step.
inline constexpr const char* kWorldAxis = "world";

// Seconds, by part.
class PartSeconds {
 public:
  explicit PartSeconds(std::size_t axes = 0) : axes_(axes, 0.0) {}

  double& operator[](TimePart part) { return parts_[static_cast<std::size_t>(part)]; }
  double operator[](TimePart part) const {
    return parts_[static_cast<std::size_t>(part)];
  }
  std::vector<double>& axes() { return axes_; }
  const std::vector<double>& axes() const { return axes_; }

  double compute() const {
    return (*this)[TimePart::passes] + (*this)[TimePart::optimizer];
  }
  // What the rank does in steps without waiting for others.
  double busy() const {
    return compute() + (*this)[TimePart::input] + (*this)[TimePart::host];
  }
  double messages() const;
  double step() const { return busy() + messages(); }
  double total() const;
  PartSeconds& operator+=(const PartSeconds& other);
  PartSeconds& operator*=(double factor);

 private:
  std::array<double, kTimeParts> parts_{};
  std::vector<double> axes_;
};

// What a rank sent along an axis, in steps; seconds in beginning messages alone, which
// depend on nobody else; and of the waits in sampled steps what was for ranks that came
// late, and what for the transfer, with the bytes of these steps.
struct AxisCounts {
  double calls = 0.0, bytes = 0.0, begin = 0.0;
  double skew = 0.0, transfer = 0.0, sampled_bytes = 0.0;

  AxisCounts& operator+=(const AxisCounts& other);
  AxisCounts operator-(const AxisCounts& other) const;
};

class RankAccount {
 public:
  struct Sources {
    Timers& timers;
    const comm::ProcessGroups& groups;
    const StepProfile& profile;
    // Of a queue whose launches go on by themselves: seconds of all passes so far, by its
    // own clock. Empty on a host.
    std::function<double()> pass_seconds = {};
  };
  explicit RankAccount(const Sources& sources);

  // The groups of messages, and kWorldAxis.
  const std::vector<std::string>& axes() const { return names_; }

  // Around steps, in Phase::step: messages of other phases are not theirs.
  void enter_steps();
  void leave_steps();
  // What the messages of a group took in a sampled step.
  void add_waits(const comm::Group& group, const MessageWaits& waits);
  // A save took this rank so long, beside steps.
  void add_saving(double seconds) { saving_ += seconds; }
  // Waited for all ranks so long.
  void add_wait(double seconds) { axes_.back() += seconds; }
  // A step is over, after leave_steps().
  void end_step(std::int64_t step);

  struct Step {
    std::int64_t number = 0;
    PartSeconds seconds;
  };
  // What it has come to since the last call: steps one by one, and what lay between them.
  struct Taken {
    std::vector<Step> steps;
    PartSeconds between;
    std::vector<AxisCounts> counts;  // of the axes
    double saving = 0.0;             // seconds beside steps, in writing checkpoints
    // Of its host (HostMeter): energy, where this rank reads it, and clocks; 0: not
    // known.
    double joules = 0.0, hertz = 0.0;
  };
  Taken take();
  // In kernels of passes of a step, the mean of all but the first; 0: not known.
  double passes_of_a_step() const;

 private:
  // Sums since the Timers began.
  struct Sums {
    Timers::SectionSeconds sections{};  // of Phase::step
    std::vector<double> axes;
    double passes = 0.0;  // Sources::pass_seconds
  };
  Sums sums();
  PartSeconds parts_since(const Sums& before, const Sums& now) const;
  void settle_first(const PartSeconds& second);
  void read_traffic(std::vector<double>& seconds, std::vector<AxisCounts>& counts) const;

  Sources sources_;
  std::vector<std::string> names_;
  std::vector<std::pair<comm::Group*, std::size_t>> groups_;  // and their axes
  // When steps were entered, and in steps so far.
  std::vector<double> entered_, axes_;
  std::vector<AxisCounts> entered_counts_, counts_, taken_counts_;
  Sums before_;                // the step that goes on
  std::optional<Step> first_;  // until the second is known
  std::vector<Step> steps_;    // to be taken
  double warm_up_ = 0.0, saving_ = 0.0;
  std::array<double, kPhaseCount> taken_phases_{};
  std::int64_t count_ = 0;
  double passes_ = 0.0;  // in kernels of these, but for the first of all
  std::int64_t passes_steps_ = 0;
};

// Of a rank's take(), as bytes that it sends; and back.
std::string bytes_of(const RankAccount::Taken& taken);
RankAccount::Taken taken_from_bytes(std::string_view bytes, std::size_t axes);

}  // namespace trireme::report

#endif  // TRIREME_REPORT_RANK_ACCOUNT_HPP_
