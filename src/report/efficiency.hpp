// report/efficiency.hpp — how efficient a run was over all its starts, and why not more:
// efficiency.json (docs/efficiency.md) and the table at the end of a start.
//
//   model FLOPs of the steps that stand
//   ------------------------------------------------ = goodput = product of the factors
//   devices x wall time of all starts x measured peak
//
// Each factor is the quotient of two quantities that were accumulated apart (DeviceFlops
// and FlopCounts), the numerator of one being the denominator of the next. In the middle
// are those of POP (load balance x serialisation x transfer, Rosas et al. 2014), of the
// time that ranks are busy; around them the share of the time that served the run, what
// the host does beside its kernels, the rate of the kernels, and the FLOPs that the
// algorithm needs. What a factor loses is split into named parts: the losses.
#ifndef TRIREME_REPORT_EFFICIENCY_HPP_
#define TRIREME_REPORT_EFFICIENCY_HPP_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "comm/process_groups.hpp"
#include "report/kernel_classes.hpp"
#include "report/link_probe.hpp"
#include "report/reference_run.hpp"
#include "report/run_account.hpp"
#include "report/section_table.hpp"
#include "report/site_messages.hpp"
#include "step/pipeline_report.hpp"

namespace trireme::report {

inline constexpr const char* kEfficiencyName = "efficiency.json";

// What a run has come to, as rank 0 knows it.
struct EfficiencyFacts {
  bool is_complete = false;  // written at the end of a start, and not while it trains
  std::string run_directory = {}, time = {};
  comm::GridShape grid = {};
  std::vector<int> tied_stages = {};  // that hold a copy of a tied parameter
  std::int64_t start = 0, starts = 1;
  std::int64_t step = 0, steps = 0;  // done, and of the deck
  int ranks = 1;
  DType type = DType::float32;           // that the model computes in
  double peak = 0.0;                     // FLOP/s of a device, measured, the ranks' mean
  double nominal_peak = 0.0;             // the maker's; 0: not known
  double bandwidth = 0.0;                // bytes/s of a device's memory; 0: not measured
  std::vector<LinkSpeed> links = {};     // none: not measured
  std::vector<std::string> meters = {};  // what tells its energy
  std::optional<ReferenceRun> reference = {};

  Account account = {};
  // Of all starts, those that led nowhere included.
  double capacity = 0.0;        // FLOPs: ranks x wall time x peak of each
  double device_seconds = 0.0;  // ranks x wall time
  // Of these, before the first step of each start; and at their peaks, that, and what lay
  // behind the last checkpoint of starts that are over.
  double ready_seconds = 0.0, ready_flops = 0.0, ending_flops = 0.0;

  // Of this start.
  std::int64_t steps_of_start = 0;
  std::vector<std::string> axes = {};
  std::vector<PartSeconds> rank_seconds = {};
  std::vector<int> stages = {};         // of each rank
  std::vector<std::string> hosts = {};  // of each rank
  std::vector<double> hertz = {};       // as StartAccount has it
  // StartAccount's slowest_saver(), and slowest_sender() of each axis.
  int slowest_saver = -1;
  std::vector<int> slowest_senders = {};
  std::vector<SiteMessages> sites = {};
  std::int64_t profiled_steps = 0;
  KernelClasses kernels = {};  // of such a step, the ranks' mean
  std::optional<step::PipelineReport> pipeline = {};
  std::vector<SectionTable::MemoryRow> memory = {};
};

// A quantity in floating-point operations, measured or possible in a time.
struct Quantity {
  std::string name;
  double flops = 0.0;
};

struct LostPart {
  std::string name;
  double flops = 0.0;
};

struct Factor {
  std::string name;
  Quantity numerator, denominator;
  std::vector<LostPart> parts = {};  // add up to denominator - numerator

  double value() const;  // 1 where there was nothing to lose
};

struct Loss {
  std::string name;
  double share = 0.0;         // of what the devices could have done in all the time
  int rank = -1, stage = -1;  // that stands out; -1: none does
  std::string advice;
};

class Efficiency {
 public:
  explicit Efficiency(const EfficiencyFacts& facts);

  // In order: each has the numerator of the one before as its denominator.
  const std::vector<Factor>& factors() const { return factors_; }
  double goodput() const;  // measured, and not by the factors
  double product() const;  // of the factors
  // POP's: load balance x communication, and serialisation x transfer; and against the
  // reference, kernel seconds of a sample there over those here, and all of it together.
  double parallel() const;
  double communication() const;
  std::optional<double> computation_scaling() const;
  std::optional<double> global() const;
  // Of device time that was in no kernel, largest first; what kernels lose beside the
  // peak is no loss here, but by class of kernels a part of the FLOP rate.
  const std::vector<Loss>& losses() const { return losses_; }

  // At most 80 columns; ends with a newline.
  std::string text() const;
  // The file's content.
  std::string json() const;

 private:
  void add_factors();
  void add_losses();
  void add_loss(const std::string& name, double flops, int rank);
  int outstanding_rank(TimePart part) const;
  int slowest_rank() const;
  int reason_of(const std::string& part) const;
  std::vector<LostPart> kernel_losses() const;
  const Factor& factor(std::string_view name) const;
  bool is_of_beginning(const Loss& loss) const;
  std::vector<Loss> shown_losses() const;
  double tflops_of(double flops) const;
  double share_of_nominal_peak() const;
  std::string rates_text() const;
  std::string pop_text() const;
  const char* roof_of(const KernelClass& kernels) const;
  std::string roofline_text() const;
  std::string links_text() const;
  nlohmann::ordered_json identity_json() const;
  nlohmann::ordered_json pop_json() const;
  nlohmann::ordered_json losses_json() const;
  nlohmann::ordered_json rates_json() const;
  nlohmann::ordered_json seconds_json() const;
  nlohmann::ordered_json histogram_json() const;
  nlohmann::ordered_json ranks_json() const;
  nlohmann::ordered_json extremes_json(int stage) const;
  nlohmann::ordered_json sites_json() const;
  nlohmann::ordered_json kernels_json() const;
  nlohmann::ordered_json machine_json() const;
  nlohmann::ordered_json energy_json() const;

  EfficiencyFacts facts_;
  std::vector<Factor> factors_;
  std::vector<Loss> losses_;
};

}  // namespace trireme::report

#endif  // TRIREME_REPORT_EFFICIENCY_HPP_
