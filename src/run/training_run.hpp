// run/training_run.hpp — the training loop: steps, validation, samples, checkpoints, and
// the end.
//
// It is one class because all of these go by one counter, the number of the step, and
// share one state, which a checkpoint holds. What it has beside that state is of one of
// three kinds: what the run is made of (references, given), what moves on with each step
// and is not saved (Start, Interval, Validated), and what rank 0 alone has (FirstRank).
// The steps themselves are a Replica's, files of checkpoints are Checkpointing's, and
// what is said at the end is made in report/.
#ifndef TRIREME_RUN_TRAINING_RUN_HPP_
#define TRIREME_RUN_TRAINING_RUN_HPP_

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/core_time.hpp"
#include "base/fault_plan.hpp"
#include "base/log.hpp"
#include "base/timers.hpp"
#include "ckpt/reader.hpp"
#include "ckpt/training_state.hpp"
#include "comm/rank_grid.hpp"
#include "config/deck.hpp"
#include "data/batch_loader.hpp"
#include "data/datasets.hpp"
#include "inference/generation.hpp"
#include "inference/validation.hpp"
#include "job/stop_request.hpp"
#include "model/losses.hpp"
#include "optim/lr_schedule.hpp"
#include "plan/device_memory.hpp"
#include "report/metrics.hpp"
#include "report/peak_meter.hpp"
#include "report/progress.hpp"
#include "report/reference_run.hpp"
#include "report/run_history.hpp"
#include "report/run_report.hpp"
#include "report/section_table.hpp"
#include "report/step_profile.hpp"
#include "report/step_times.hpp"
#include "report/step_trace.hpp"
#include "run/accounting.hpp"
#include "run/checkpointing.hpp"
#include "run/loss_scaling.hpp"
#include "run/run_commands.hpp"
#include "run/run_directory.hpp"
#include "step/batch_plan.hpp"
#include "step/replica.hpp"

namespace trireme::run {

inline constexpr int kExitDone = 0;
inline constexpr int kExitStoppedEarly = 75;  // requeue me

class TrainingRun {
 public:
  // Allocates everything the loop needs, and initialises the model of the deck.
  TrainingRun(const config::Deck& deck, const comm::RankGrid& grid,
              step::Replica& replica, const data::Datasets& datasets,
              RunDirectory& directory, report::PeakMeter& peak, Log& log,
              FaultPlan& faults, const Exec& exec);

  // Takes weights, optimizer state and progress: a bitwise continuation.
  void resume(const ckpt::CheckpointReader& checkpoint);
  // Takes the weights of another run, and nothing else.
  void init_from(const ckpt::CheckpointReader& checkpoint);

  // Records some of the steps as a timeline.
  void record(const report::TraceOptions& options) {
    trace_.emplace(options, grid_, timers_, log_);
  }
  // Profiles some of the steps.
  void record(const report::ProfileOptions& options) {
    profile_.emplace(options, exec_, timers_);
    shows_profile_ = true;
  }

  // What the machine was found to reach (run.probe).
  void record(double bytes_per_second, std::vector<report::LinkSpeed> links) {
    bytes_per_second_ = bytes_per_second;
    links_ = std::move(links);
  }

  // On rank 0, the run that this one is compared with.
  void record(const report::ReferenceRun& reference) { reference_ = reference; }

  // Says where rank 0 records starts, and what is known of this one so far.
  void record(report::RunHistory& history, const report::RestartTimes& times) {
    first_rank_.history = &history;
    start_.restart_times = times;
  }

  // Says what libraries had of the device before the model was there.
  void record(const plan::LibraryBytes& libraries) { libraries_ = libraries; }

  // Sets what each rank does for itself after every step.
  void after_each_step(std::function<void()> look) { look_ = std::move(look); }

  // Whether a save does not come to its end. The destructor would wait for it for ever.
  bool has_given_up() const { return checkpoints_.has_given_up(); }

  // Trains until the deck's last step or a request to stop, and returns the exit status.
  // `typed` is what the advice at the end is made of.
  int run(job::StopRequest& stop, const report::Terminal& terminal,
          const TrainCommand& typed);

