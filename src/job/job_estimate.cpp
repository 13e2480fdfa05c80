// job/job_estimate.cpp — see job_estimate.hpp.
//
// A measured time is better than a computed one, so the records of the deck's own run
// come first, if it ran on this grid: the median of its last 50, without the first
// record of the start, which is slow. Only where there are none, FLOPs over the
// machine's peak give a bound, which is called that.
#include "job/job_estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "comm/process_groups.hpp"
#include "config/text.hpp"
#include "io/files.hpp"
#include "io/json.hpp"
#include "report/metrics.hpp"
#include "report/run_history.hpp"
#include "step/deck_model.hpp"

namespace trireme::job {

namespace {

constexpr std::size_t kLastRecords = 50;  // of a long run: as it goes now

bool ran_on_this_grid(const io::Path& directory, const config::Deck& deck) {
  const auto json = io::parse_json_or_null<nlohmann::json>(
      io::read_file(directory / "environment.json"));
  if (!json.is_object()) return false;
  const auto ranks = json.find("ranks"), grid = json.find("grid");
  return ranks != json.end() && grid != json.end() && *ranks == deck.parallel.ranks() &&
         *grid == comm::to_string(step::grid_shape(deck));
}

// Steps that a job has before it.
std::int64_t steps_left(const config::Deck& deck,
                        const std::optional<MeasuredSteps>& measured) {
  const std::int64_t done = measured ? measured->done : 0;
  const std::int64_t left = std::max<std::int64_t>(deck.run.steps.steps - done, 0);
  const auto& stop = deck.run.stop_after;
  return stop && stop->unit == config::LengthUnit::steps ? std::min(left, stop->amount)
                                                         : left;
}

std::string memory_comment(const plan::DryRun& plan, const JobSize& job) {
  if (plan.stages.empty()) return "# - memory: not known for this deck yet\n";
  std::size_t most = 0, copy = 0;
  for (const plan::DryRun::Stage& stage : plan.stages) {
    most = std::max(most, stage.memory.total());
    copy = std::max(copy, stage.memory.checkpoint_copy);
  }
  const std::int64_t of_node = job.ranks / job.nodes;
  std::string text = fmt::format(
      "# - memory: {}{} of each rank, {} of a node; MPI and other libraries come on "
      "top\n",
      plan.stages.size() > 1 ? "at most " : "", format_bytes(static_cast<double>(most)),
      format_bytes(static_cast<double>(most) * static_cast<double>(of_node)));
  if (copy > 0) {
    text += fmt::format("#   and, while a checkpoint is written, {} a rank on the host\n",
                        format_bytes(static_cast<double>(copy)));
  }
  return text;
}

std::string jobs_text(double seconds, const JobSize& job) {
  const double jobs = std::ceil(seconds / job.seconds);
  return jobs <= 1.0 ? "within this job" : fmt::format("{:.0f} jobs like this one", jobs);
}

}  // namespace

std::optional<MeasuredSteps> measured_steps(const config::Deck& deck) {
  const io::Path directory = deck.run.dir;
  MeasuredSteps result;
  std::vector<double> seconds;
  try {
    if (!ran_on_this_grid(directory, deck)) return std::nullopt;
    const report::RunHistory history(directory);
    const auto& starts = history.starts();
    const std::int64_t first = starts.empty() ? 0 : starts.back().first_step;
    for (const report::StepRecord& record :
         report::read_metrics(directory / "train.jsonl").steps) {
      result.done = std::max(result.done, record.step);
      if (record.step > first) seconds.push_back(record.seconds);
    }
  } catch (const Error&) {  // no run, or nothing that could be read: nothing is known
    return std::nullopt;
  }
  if (seconds.size() < 2) return std::nullopt;
  seconds.erase(seconds.begin(),  // the first is slow
                seconds.end() - static_cast<std::ptrdiff_t>(
                                    std::min(seconds.size() - 1, kLastRecords)));
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  result.seconds = *middle;
  result.records = static_cast<std::int64_t>(seconds.size());
  return result;
}

std::optional<double> rank_peak(const std::string& machine, const std::string& file,
                                config::Precision precision) {
  constexpr std::string_view kPrefix = "#PEAK ";
  std::istringstream lines(machine);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.starts_with(kPrefix)) continue;
    std::istringstream words(line.substr(kPrefix.size()));
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      const auto value = equals == std::string::npos
                             ? std::nullopt
                             : config::parse_number(word.substr(equals + 1));
      TRIREME_REQUIRE_INPUT(
          value && *value > 0.0,
          "{}:{}: '{}' is not a precision and FLOP/s of a rank's device, "
          "as in '#PEAK fp32=19.5e12 bf16=312e12'",
          file, number, word);
      if (word.substr(0, equals) == config::name_of(precision)) return value;
    }
  }
  return std::nullopt;
}

std::string plan_comment(const plan::DryRun& plan, const JobSize& job,
                         const std::optional<MeasuredSteps>& measured,
                         const std::optional<double>& peak) {
  const std::int64_t left = steps_left(plan.deck, measured);
  const auto steps = static_cast<double>(left);
  std::string text = "# The plan of it (trireme train --dry-run says more):\n" +
                     memory_comment(plan, job);
  const std::string count = format_plural(left, "step");
  if (measured) {
    const double seconds = steps * measured->seconds;
    text += fmt::format(
        "# - time: {} left, {} each as the run measured on this grid ({}): {},\n"
        "#   validations and saves not counted; {}\n",
        count, format_duration(measured->seconds),
        format_plural(measured->records, "record"), format_duration(seconds),
        jobs_text(seconds, job));
  } else if (peak) {
    const double all = *peak * static_cast<double>(job.ranks);
    const double seconds = steps * plan.hardware_flops / all;
    text += fmt::format(
        "# - time, not measured: {} of {} FLOPs, at the {} that {} can do at most, take\n"
        "#   {}; runs reach a part of that peak. To measure: --set run.stop_after=20\n"
        "#   --set run.log_every=5, then write this script again\n",
        count, format_count(plan.hardware_flops), format_flops(all * 1e-12),
        format_plural(job.ranks, "rank"), format_duration(seconds));
  } else {
    text += fmt::format(
        "# - time: not known: {} of {} FLOPs. To measure: --set run.stop_after=20\n"
        "#   --set run.log_every=5, then write this script again\n",
        count, format_count(plan.hardware_flops));
  }
  return text;
}

}  // namespace trireme::job
