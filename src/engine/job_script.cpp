// engine/job_script.cpp — see job_script.hpp.
#include "engine/job_script.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "base/error.hpp"
#include "config/text.hpp"
#include "engine/dry_run.hpp"
#include "engine/format.hpp"
#include "engine/slurm_time.hpp"
#include "engine/stop_request.hpp"

namespace trireme::engine {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPrefix = "#SBATCH ";
// What train.sbatch has between its head and what is the same everywhere.
constexpr const char* kSettings = "# --- settings";
constexpr const char* kJob = "# --- the job";
constexpr index_t kMostRanksOfNode = 4096;
constexpr double kLongestWarning = 65535.0;  // seconds that --signal can say

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::vector<std::string> known_machines(const io::Path& directory) {
  std::vector<std::string> names;
  std::error_code ignored;  // none: then none is known
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.path().extension() == ".sh") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// As it is named; with .sh; among those that come with the program.
io::Path find_machine_file(const std::string& machine, const io::Path& directory) {
  for (const io::Path& path : {io::Path(machine), io::Path(machine + ".sh"),
                               directory / machine, directory / (machine + ".sh")}) {
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) return path;
  }
  throw InputError(fmt::format(
      "there is no machine file '{}'. Those that come with the program are {} (in '{}'); "
      "for another machine copy the one most like it, and name its path",
      machine, fmt::join(known_machines(directory), ", "), directory.string()));
}

double job_seconds(const std::string& time) {
  const config::Parsed<double> with_units = config::parse_time(time);
  const auto seconds = with_units.value ? with_units.value : parse_slurm_time(time);
  TRIREME_REQUIRE_INPUT(
      seconds && *seconds >= 60.0 && *seconds <= 365.0 * 86400.0,
      "--time '{}' is not how long a job may take: at least a minute, at most a year, as "
      "hours:minutes:seconds (4:00:00), minutes (90), days-hours (1-12), days-hours:"
      "minutes:seconds, or with units (90m, 4h, 1d12h)",
      time);
  return *seconds;
}

std::int64_t ranks_of(const std::vector<BatchOption>& options, std::int64_t nodes,
                      const io::Path& file) {
  for (const BatchOption& option : options) {
    if (option.name != "ntasks-per-node") continue;
    const auto ranks = config::parse_integer(option.value);
    if (ranks && *ranks > 0 && *ranks <= kMostRanksOfNode) return *ranks * nodes;
  }
  throw InputError(
      fmt::format("the machine file '{}' has no line '{}--ntasks-per-node=N' "
                  "with the ranks of a node (1 to 4096)",
                  file.string(), kPrefix));
}

// How long before the end of the job SLURM's signal comes.
double warning_seconds(const config::Deck& deck, double job) {
  const auto& signals = deck.checkpoint.on_signal;
  TRIREME_REQUIRE_INPUT(
      std::count(signals.begin(), signals.end(), config::SignalName::usr1) > 0,
      "checkpoint.on_signal has no USR1, by which the script tells the ranks to save and "
      "stop: add it");
  const double margin =
      deck.checkpoint.wall_time_margin.value_or(StopRequest::first_margin(job));
  TRIREME_REQUIRE_INPUT(margin < job,
                        "a job of {} has no time to train: checkpoint.wall_time_margin "
                        "is {}. Take a longer --time or a shorter margin",
                        format_duration(job), format_duration(margin));
  return std::min(std::ceil(margin), kLongestWarning);
}

void set(std::vector<BatchOption>& options, const BatchOption& wanted) {
  for (BatchOption& option : options) {
    if (option.name == wanted.name) {
      option = wanted;
      return;
    }
  }
  options.push_back(wanted);
}

std::string text_of(const BatchOption& option) {
  if (option.value.empty()) return fmt::format("{}--{}\n", kPrefix, option.name);
  const char* quote = option.value.find_first_of(" \t") == std::string::npos ? "" : "\"";
  return fmt::format("{}--{}={}{}{}\n", kPrefix, option.name, quote, option.value, quote);
}

std::string settings_of(const JobScriptOptions& options, const std::string& machine) {
  std::vector<std::string> words;
  for (const std::string& override_text : options.overrides) {
    words.insert(words.end(), {"--set", shell_word(override_text)});
  }
  if (!options.run_dir.empty()) {
    words.insert(words.end(), {"--run-dir", shell_word(options.run_dir)});
  }
  words.push_back("\"$@\"");  // what sbatch is given behind the script's name
  std::string text =
      fmt::format("trireme={}\ndecks=({})\noptions=({})  # of trireme train\n",
                  shell_word(options.program.string()), shell_word(options.deck),
                  fmt::join(words, " "));
  for (const std::string& line : lines_of(machine)) {
    if (!line.starts_with(kPrefix)) text += line + "\n";
  }
  return text;
}

}  // namespace

std::vector<BatchOption> batch_options(const std::string& script) {
  std::vector<BatchOption> options;
  for (std::string line : lines_of(script)) {
    if (!line.starts_with(kPrefix)) continue;
    line.erase(0, line.find("--") + 2);
    line.erase(line.find_last_not_of(" \t\r") + 1);
    const std::size_t equals = std::min(line.find('='), line.size());
    options.push_back(
        {line.substr(0, equals), equals < line.size() ? line.substr(equals + 1) : ""});
  }
  return options;
}

std::string job_script(const JobScriptOptions& options) {
  const io::Path machine_file =
      find_machine_file(options.machine, options.slurm / "machines");
  const std::string machine = io::read_file(machine_file, "machine file");
  const std::string pattern = io::read_file(options.slurm / "train.sbatch", "job script");
  const std::size_t settings = pattern.find(kSettings);
  const std::size_t job = pattern.find(kJob);
  TRIREME_REQUIRE_INPUT(settings < job && job != std::string::npos,
                        "'{}' has not the lines '{} ...' and '{} ...' any more, between "
                        "which settings go: put them back",
                        (options.slurm / "train.sbatch").string(), kSettings, kJob);

  const double seconds = job_seconds(options.time);
  std::vector<BatchOption> batch = batch_options(pattern);
  const std::vector<BatchOption> of_machine = batch_options(machine);
  const std::int64_t ranks = ranks_of(of_machine, options.nodes, machine_file);
  const DryRun checked =
      dry_run(options.deck, options.overrides, options.run_dir, static_cast<int>(ranks));
  for (const BatchOption& option : of_machine) set(batch, option);
  set(batch, {"job-name", options.name.empty() ? checked.deck.name : options.name});
  set(batch, {"nodes", std::to_string(options.nodes)});
  set(batch, {"time", slurm_time_text(seconds)});
  set(batch,
      {"signal", fmt::format("B:USR1@{:.0f}", warning_seconds(checked.deck, seconds))});
  set(batch, {"chdir", options.directory.string()});
  if (!options.account.empty()) set(batch, {"account", options.account});
  if (!options.partition.empty()) set(batch, {"partition", options.partition});

  std::string text = "#!/bin/bash\n";
  for (const BatchOption& option : batch) text += text_of(option);
  text += fmt::format(
      "# Written by `trireme jobscript`: {} on {} (machine {}). Give it to sbatch, or "
      "to\n"
      "# slurm/chain.sh. It trains until the deck is done, requeueing itself.\n#\n",
      checked.deck.name, format_plural(ranks, "rank"), machine_file.stem().string());
  text += fmt::format("{}\n{}{}", kSettings, settings_of(options, machine),
                      pattern.substr(job));
  return text;
}

}  // namespace trireme::engine
