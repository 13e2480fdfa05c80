// check/run_start.cpp — see run_start.hpp.
//
// A run is never given up in silence: beginning anew in its directory would overwrite
// it. Each way in which checkpoints may not be where they are looked for (another
// checkpoint.dir, removed by somebody, all damaged) is therefore looked for and has an
// error of its own.
#include "check/run_start.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "ckpt/directory.hpp"
#include "comm/operation_board.hpp"
#include "io/files.hpp"
#include "report/run_history.hpp"

namespace trireme::check {

namespace fs = std::filesystem;

namespace {

bool is_there(const io::Path& path) {
  std::error_code ignored;  // what cannot be seen: making the directory tells why
  return fs::exists(path, ignored);
}

std::vector<ckpt::Listed> checkpoints_of(const io::Path& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return {};
  return ckpt::list_checkpoints(directory);
}

// What a run has left in the directory, for people; empty where there is none.
std::string traces_of_run(const RunOptions& options) {
  std::string traces;
  const auto add = [&](const std::string& text) {
    traces += (traces.empty() ? "" : ", ") + text;
  };
  for (const char* name : {"deck.yaml", "environment.json", "train.jsonl"}) {
    if (is_there(options.path / name)) add(name);
  }
  const auto checkpoints = checkpoints_of(options.checkpoints);
  if (!checkpoints.empty()) {
    const std::size_t count = checkpoints.size();
    add(fmt::format("{} in '{}'",
                    format_plural(static_cast<std::int64_t>(count), "checkpoint"),
                    options.checkpoints.string()));
  }
  return traces;
}

void refuse_existing(const RunOptions& options) {
  const std::string traces = traces_of_run(options);
  TRIREME_REQUIRE_INPUT(
      traces.empty(),
      "'{}' holds a run already ({}). To continue it: --resume auto. To train elsewhere: "
      "--run-dir DIR. To train anew in it, remove it first.",
      options.path.string(), traces);
}

// A start at the checkpoint that a search has found.
RunStart start_at(ckpt::Search search, const RunOptions& options) {
  RunStart start;
  start.checkpoint = *search.found;
  start.manifest = std::move(search.manifest);
  start.step = start.manifest->step;
  start.kind = start.step >= options.steps ? StartKind::finished : StartKind::resume;
  start.older = std::move(search.older);
  for (const std::string& skipped : search.skipped) {
    start.notes.push_back("left out a checkpoint: " + skipped);
  }
  return start;
}

// The run's checkpoints are where they were, and the deck names another directory:
// beginning anew would give them up.
void require_none_elsewhere(const RunOptions& options) {
  const io::Path link = options.path / "checkpoints";
  const auto elsewhere = checkpoints_of(link);
  if (elsewhere.empty()) return;
  std::error_code ignored;
  const std::string there = fs::canonical(link, ignored).string();
  const std::string here = options.checkpoints.string();
  throw InputError(fmt::format(
      "'{0}' holds no checkpoint, but this run's are in '{1}' ({2}, the newest is {3}). "
      "Move them (mkdir -p '{0}' && mv '{1}'/* '{0}'/), or name that directory with "
      "checkpoint.dir, or train anew elsewhere (--run-dir DIR).",
      here, there, elsewhere.size(), elsewhere.front().path.filename().string()));
}

// Refuses to begin anew where the run has saved checkpoints, and none is there.
void require_none_lost(const RunOptions& options) {
  std::int64_t saved = -1;
  const report::RunHistory history(options.path);  // outlives the loop over what it holds
  for (const report::StartRecord& start : history.starts()) {
    saved = std::max(saved, start.saved_step);
  }
  TRIREME_REQUIRE_INPUT(
      saved < 0,
      "'{}' holds no checkpoint, but the run in '{}' has saved step {}. Put its "
      "checkpoints back, or name their directory with checkpoint.dir ('{}' has the last "
      "start's). To begin anew all the same, remove '{}'.",
      options.checkpoints.string(), options.path.string(), saved,
      (options.path / "deck.yaml").string(),
      (options.path / report::kStartsName).string());
}

RunStart start_auto(const RunOptions& options) {
  ckpt::Search search;
  std::error_code ignored;  // what cannot be seen: making the directory tells why
  if (fs::is_directory(options.checkpoints, ignored)) {
    search = ckpt::find_newest(options.checkpoints, ckpt::Depth::sizes);
  }
  if (!search.found && search.skipped.empty()) {
    require_none_elsewhere(options);
    require_none_lost(options);
    RunStart start;
    const std::string traces = traces_of_run(options);
    if (!traces.empty()) {
      start.notes.push_back(
          fmt::format("'{}' has no checkpoint yet ({}): training from the first step",
                      options.path.string(), traces));
    }
    return start;
  }
  if (!search.found) {
    std::string list;
    for (const std::string& skipped : search.skipped) list += "\n  " + skipped;
    throw InputError(fmt::format(
        "no checkpoint in '{}' is whole, and beginning anew would give up the run:{}\n"
        "Mend them, or train elsewhere (--run-dir DIR), or remove the directory.",
        options.checkpoints.string(), list));
  }
  return start_at(std::move(search), options);
}

RunStart start_from(const RunOptions& options) {
  TRIREME_REQUIRE_INPUT(
      is_there(options.resume),
      "--resume '{}': expected never, auto, or a checkpoint that exists "
      "(a run directory, its 'checkpoints', one step_* directory or "
      "'latest')",
      options.resume);
  RunStart start =
      start_at(ckpt::find_whole(options.resume, ckpt::Depth::sizes), options);
  ckpt::require_optimizer_state(*start.manifest, start.checkpoint);
  std::error_code ignored;
  const bool own = start.checkpoint.parent_path() ==
                   fs::weakly_canonical(options.checkpoints, ignored);
  if (!own) {
    const std::string traces = traces_of_run(options);
    TRIREME_REQUIRE_INPUT(
        traces.empty(),
        "'{}' holds a run already ({}), and '{}' is not one of its checkpoints. To "
        "continue that run: --resume auto. To branch off: --run-dir DIR with a new "
        "directory.",
        options.path.string(), traces, options.resume);
    TRIREME_REQUIRE_INPUT(
        start.step < options.steps,
        "nothing to train: '{}' is of step {}, and run.steps is {}. Raise run.steps.",
        options.resume, start.step, options.steps);
  }
  if (own && start.kind == StartKind::resume) {
    for (const ckpt::Listed& listed : checkpoints_of(start.checkpoint.parent_path())) {
      if (listed.step <= start.step) continue;
      start.superseded.push_back(listed.path);
      start.notes.push_back(fmt::format("{} is beyond step {}: moved to '{}'",
                                        listed.path.filename().string(), start.step,
                                        (options.checkpoints / "set_aside").string()));
    }
  }
  return start;
}

RunStart decide(const RunOptions& options) {
  if (options.resume == "auto") return start_auto(options);
  if (options.resume != "never") return start_from(options);
  refuse_existing(options);
  return {};
}

}  // namespace

bool has_run_records(const io::Path& directory) {
  return is_there(directory / "deck.yaml") && (is_there(directory / "train.jsonl") ||
                                               is_there(directory / "environment.json"));
}

RunStart decide_start(const RunOptions& options) {
  // Said of a refused start, too: what went wrong in the one before may explain it.
  const std::vector<std::string> ends = comm::unclean_ends(options.path);
  RunStart start;
  try {
    start = decide(options);
  } catch (const InputError& error) {
    if (ends.empty()) throw;
    throw InputError(fmt::format("{}\n{}", error.what(), fmt::join(ends, "\n")));
  }
  start.notes.insert(start.notes.begin(), ends.begin(), ends.end());
  return start;
}

}  // namespace trireme::check
