// report/metrics.hpp — what a run writes about itself while it trains: train.jsonl (one
// object per logged step, {"validation": {...}} objects between) and the same as
// train.csv.
//
// Each record is one write of whole lines, past no buffer of ours. Numbers have the
// shortest form that reads back as the same double. What is not finite is null in JSON
// (which has no NaN) and nan in CSV. A resumed run first cuts, in one rename, what lies
// beyond the restored step, so that each step stands once; the line that a killed run
// left torn goes with it. train.jsonl is the original: train.csv is made anew from it.
//
// Fields that came after version 0.1.0 stand behind the others in both files. Records
// without them, of runs that an older program began, are kept as they are; in train.csv
// their columns are empty. Losses of single objectives and epochs of single corpora are
// in train.jsonl alone: which there are is the run's affair, and columns are the same for
// every run.
#ifndef TRIREME_REPORT_METRICS_HPP_
#define TRIREME_REPORT_METRICS_HPP_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/files.hpp"
#include "model/losses.hpp"
#include "report/event_file.hpp"
#include "report/record_file.hpp"

namespace trireme::report {

// The value of a field that an older record lacks.
inline constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

struct StepRecord {
  std::int64_t step = 0;  // from 1
  double loss = 0.0;      // nats per token
  double grad_norm = 0.0;
  double lr = 0.0;
  std::int64_t samples = 0;  // since the first step of the run, this one included
  std::int64_t tokens = 0;
  // Times of the steps since the record before; what is done between steps (validation,
  // checkpoints, samples) is in `other_seconds` alone.
  double seconds = 0.0;            // mean
  double tokens_per_second = 0.0;  // in the median time of a step, as the next two
  double model_tflops = 0.0;       // per second and device
  double hardware_tflops = 0.0;
  double loss_scale = 1.0;
  std::int64_t skipped = 0;  // updates left out since the record before
  double seconds_median = kNotKnown;
  double other_seconds = kNotKnown;  // in all
  double loss_mean = kNotKnown;      // nats per token, over all tokens of these steps
  std::string time;                  // iso_time() when it was written
  model::NamedLosses losses = {};    // mean of each objective, where there are several
  // How often each corpus of a blend was gone through, since the first step of the run.
  std::vector<double> epochs = {};
};

struct ValidationRecord {
  std::int64_t step = 0;
  std::string name;
  double loss = 0.0;
  double perplexity = 0.0;
  std::int64_t tokens = 0;
  double seconds = 0.0;
  std::string time;
  model::NamedLosses losses = {};
};

// One line each, without its newline.
std::string to_json(const StepRecord& record);
std::string to_json(const ValidationRecord& record);
std::string to_csv(const StepRecord& record);
std::string to_csv(const ValidationRecord& record);
inline constexpr std::string_view kCsvHeader =
    "step,loss,grad_norm,lr,samples,tokens,seconds,tokens_per_second,model_tflops,"
    "hardware_tflops,loss_scale,skipped,validation,validation_loss,"
    "validation_perplexity,validation_tokens,validation_seconds,seconds_median,"
    "other_seconds,loss_mean,time";
// The points of curves, without the step that they stand at.
std::vector<Scalar> to_scalars(const StepRecord& record);
std::vector<Scalar> to_scalars(const ValidationRecord& record);
// The directory of the event files, in the run's.
inline constexpr const char* kEventDirectory = "tensorboard";

// A train.jsonl as far as it can be read: torn or foreign lines are counted, not refused.
struct MetricsLog {
  std::vector<StepRecord> steps;
  std::vector<ValidationRecord> validations;
  std::int64_t unreadable_lines = 0;
};
MetricsLog read_metrics(const io::Path& path);

// Losses over all starts of the run: of training (the means between records, where they
// are known), or of a validation set. The best is the lowest that is a number.
struct LossSummary {
  struct Loss {
    std::int64_t step = 0;
    double loss = 0.0;  // nats per token
  };
  explicit LossSummary(Loss found, std::string set = {})
      : name(std::move(set)), first(found), last(found), best(found) {}
  void add(Loss found);

  std::string name;  // of the set
  Loss first, last, best;
};

// What was found of an earlier start.
struct MetricsCut {
  std::int64_t kept = 0;        // records up to the restored step
  std::int64_t cut = 0;         // beyond it, or of a step that stands already
  std::int64_t unreadable = 0;  // torn by a kill, or damaged
};

// Rank 0 only. A failed write (a full disk) throws Error that names the file; what of the
// record was written is taken back.
class MetricsWriter {
 public:
  // restored_step: the step of the checkpoint that training goes on from; none for a run
  // from the beginning, which keeps no record of an earlier one. `events`: whose curves
  // are written for TensorBoard, too.
  MetricsWriter(const io::Path& directory, std::optional<std::int64_t> restored_step,
                const std::optional<EventFileName>& events = {});

  void write(const StepRecord& record);
  void write(const ValidationRecord& record);
  // Onto stable storage: before a checkpoint is published that these records belong to.
  void sync();
  // Reports write errors that a file system has held back. Nothing is written after it.
  void close();

  const MetricsCut& cut() const { return cut_; }
  // The training losses of all starts; none before the first record.
  const std::optional<LossSummary>& training() const { return training_; }
  // The validation losses, in the order in which the sets were first validated.
  const std::vector<LossSummary>& validations() const { return validations_; }
  const io::Path& json_path() const { return json_->path(); }

 private:
  template <class Record>
  void append(const Record& record);
  void note(const StepRecord& record);
  void note(const ValidationRecord& record);

  std::optional<RecordFile> json_, csv_;  // from the end of the construction on
  std::optional<EventFile> events_;       // where they are wanted
  MetricsCut cut_;
  std::optional<LossSummary> training_;
  std::vector<LossSummary> validations_;
};

}  // namespace trireme::report

#endif  // TRIREME_REPORT_METRICS_HPP_
