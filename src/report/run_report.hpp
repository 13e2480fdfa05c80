// report/run_report.hpp — what a start has come to, when it ends: its losses for people,
// and report.json, where programs find them with the numbers of the tables at the end.
#ifndef TRIREME_REPORT_RUN_REPORT_HPP_
#define TRIREME_REPORT_RUN_REPORT_HPP_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/corpus_epochs.hpp"
#include "report/metrics.hpp"
#include "report/run_history.hpp"
#include "report/section_table.hpp"
#include "step/pipeline_report.hpp"

namespace trireme::report {

inline constexpr const char* kReportName = "report.json";

enum class StartEnd {
  finished,       // the run has all its steps
  as_asked,       // run.stop_after
  stopped_early,  // a signal, or the wall-time limit
};
std::string_view name_of(StartEnd end);

// For a job script, which has only the exit status otherwise, and that is 0 for two of
// them: the end's name goes into the file that TRIREME_END_FILE names; to nobody where it
// names none. Error where it cannot be written.
void tell_job_script(StartEnd end);

// What rank 0 reports. Losses, epochs and the effective time are those of all starts, the
// tables of this one.
struct RunReport {
  StartEnd end = StartEnd::finished;
  std::string reason = {};  // of an early stop
  std::int64_t start = 0;
  std::string time = {};  // iso_time()
  std::int64_t step = 0, steps = 0;
  std::string run_directory = {};
  std::optional<LossSummary> training = {};
  std::vector<LossSummary> validations = {};
  std::vector<CorpusEpochs> corpora = {};
  EffectiveTime effective = {};
  std::optional<step::PipelineReport> pipeline = {};

  // "Result: step 1,000 of 1,000, in runs/book", a line for each loss, and the epochs of
  // the corpora of a blend; at most 80 columns, as far as names allow.
  std::string text() const;
  // The file's content; docs/runs.md has its fields.
  std::string json(const SectionTable& table) const;
};

// A pipeline as reports have it; null where there is none.
nlohmann::ordered_json pipeline_json(const std::optional<step::PipelineReport>& report);

}  // namespace trireme::report

#endif  // TRIREME_REPORT_RUN_REPORT_HPP_
