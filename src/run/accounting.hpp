// run/accounting.hpp — where the time of a run goes, kept while it trains: what each rank
// measures comes to rank 0 every few steps, into each checkpoint, and at the end into
// efficiency.json. Rank 0 alone keeps sums: what a rank sends are its steps one by one,
// since only of single steps can it be said who was the slowest.
#ifndef TRIREME_RUN_ACCOUNTING_HPP_
#define TRIREME_RUN_ACCOUNTING_HPP_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/device_energy.hpp"
#include "base/timers.hpp"
#include "base/types.hpp"
#include "comm/message_times.hpp"
#include "comm/rank_grid.hpp"
#include "report/efficiency.hpp"
#include "report/host_meter.hpp"
#include "report/rank_account.hpp"
#include "report/rank_clock.hpp"
#include "report/run_account.hpp"
#include "report/run_history.hpp"
#include "report/slow_steps.hpp"
#include "report/step_profile.hpp"
#include "step/replica.hpp"

namespace trireme::run {

class Accounting {
 public:
  // Most steps between two messages to rank 0, and about how many seconds: so a slow step
  // is explained soon, and what is sent is small.
  static constexpr std::int64_t kInterval = 16;
  static constexpr double kIntervalSeconds = 10.0;

  struct Setting {
    const comm::RankGrid& grid;
    step::Replica& replica;
    const report::StepProfile& profile;
    double executed_flops = 0.0;  // of a sample, on all ranks
    // On rank 0, what the run's log says of a slow step.
    std::function<void(const std::string&)> say = {};
  };
  // When the loop begins. `past` is the text in the checkpoint that the start goes on
  // from, of rank 0, and empty where there is none; `history` of rank 0, else null.
  Accounting(const Setting& setting, const std::string& past,
             const report::RunHistory* history);

  // The time of its life is that of steps, but for what lies in a Beside.
  class InSteps {
   public:
    explicit InSteps(Accounting& owner);
    ~InSteps();
    InSteps(const InSteps&) = delete;
    InSteps& operator=(const InSteps&) = delete;

   private:
    Accounting& owner_;
    PhaseRegion phase_;
  };
  class Beside {
   public:
    Beside(Accounting& owner, Phase phase);
    ~Beside();
    Beside(const Beside&) = delete;
    Beside& operator=(const Beside&) = delete;

   private:
    Accounting& owner_;
    bool is_in_steps_;
    PhaseRegion phase_;
  };
  // Calls what waits for all ranks at the end of a step. Where launches go on by
  // themselves the device computes meanwhile, and nothing has waited.
  template <class Wait>
  auto wait_for_all(const Wait& wait) {
    const auto begin = Timers::Clock::now();
    const auto result = wait();
    const std::chrono::duration<double> waited = Timers::Clock::now() - begin;
    if (!setting_.replica.is_asynchronous()) rank_.add_wait(waited.count());
    return result;
  }

  // A save has ended that took this rank so long.
  void note_saving(double seconds) { rank_.add_saving(seconds); }
  // The step that begins is one of those in which kernels are profiled, and so are its
  // messages.
  void record_messages();
  // The report of a step came: its samples and tokens, and whether its update was left
  // out.
  void note_report(index_t samples, index_t tokens, bool is_skipped);
  // The step is over; collective where it is the last of an interval.
  void end_step(std::int64_t step);
  // Collective: what there is goes to rank 0 now.
  void gather();
  // On rank 0, after gather(): the account for a checkpoint.
  std::string text(double peak) const;

  // Collective: the schedule replayed with what passes took. Nothing for one stage.
  std::optional<step::PipelineReport> replay();
  // Collective, once training has ended; `speed` of this rank's device, bandwidth 0 where
  // that was not measured. On rank 0, the facts that are the account's.
  std::optional<report::EfficiencyFacts> finish(const report::MachineSpeed& speed);
  // The same on rank 0 alone, while the run trains.
  report::EfficiencyFacts facts(double peak) const;

 private:
  report::Account account(double peak) const;
  void close_records();
  void split_recorded();
  void look_for_slow_steps(const std::vector<report::RankAccount::Taken>& ranks);
  double metered_share();
  void choose_interval();

  Setting setting_;
  Timers& timers_;
  comm::Communicator& world_;
  report::RankAccount rank_;
  report::StartAccount::Samples samples_;  // since the last gather()
  // Of groups of several ranks.
  struct Recorded {
    comm::Group* group = nullptr;
    comm::MessageTimes times;
  };
  std::vector<Recorded> recorded_;
  std::optional<report::RankClock> clock_;  // where there are such groups, on any rank
  report::ClockReading reading_;            // the last one
  // Ends of steps until what was recorded is split: what the step begins is waited for in
  // the next one at the latest; 0: nothing was.
  int ends_to_split_ = 0;
  bool is_in_steps_ = false;
  // Steps until the next gather(), and between that and the one after it.
  std::int64_t left_ = 4, interval_ = 4;
  std::int64_t gathered_steps_ = 0;  // since the last one
  Timers::Clock::time_point gathered_ = Timers::Clock::now();
  double stretch_ = 1.0;
  std::vector<std::string> hosts_;  // of each rank
  report::HostMeter meter_;
  DeviceEnergy device_energy_;
  std::vector<std::string> meters_;  // that any rank has
  double metered_share_ = 0.0;       // of the ranks, those whose energy is in the sum
  // Of rank 0.
  const report::RunHistory* history_;
  report::Account past_;
  std::optional<report::StartAccount> start_;
  report::SlowSteps slow_steps_;
};

}  // namespace trireme::run

#endif  // TRIREME_RUN_ACCOUNTING_HPP_
