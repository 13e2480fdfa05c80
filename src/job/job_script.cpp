// job/job_script.cpp — see job_script.hpp.
//
// The script is composed and not generated: the head of slurm/train.sbatch with its
// options replaced by those of the machine's file, and those by what the user says; then
// the settings; then everything of train.sbatch behind the line '# --- the job', which
// is the same everywhere. What a job does can so be read and mended in one place.
#include "job/job_script.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/words.hpp"
#include "check/deck_check.hpp"
#include "config/text.hpp"
#include "job/batch_options.hpp"
#include "job/job_estimate.hpp"
#include "job/slurm_time.hpp"
#include "job/stop_request.hpp"
#include "plan/dry_run.hpp"

namespace trireme::job {

namespace fs = std::filesystem;

namespace {

// What train.sbatch has between its head and what is the same everywhere.
constexpr const char* kSettings = "# --- settings";
constexpr const char* kJob = "# --- the job";
constexpr index_t kMostRanksOfNode = 4096;
constexpr double kLongestWarning = 65535.0;  // seconds that --signal can say
constexpr std::size_t kLongestName = 200;    // bytes: the log is called <name>-<job>.out

std::vector<std::string> known_machines(const io::Path& directory) {
  std::vector<std::string> names;
  std::error_code ignored;  // none: then none is known
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.path().extension() == ".sh") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Looks for a machine's file as it is named, with .sh, and among those that come with the
// program.
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
      fmt::format("the machine file '{}' has no line '#SBATCH --ntasks-per-node=N' "
                  "with the ranks of a node (1 to 4096)",
                  file.string()));
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

bool asks_for_gpus(const std::vector<BatchOption>& machine) {
  return std::any_of(machine.begin(), machine.end(), [](const BatchOption& option) {
    return option.name == "gpus" || option.name.starts_with("gpus-per-") ||
           (option.name == "gres" && option.value.starts_with("gpu"));
  });
}

// A build for one kind of processor on a machine of the other.
std::string device_warning(bool uses_gpus, const std::vector<BatchOption>& of_machine,
                           const std::string& machine) {
  const bool has_gpus = asks_for_gpus(of_machine);
  if (uses_gpus == has_gpus) return {};
  return has_gpus ? fmt::format(
                        "this program was built for CPUs, and '{}' is a machine with "
                        "GPUs, which it would leave idle: take a build for them "
                        "(docs/developer/cuda.md)",
                        machine)
                  : fmt::format(
                        "this program was built for GPUs, and the file of machine "
                        "'{}' asks SLURM for none",
                        machine);
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

// No quotes bring a newline into an #SBATCH line, and nobody means to have one elsewhere.
void require_no_control(const std::string& what, const std::string& text) {
  const auto found = std::find_if(text.begin(), text.end(), is_control);
  TRIREME_REQUIRE_INPUT(found == text.end(),
                        "{} {} has a control character (byte 0x{:02x}, the {}. byte), "
                        "which a job script cannot hold: take it out, or rename the file",
                        what, config::yaml_text(text), static_cast<unsigned char>(*found),
                        found - text.begin() + 1);
}

void require_no_control(const JobScriptOptions& options) {
  require_no_control("the deck's path", options.deck);
  for (const std::string& text : options.overrides) require_no_control("--set", text);
  require_no_control("--run-dir", options.run_dir);
  require_no_control("--machine", options.machine);
  require_no_control("--name", options.name);
  require_no_control("--account", options.account);
  require_no_control("--partition", options.partition);
  require_no_control("LOADEDMODULES", options.modules);
  require_no_control("the program's path", options.program.string());
  require_no_control("the working directory", options.directory.string());
}

// SLURM fails to launch a job whose log cannot be made.
void require_name(const std::string& name) {
  TRIREME_REQUIRE_INPUT(
      name.find('/') == std::string::npos && name.size() <= kLongestName,
      "'{}' cannot be the name of a job: its log is called NAME-JOB.out, so a name has "
      "no '/' and at most {}. Give another: --name NAME",
      name, format_plural(kLongestName, "byte"));
}

// What the user says, over what script and machine do.
void set_own_options(std::vector<BatchOption>& batch, const JobScriptOptions& options,
                     const config::Deck& deck) {
  const std::string name = options.name.empty() ? deck.name : options.name;
  require_name(name);
  const double seconds = job_seconds(options.time);
  const std::string signal = fmt::format("B:USR1@{:.0f}", warning_seconds(deck, seconds));
  set_batch_option(batch, {"job-name", name});
  set_batch_option(batch, {"nodes", std::to_string(options.nodes)});
  set_batch_option(batch, {"time", slurm_time_text(seconds)});
  set_batch_option(batch, {"signal", signal});
  set_batch_option(batch, {"chdir", options.directory.string()});
  if (!options.account.empty()) set_batch_option(batch, {"account", options.account});
  if (!options.partition.empty()) {
    set_batch_option(batch, {"partition", options.partition});
  }
}

std::string read_machine_file(const io::Path& file) {
  const std::string text = io::read_file(file, "machine file");
  std::size_t number = 1;
  for (const std::string_view line : lines_of(text)) {
    for (const char c : line) {
      TRIREME_REQUIRE_INPUT(!is_control(c) || c == '\t',
                            "{}:{}: the line has a control character (byte 0x{:02x}{}), "
                            "which bash and sbatch "
                            "do not take for an end of line or a blank: take it out",
                            file.string(), number, static_cast<unsigned char>(c),
                            c == '\r' ? ": a file with the line ends of Windows" : "");
    }
    ++number;
  }
  return text;
}

// What begins with a dash would be taken for an option.
std::string path_word(const std::string& path) {
  return shell_word(path.starts_with('-') ? "./" + path : path);
}

// Where jobs do not inherit the environment, the modules of the shell that writes this.
std::string modules_setting(const JobScriptOptions& options, const std::string& machine) {
  if (options.modules.empty() || machine.find("TRIREME_MODULES") == std::string::npos) {
    return {};
  }
  std::string names = options.modules;
  std::replace(names.begin(), names.end(), ':', ' ');
  return fmt::format(
      "[[ -v TRIREME_MODULES ]] || TRIREME_MODULES={}  # loaded when this was written\n",
      shell_word(names));
}

std::string settings_of(const JobScriptOptions& options, const std::string& machine) {
  std::vector<std::string> words;
  for (const std::string& override_text : options.overrides) {
    words.insert(words.end(), {"--set", shell_word(override_text)});
  }
  if (!options.run_dir.empty()) {
    words.insert(words.end(), {"--run-dir", path_word(options.run_dir)});
  }
  words.push_back("\"$@\"");  // what sbatch is given behind the script's name
  std::string text =
      fmt::format("trireme={}\ndecks=({})\noptions=({})  # of trireme train\n",
                  shell_word(options.program.string()), path_word(options.deck),
                  fmt::join(words, " ")) +
      modules_setting(options, machine) + "\n" +
      io::read_file(options.slurm / "functions.sh", "functions of job scripts") + "\n";
  for (const std::string_view line : lines_of(machine)) {
    if (!is_batch_line(line)) text += fmt::format("{}\n", line);
  }
  return text;
}

}  // namespace

std::string job_script(const JobScriptOptions& options) {
  require_no_control(options);
  const io::Path machine_file =
      find_machine_file(options.machine, options.slurm / "machines");
  const std::string machine = read_machine_file(machine_file);
  const std::string pattern = io::read_file(options.slurm / "train.sbatch", "job script");
  const std::size_t settings = pattern.find(kSettings);
  const std::size_t job = pattern.find(kJob);
  TRIREME_REQUIRE_INPUT(settings < job && job != std::string::npos,
                        "'{}' has not the lines '{} ...' and '{} ...' any more, between "
                        "which settings go: put them back",
                        (options.slurm / "train.sbatch").string(), kSettings, kJob);

  std::vector<BatchOption> batch = batch_options(pattern, "train.sbatch");
  const std::vector<BatchOption> of_machine =
      batch_options(machine, machine_file.string());
  const std::int64_t ranks = ranks_of(of_machine, options.nodes, machine_file);
  const plan::DryRun checked = plan::dry_run({.deck = options.deck,
                                              .overrides = options.overrides,
                                              .run_dir = options.run_dir,
                                              .ranks = static_cast<int>(ranks),
                                              .resume = "auto",  // as the script has it
                                              .purpose = check::Purpose::job});
  const std::string warning =
      device_warning(options.uses_gpus, of_machine, machine_file.stem().string());
  if (options.warn) {
    if (!warning.empty()) options.warn(warning);
    for (const check::NotChecked& path : checked.not_checked) options.warn(path.text());
    for (const std::string& mistake : checked.warnings) options.warn(mistake);
  }
  for (const BatchOption& option : of_machine) set_batch_option(batch, option);
  set_own_options(batch, options, checked.deck);

  std::string text = "#!/bin/bash\n";
  for (const BatchOption& option : batch) text += batch_line(option);
  text += fmt::format(
      "# Written by `trireme jobscript`: {} on {} (machine {}). Give it to sbatch, or "
      "to\n"
      "# slurm/chain.sh. It trains until the deck is done, requeueing itself.\n#\n",
      checked.deck.name, format_plural(ranks, "rank"), machine_file.stem().string());
  text +=
      plan_comment(
          checked,
          {.ranks = ranks, .nodes = options.nodes, .seconds = job_seconds(options.time)},
          measured_steps(checked.deck),
          rank_peak(machine, machine_file.string(), checked.deck.precision.compute)) +
      "#\n";
  text += fmt::format("{}\n{}{}", kSettings, settings_of(options, machine),
                      pattern.substr(job));
  return text;
}

}  // namespace trireme::job
