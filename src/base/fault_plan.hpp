// base/fault_plan.hpp — what shall go wrong in a run, on purpose (--fault): to test the
// program, and to try a system before trusting it.
//
//   KIND[:KEY=VALUE,...][;KIND...]
//   kill, stop       the process, as SIGKILL and SIGSTOP do
//   slow             it sleeps
//   enospc, eio      the next write fails: disk full, device error
//   short_write      the next write loses its second half, and says nothing
//   bit_flip         a bit of the next write changes, and nothing tells
//   overflow         one of the rank's gradients in this step is infinite
//
//   phase=NAME       where: a phase of the run ("ckpt.write"); "ckpt.*": any such
//   at=TIME          or when: seconds since the start, whatever the run does then
//   rank=N           which; all without it
//   step=N           in this step only; of a save: for the checkpoint of this step
//   after=N          at the N-th time the phase is reached (1)
//   times=N          so many times from then on (1); 0: always (`slow` says so once)
//   seconds=TIME     that `slow` sleeps (1)
//   seed=N           draws the numbers that are given as ranges: rank=0-7, at=0-2.5
#ifndef TRIREME_BASE_FAULT_PLAN_HPP_
#define TRIREME_BASE_FAULT_PLAN_HPP_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/fault.hpp"

namespace trireme {

// Where a fault can strike, and which can there.
struct FaultPhase {
  std::string name;
  bool writes = false;         // enospc and eio, too
  bool has_data = false;       // short_write and bit_flip, too
  bool has_gradients = false;  // overflow, too
};

class FaultPlan {
 public:
  // For one of `ranks` ranks; the same text gives each the same draws. `phases` are the
  // names there are. InputError says what is wrong with the text. Faults of a time begin
  // to count now.
  FaultPlan(const std::string& text, int rank, int ranks,
            const std::vector<FaultPhase>& phases);
  FaultPlan(const FaultPlan&) = delete;
  FaultPlan& operator=(const FaultPlan&) = delete;

  bool empty() const { return rules_.empty(); }
  // The step that is under way.
  void set_step(std::int64_t step) { step_ = step; }
  // Any thread: a phase is reached, in that step or for the sake of another one (its
  // checkpoint). Kills, stops and sleeps here; else what the next write, or the step,
  // shall suffer.
  Fault at(std::string_view phase) { return at(phase, step_); }
  Fault at(std::string_view phase, std::int64_t step);

  enum class Kind { kill, stop, slow, enospc, eio, short_write, bit_flip, overflow };

 private:
  struct Rule {
    Kind kind = Kind::kill;
    std::string text;
    std::vector<std::string> phases;
    std::int64_t step = -1;  // any
    std::int64_t after = 1;
    std::int64_t times = 1;
    double seconds = 1.0;
    double at = -1.0;  // no time
    bool is_mine = true;
    std::int64_t met = 0;
    bool has_struck = false;
  };
  static Rule parse_rule(const std::string& text, std::uint64_t number, int rank,
                         int ranks, const std::vector<FaultPhase>& phases);
  static void set_phases(Rule& rule, std::string_view kind, const std::string& pattern,
                         const std::vector<FaultPhase>& phases);
  void say(const Rule& rule, std::string_view where, std::int64_t step) const;
  static Fault strike(const Rule& rule);

  int rank_;
  std::atomic<std::int64_t> step_{0};
  std::mutex mutex_;
  std::vector<Rule> rules_;
  std::vector<std::jthread> clocks_;  // of faults of a time
};

}  // namespace trireme

#endif  // TRIREME_BASE_FAULT_PLAN_HPP_
