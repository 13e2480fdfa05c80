// report/run_account.hpp — what all ranks' time has come to, over all starts of a run:
// kept by rank 0, and in each checkpoint, so that it is exactly as old as that.
//
// Ranks send their steps one by one (RankAccount::take). So the account has the sum over
// steps of the slowest rank's time as well as the slowest rank's sum: what the first is
// more than the second, ranks wait for whoever happens to be late. Totals of ranks are of
// one start; what it adds to the account are sums, which ranks of another grid can go on
// with. Seconds are device seconds: of all ranks together.
#ifndef TRIREME_REPORT_RUN_ACCOUNT_HPP_
#define TRIREME_REPORT_RUN_ACCOUNT_HPP_

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "comm/process_groups.hpp"
#include "report/rank_account.hpp"

namespace trireme::report {

using Amounts = std::map<std::string, double>;

// What the devices could have done, at their measured peak, in some of the time of steps.
// Each holds the next, but for errors of measurement.
struct DeviceFlops {
  double stepping = 0.0;      // all of it
  double ideal = 0.0;         // had messages taken no time
  double slowest_step = 0.0;  // of each step while its slowest rank was busy
  double slowest_rank = 0.0;  // while the slowest rank of the start was busy
  double busy = 0.0;          // while each rank itself was busy
  double computing = 0.0;     // while it was in kernels
  // stepping - ideal by axis; slowest_rank - busy, and busy - computing, by TimePart; and
  // beside steps, by TimePart.
  Amounts transfer = {}, balance = {}, beside = {}, between = {};

  DeviceFlops& operator+=(const DeviceFlops& other);
  DeviceFlops& operator*=(double factor);
  bool operator==(const DeviceFlops&) const = default;
};

// Of all ranks, in steps; skew and transfer are parts of the waits in sampled ones.
struct AxisSum {
  double seconds = 0.0, calls = 0.0, bytes = 0.0;
  double skew = 0.0, transfer = 0.0, sampled_bytes = 0.0;
  AxisSum& operator+=(const AxisSum& other);
  bool operator==(const AxisSum&) const = default;
};

// FLOPs by the algorithm, of updates that were left out (a gradient was not finite), of
// rows that only fill up a table, and all that were executed.
struct FlopCounts {
  double model = 0.0, skipped = 0.0, padding = 0.0, executed = 0.0;
  FlopCounts& operator+=(const FlopCounts& other);
  bool operator==(const FlopCounts&) const = default;
};

// Of steps that stand: those that lead to where the run is now.
struct Account {
  // When the first start began whose steps it has, in seconds since 1970: wall time
  // counts from there on. It is also how a run is told from one that branched off it.
  double began = 0.0;
  double steps = 0.0, samples = 0.0, tokens = 0.0;
  double seconds_of_steps = 0.0;  // one after the other, the ranks' mean
  // Of what is metered, and the tokens that were made there meanwhile.
  double joules = 0.0, metered_tokens = 0.0;
  FlopCounts flops;
  DeviceFlops device;
  Amounts seconds = {};  // device seconds by name_of(TimePart)
  std::map<std::string, AxisSum> axes = {};
  // How many steps took about so long: bin b begins at seconds_of_bin(b).
  std::map<int, std::int64_t> step_bins = {};

  // 2^(b/8) ms.
  static double seconds_of_bin(int bin);
  static int bin_of(double seconds);
  double step_seconds() const;  // device seconds in steps
  Account& operator+=(const Account& other);
  bool operator==(const Account&) const = default;

  nlohmann::ordered_json json() const;
  // JsonError where it is none.
  static Account of_json(const nlohmann::ordered_json& json);
};

// The rank that has most, where that is more than so many times the others' mean; -1:
// none stands out so.
int outstanding_rank(const std::vector<double>& values, double times);

// FLOPs of a sample, on all ranks together.
struct SampleFlops {
  double model = 0.0, padding = 0.0, executed = 0.0;
};

// This start's part of it, on rank 0.
class StartAccount {
 public:
  // `axes` as RankAccount has them; `tied_stages`: that hold a copy of a tied parameter,
  // whose messages no other stage takes part in.
  StartAccount(const comm::GridShape& grid, std::vector<std::string> axes,
               const SampleFlops& flops, const std::vector<int>& tied_stages = {});

  struct Samples {
    double all = 0.0, skipped = 0.0;  // of updates that were left out
    double tokens = 0.0;              // of all
  };
  // Some steps, of every rank in order, and the samples of those whose reports came.
  // `metered_share`: of the ranks, those whose energy is in their joules.
  void add(const std::vector<RankAccount::Taken>& ranks, const Samples& samples,
           double metered_share = 1.0);

  // What this start adds to the account. `peak`: FLOP/s of a device, the ranks' mean.
  // `stretch`: how much longer a step is than its slowest rank is busy, had messages
  // taken no time, as the schedule's replay says.
  Account account(double peak, double stretch) const;
  // Of each rank, in all.
  const std::vector<PartSeconds>& ranks() const { return totals_; }
  // The rank that itself took longest to write checkpoints, or to begin messages along an
  // axis, where it stands out so much that it must be why others waited; -1: none.
  int slowest_saver() const;
  int slowest_sender(const std::string& axis) const;
  // Of their clocks, when last asked; 0: not known.
  const std::vector<double>& hertz() const { return hertz_; }
  const std::vector<std::string>& axes() const { return axes_; }
  double steps() const { return sums_.steps; }

 private:
  void add_step(const std::vector<RankAccount::Taken>& ranks, std::size_t step);
  void share_out(Account& account) const;

  int ranks_;
  std::vector<std::string> axes_;
  // By axis, of each rank: the number of its own group; -1: it is in none.
  std::vector<std::vector<int>> group_of_;
  SampleFlops flops_;
  Account sums_;  // its DeviceFlops are device seconds
  std::vector<PartSeconds> totals_;
  std::vector<double> saving_, hertz_;       // of each rank
  std::vector<std::vector<double>> begins_;  // by axis, of each rank
  std::vector<double> least_waits_;          // by axis: of the last to come in each group
};

}  // namespace trireme::report

#endif  // TRIREME_REPORT_RUN_ACCOUNT_HPP_
