// report/section_table.hpp — the block at the end of a run: how fast it was, where the
// time went, section by section over the ranks, what each axis sent and how much of that
// was hidden, and the memory beside its plan; for people (text) and programs (JSON).
//
// The layout is that of molecular-dynamics codes, which every user of a cluster has seen.
#ifndef TRIREME_REPORT_SECTION_TABLE_HPP_
#define TRIREME_REPORT_SECTION_TABLE_HPP_

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/timers.hpp"
#include "comm/group.hpp"
#include "report/peak_meter.hpp"

namespace trireme::report {

// Bytes of one category: as planned (0: not planned), and as it came to be.
struct MemoryUse {
  std::string name;  // "weights", "process (peak)"
  double planned = 0.0;
  double measured = 0.0;
};

// What this rank sent along one axis.
struct AxisTraffic {
  std::string axis;
  comm::Traffic traffic;
};

// One rank's share of the run, this start only.
struct RunTimes {
  std::array<double, kSectionCount> seconds{};   // Timers::seconds()
  double loop_seconds = 0.0;                     // Timers::total_seconds()
  double step_seconds = 0.0, step_median = 0.0;  // steps alone: in all, and of one
  std::int64_t steps = 0;
  std::int64_t samples = 0;  // of all ranks together
  std::int64_t tokens = 0;
  int threads = 1;
  // Floating-point operations of all ranks together over all steps; 0: not known.
  double model_flops = 0.0, hardware_flops = 0.0;
  MeasuredPeak peak;  // of this rank's device; no probes: not known
  // Every rank has the same names and axes here.
  std::vector<MemoryUse> memory;
  std::vector<AxisTraffic> traffic;
};

class SectionTable {
 public:
  struct Row {
    std::string name;
    double min = 0.0, avg = 0.0, max = 0.0;
    double share = 0.0;  // of the mean loop time
  };
  // One axis: calls and bytes of the rank with most, seconds as means over the ranks.
  struct TrafficRow {
    std::string axis;
    double calls = 0.0, bytes = 0.0;
    bool has_seconds = true;  // else the transport does not tell
    double in_flight = 0.0;   // while at least one message was
    double exposed = 0.0;     // while the rank began one, moved it on, or waited for it
    // The share of the time in flight in which the rank did something else.
    double hidden() const;
  };
  // Bytes of one category, of each rank.
  struct MemoryRow {
    std::string name;
    std::vector<double> planned, measured;
    double most_planned() const;
    Row row() const;  // of what was measured
  };

  // Collective; the same table on every rank.
  SectionTable(comm::Communicator& world, const RunTimes& times);

  const std::vector<Row>& rows() const { return rows_; }
  // Axes along which something was sent.
  const std::vector<TrafficRow>& traffic() const { return traffic_; }
  // Categories of which a rank has something.
  const std::vector<MemoryRow>& memory() const { return memory_; }
  double loop_seconds() const { return loop_seconds_; }
  // The share of the loop's time that is no step: validation, saving and the like.
  double other_share() const;
  // Rates in the median time of a step.
  double tokens_per_second() const;
  double model_tflops() const;     // per second and device
  double hardware_tflops() const;  // per second and device
  double peak_share() const;       // of the measured GEMM peak, by hardware FLOPs

  // The tables as text of at most 80 columns, which ends with a newline.
  std::string text() const;
  // The tables as in report.json (docs/runs.md): units are in the names.
  nlohmann::ordered_json json() const;

 private:
  double per_second(double amount) const;
  std::string speed_text() const;
  std::string sections_text() const;
  std::string traffic_text() const;
  std::string memory_text() const;

  RunTimes times_;
  int ranks_ = 1;
  double loop_seconds_ = 0.0;  // of the slowest rank
  double step_seconds_ = 0.0;  // of the slowest rank, as the next
  double step_median_ = 0.0;
  MeasuredPeak peak_;  // best: mean over ranks; least: of all
  double highest_peak_ = 0.0;
  std::vector<Row> rows_;
  std::vector<TrafficRow> traffic_;
  std::vector<MemoryRow> memory_;
};

// What a report has of memory: of each category the most that is planned of a rank, and
// least, mean and most that was measured, of those ranks whose `is_of(rank)` holds.
nlohmann::ordered_json memory_json(const std::vector<SectionTable::MemoryRow>& rows,
                                   const std::function<bool(int)>& is_of = {});

}  // namespace trireme::report

#endif  // TRIREME_REPORT_SECTION_TABLE_HPP_
