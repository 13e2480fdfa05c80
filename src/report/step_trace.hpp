// report/step_trace.hpp — some steps of a run as one timeline of all ranks, in the trace
// event format of Chrome, which Perfetto reads: a process for each rank, with what it is
// busy with and, beside that, its messages under way, and passes as its device was at
// them.
//
// Ranks have clocks of their own (rank_clock.hpp), which are read before the first step
// and after the last.
#ifndef TRIREME_REPORT_STEP_TRACE_HPP_
#define TRIREME_REPORT_STEP_TRACE_HPP_

#include <optional>
#include <string>

#include "base/log.hpp"
#include "base/timers.hpp"
#include "comm/rank_grid.hpp"
#include "io/files.hpp"
#include "report/rank_clock.hpp"

namespace trireme::report {

struct TraceOptions {
  io::Path path;
  // Steps of this start, from 1. The first one is not like the others.
  std::int64_t first = 2, last = 4;
};

// "2-4" or "3". InputError otherwise.
TraceOptions parse_trace_steps(const std::string& steps, io::Path path);

class StepTrace {
 public:
  StepTrace(TraceOptions options, const comm::RankGrid& grid, Timers& timers, Log& log);
  ~StepTrace() { timers_.trace_to(nullptr); }
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Around each step, by its number; collective before the first one of the trace and
  // after its last one, when the file is written.
  void begin_step(std::int64_t step);
  void end_step(std::int64_t step);
  // Writes the trace at the end of the run, which may come earlier. Collective. Error
  // where the file could not be written: that stops no run.
  void finish();

 private:
  void end_recording();
  std::string text_of_rank(const ClockReading& after, double zero) const;
  void write(const ClockReading& after, double zero);

  TraceOptions options_;
  const comm::RankGrid& grid_;
  Timers& timers_;
  Log& log_;
  std::optional<Trace> trace_;  // while it records
  std::optional<RankClock> clock_;
  ClockReading before_;
  std::int64_t recorded_ = 0;  // steps
  std::string failure_;        // to write the file
};

}  // namespace trireme::report

#endif  // TRIREME_REPORT_STEP_TRACE_HPP_
