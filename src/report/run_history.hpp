// report/run_history.hpp — starts.jsonl: all starts of a run, from when to when, what
// each saved, and so how much of the time served the run.
//
// One line per event: {"start": 2, "event": "began", "time": ..., ...}. Rank 0 writes
// each at once, so that a killed start leaves what it did. A line torn by a kill is
// passed over.
#ifndef TRIREME_REPORT_RUN_HISTORY_HPP_
#define TRIREME_REPORT_RUN_HISTORY_HPP_

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/wall_time.hpp"
#include "io/files.hpp"

namespace trireme::report {

inline constexpr const char* kStartsName = "starts.jsonl";

// What the status of a start's end does not say.
enum class Ending {
  of_status,
  as_asked,  // run.stop_after: it has done its part, with status 0, and the run goes on
  of_time,   // its time was over (run.time_limit, the job's end)
};

// What is known of one start. Times are seconds since 1970.
struct StartRecord {
  std::int64_t number = 0;  // from 1
  std::string job;          // of the batch system; empty: none
  double began = 0.0;       // the process
  double ended = 0.0;       // or the last sign of life
  bool is_clean = false;    // it said how it ended
  int status = -1;
  Ending ending = Ending::of_status;
  std::int64_t first_step = 0;   // that it went on from
  std::int64_t saved_step = -1;  // the last that it published; -1: none
  double step_seconds = 0.0;     // in steps up to that one
  double longest_save = 0.0;     // seconds; 0: none was published
  int ranks = 0;                 // 0: not known
  double peak = 0.0;             // FLOP/s of a rank's device, as far as it was measured
  double ready = 0.0;            // seconds from its beginning to that of the first step
  double ending_seconds = 0.0;   // of the loop behind its last checkpoint
};

// How long it took from the process' beginning to the end of the first step.
struct RestartTimes {
  double launch = 0.0;  // until the program had its ranks together
  double set_up = 0.0;  // deck, corpora, grid, memory
  double read = 0.0;    // of the checkpoint, with verification
  double first_step = 0.0;
  std::uint64_t bytes = 0;  // read
  double down = -1.0;       // since the last sign of the start before; -1: there is none

  // "restarted in 4.1 s: launch 0.3 s, set-up 1.2 s, 2.1 GiB read and verified in 2.0 s
  // (1.1 GiB/s), first step 0.6 s; down for 31 s before"
  std::string text() const;
};

// The effective time of all starts: time in steps whose result a later start, or the end,
// went on from, over the time that processes ran.
struct EffectiveTime {
  int starts = 0;
  double counted = 0.0;  // seconds in such steps
  double running = 0.0;  // seconds of processes
  double waiting = 0.0;  // between starts
  double share() const { return running > 0.0 ? counted / running : 0.0; }
  std::string text() const;
};
EffectiveTime effective_time(const std::vector<StartRecord>& starts);
// What the devices of these starts were there for, from the start on that began at
// `began`: in device seconds, of these before first steps and in the ends of starts that
// are over; and in FLOPs at each start's peak. Starts that do not say their ranks or peak
// count as the last one does, whose peak is `peak`: it is known better than when it
// began. The last one lives until `now`, where that is later than its last line.
struct DeviceTime {
  int starts = 0;
  double seconds = 0.0, ready = 0.0;
  // At the peaks of the starts, and of these what lay before the first step of each, and
  // behind the last checkpoint of those that are over.
  double flops = 0.0, ready_flops = 0.0, ending_flops = 0.0;
};
DeviceTime device_time(const std::vector<StartRecord>& starts, double began, double peak,
                       double now = 0.0);
// So many of the last starts have published no step beyond what was there before them;
// `step` is that of the newest checkpoint now, 0 where there is none. A start that its
// time ended after one step is as idle, unless that step took much of its time: a chain
// of such jobs would crawl, where one of long steps gets on. A start that did what
// run.stop_after asked for is never idle, however short.
int idle_starts(const std::vector<StartRecord>& starts, std::int64_t step);
// Seconds that a save is to be expected to take: the longest of the last start that
// published any; 0: not known.
double expected_save(const std::vector<StartRecord>& starts);

// Rank 0 only. Errors while writing are no reason to end a run: they come back as text.
// The file that the first line is written to gets all of them, whatever becomes of its
// name.
class RunHistory {
 public:
  // `directory` is the run's.
  explicit RunHistory(const io::Path& directory);

  // By the clock of all lines of this start.
  double now() const { return clock_.now(); }
  // Earlier starts, and this one once it has begun.
  const std::vector<StartRecord>& starts() const { return starts_; }
  // This start: for how many seconds the process has lived, and the step it goes on from.
  std::string begin(double age, std::int64_t first_step, const std::string& job);
  // Between the last sign of the start before and the beginning of this one; negative
  // where there was none.
  double seconds_down() const;
  // Notes that this start went on from another checkpoint, as that one was damaged.
  std::string note_first_step(std::int64_t step);
  std::string note_restart(const RestartTimes& times);
  // On how many devices the start goes on, and what one can do, as far as is known now.
  std::string note_devices(int ranks, double peak);
  // The start goes on. Every kOften at most the file's time is set to now, so that of one
  // that is killed it is known until when it lived.
  void show_life();
  // A checkpoint was published; seconds in steps up to it, of this start, and of the
  // save.
  std::string note_saved(std::int64_t step, double step_seconds, double save_seconds);
  // `ending`: seconds of the loop behind its last checkpoint.
  std::string end(int status, Ending ending = Ending::of_status, double seconds = 0.0);
  // A start that was refused because so many before it were idle; counting begins anew.
  std::string note_refusal();

 private:
  std::string append(std::int64_t start, const char* event, double time,
                     const nlohmann::ordered_json& more);

  io::Path path_;
  Descriptor file_;       // open, once there is a line to write
  bool is_torn_ = false;  // the last line has no end
  SteadyWallTime clock_;  // of all lines of this start
  static constexpr std::chrono::seconds kOften{10};
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
  std::vector<StartRecord> starts_;
};

// For how many seconds this process has lived; 0 where that is not known.
double process_age();

}  // namespace trireme::report

#endif  // TRIREME_REPORT_RUN_HISTORY_HPP_