 private:
  std::vector<std::string> adopt_ways_of_products();
  std::string names_of_attention() const;  // of all ranks; collective
  void begin_loop(const report::Terminal& terminal);
  void open_records();
  void begin_account();
  double mean_peak();
  void start_loader();
  data::Batch model_batch() const;
  void step_and_validate(job::StopRequest& stop);
  void save_where_due(job::StopRequest& stop, bool ends);
  int end_loop(const job::StopRequest& stop, job::StopReason reason,
               const TrainCommand& typed);
  void start_step();
  optim::StepReport take_report();
  void account_for(const optim::StepReport& report, std::size_t ready);
  // Reads reports until so many steps are left that run, and logs their steps.
  void settle_steps(std::size_t left, const job::StopRequest& stop);
  bool reads_at_once() const;
  // Calls visit(name, number) for each of the sums since the last record, under the name
  // that it has in a checkpoint.
  template <class Visit>
  void visit_interval(const Visit& visit);
  report::StepRecord record_of(const optim::StepReport& report) const;
  void begin_interval();
  std::int64_t next_checkpoint() const;
  const std::vector<model::Objective>& objectives() const {
    return replica_.part().blueprint.objectives;
  }
  void log_step(const optim::StepReport& report, const job::StopRequest& stop);
  template <class Record>
  void write_record(const Record& record);
  void validate(job::StopRequest& stop);
  void write_sample();
  void say(const std::string& text);
  void note_first_step(double seconds);
  double step_seconds();
  void prepare_save();
  void note_published(std::int64_t step, double step_seconds, double save_seconds);
  void note_save(std::int64_t step, bool is_published);
  void note(const std::string& problem);
  void begin_save();
  void finish_save();
  bool due(const config::Length& every, std::int64_t step) const;
  bool due(const config::Length& every) const { return due(every, progress_.step); }
  bool is_last() const { return progress_.step >= deck_.run.steps.steps; }
  // Whether this start has done what run.stop_after asks for, and the run is to go on.
  bool is_stop() const { return progress_.step >= start_.stop_step && !is_last(); }
  // The last step of this start: the run's last, or run.stop_after's if that is earlier.
  std::int64_t last_step() const {
    return std::min<std::int64_t>(deck_.run.steps.steps, start_.stop_step);
  }
  [[noreturn]] void stop_on_non_finite(const optim::StepReport& report);
  report::StartEnd ended() const;
  // Rank 0: the number of this start.
  std::int64_t start_number() const {
    return first_rank_.history != nullptr ? first_rank_.history->starts().back().number
                                          : 0;
  }
  void finish_profile();
  void say_use(const TrainCommand& typed);
  report::SectionTable report_times(report::RunReport& report);
  void report_efficiency(report::RunReport& report, const report::SectionTable& table);
  report::Efficiency write_efficiency(report::EfficiencyFacts facts);
  void say_block(std::string_view text);
  void write_report(const report::RunReport& report, const report::SectionTable& table);
  std::string ending_text(report::StartEnd end, const job::StopRequest& stop) const;
  int stopped_at_once(const job::StopRequest& stop, const TrainCommand& typed);
  void finish_report(report::StartEnd end, const job::StopRequest& stop,
                     const TrainCommand& typed);

  // The start that goes on now; a run may have several.
  struct Start {
    std::int64_t first_step = 0, first_sample = 0;
    // The step after which run.stop_after ends this start.
    std::int64_t stop_step = std::numeric_limits<std::int64_t>::max();
    CoreTime core_time;  // when the loop began
    report::StepTimes step_times;
    report::RestartTimes restart_times;
  };
  // A step that was launched and whose report is not read yet.
  struct Started {
    std::int64_t step = 0;
    index_t samples = 0;
    double begin = 0.0;  // Timers::total_seconds()
  };
  std::int64_t newest_step() const {
    return progress_.step + static_cast<std::int64_t>(started_.size());
  }
  index_t samples_of_started() const;
  struct Validated {
    std::int64_t step = -1;
    double loss = 0.0;  // of the first set, at that step
    // Step and loss of the best checkpoint before it, should it not come to be.
    std::pair<std::int64_t, double> best_before{-1, 0.0};
  };
  // What only rank 0 has. Empty on other ranks, and until the loop begins.
  struct FirstRank {
    report::RunHistory* history = nullptr;
    std::optional<report::MetricsWriter> metrics;
    std::optional<report::Progress> display;
  };
  // What the steps since the last record have come to.
  struct Interval {
    report::StepTimes times;
    double began = 0.0;  // Timers::total_seconds()
    std::int64_t samples = 0;
    double skipped = 0.0;  // steps that were left out; part of a checkpoint, as the sums
    // Sums of each objective. They are part of a checkpoint, so that a record is the same
    // wherever a run was interrupted.
    step::LossSums losses;
  };

  const config::Deck& deck_;
  const comm::RankGrid& grid_;
  step::Replica& replica_;
  const data::Datasets& datasets_;
  RunDirectory& directory_;
  Log& log_;
  FaultPlan& faults_;
  std::function<void()> look_ = [] {};
  Exec exec_;
  Timers& timers_;
  optim::LrSchedule schedule_;
  ckpt::TrainingState progress_;
  std::string products_;  // step::ProductWays::names of this start
  std::string attention_ = names_of_attention();
  LossScaling loss_scaling_;  // of progress_
  bool names_loss_scale_;     // the deck as it was given, which rank 0 alone has
  Start start_;
  Interval interval_;
  std::deque<Started> started_;  // in order; at most Replica::kReports
  // When it came, as far as is known: Timers::total_seconds(). Of the time before that,
  // what belongs to steps whose reports came with it.
  double last_report_ = 0.0;
  double of_later_steps_ = 0.0;
  Validated validated_;
  FirstRank first_rank_;
  std::optional<step::BatchPlan> batches_;
  std::unique_ptr<data::BatchLoader> loader_;
  inference::Validation validation_;
  std::optional<inference::Generator> generator_;  // with run.sample_every
  Checkpointing checkpoints_;                      // its threads use what stands above
  std::optional<report::StepTrace> trace_;
  // Of the steps that --profile asks for, or of some of all.
  std::optional<report::StepProfile> profile_{
      std::in_place, report::ProfileOptions{.samples = true}, exec_, timers_};
  bool shows_profile_ = false;
  std::optional<Accounting> accounting_;  // from the beginning of the loop on
  double bytes_per_second_ = 0.0;         // of the memory, where it was measured
  std::vector<report::LinkSpeed> links_;
  std::optional<report::ReferenceRun> reference_;  // on rank 0
  // By which the account of the newest checkpoint counts, and so its start's capacity.
  double saved_peak_ = 0.0;
  plan::LibraryBytes libraries_;  // of the device, before the model was there
  double last_save_ = 0.0;        // when one was begun: Timers::total_seconds()
  // When the save that is under way began, if the trace shows it.
  std::optional<TraceEvent::Clock::time_point> save_begin_;
  double hardware_flops_ = 0.0;  // of a sample, on all ranks
  report::PeakMeter& peak_;
};

}  // namespace trireme::run

#endif  // TRIREME_RUN_TRAINING_RUN_HPP_
