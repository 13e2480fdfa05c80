// ckpt/directory.cpp — listing, choosing and purging checkpoints; see directory.hpp.
//
// Checkpoints are ordered by their generation, a number that each save takes from the
// newest manifest before it: names carry the step, and a run that was taken back to an
// earlier step writes smaller steps later. The newest is looked for from the newest on,
// and one with problems is passed over with a warning, so that a damaged checkpoint costs
// some steps and not the run. Purging renames first and removes then: a process that is
// killed in between leaves a temporary name, which the next start removes.
#include "ckpt/directory.hpp"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/error_message.hpp"
#include "base/temporary_name.hpp"
#include "io/atomic_file.hpp"

namespace trireme::ckpt {

namespace fs = std::filesystem;

namespace {

std::string join(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "\n  "));
}

}  // namespace

bool is_checkpoint(const Path& canonical) {
  std::error_code ignored;
  return step_of(canonical.filename().string()) ||
         fs::exists(fs::symlink_status(canonical / kManifestName, ignored));
}

std::vector<Listed> list_checkpoints(const Path& directory) {
  std::vector<Listed> list;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    const auto step = step_of(it->path().filename().string());
    std::error_code unknown;
    if (!step || (!it->is_directory(unknown) && !unknown)) continue;
    list.push_back({it->path(), *step, peek_generation(it->path())});
  }
  if (error) {
    throw InputError(io::system_message("cannot list", directory, error.value()));
  }
  // The newest first; before them those that cannot be read.
  std::ranges::sort(list, std::greater(), [](const Listed& one) {
    return std::tuple(one.generation < 0, one.generation, one.step);
  });
  return list;
}

std::string advice_beside(const Path& checkpoint) {
  const auto step = step_of(checkpoint.filename().string());
  try {
    for (const Listed& other : list_checkpoints(checkpoint.parent_path())) {
      if (other.generation < 0 || other.step >= step.value_or(0)) continue;
      return fmt::format(" To go on from the one before it: --resume '{}'.",
                         other.path.string());
    }
  } catch (const Error&) {  // then there is no advice
  }
  return "";
}

Search find_newest(const Path& path, Depth depth) {
  std::error_code ignored;
  TRIREME_REQUIRE_INPUT(fs::exists(path, ignored),
                        "there is no checkpoint '{}': expected a run directory, its "
                        "'checkpoints', one step_* directory or 'latest'",
                        path.string());
  TRIREME_REQUIRE_INPUT(fs::is_directory(path, ignored),
                        "'{}' is a file; a checkpoint is a directory (step_*)",
                        path.string());
  const Path canonical = fs::canonical(path);  // `latest` is a link
  std::vector<Path> candidates;
  if (is_checkpoint(canonical)) {
    candidates.push_back(canonical);
  } else {
    const Path below = canonical / "checkpoints";
    for (const Listed& listed : list_checkpoints(
             fs::is_directory(below, ignored) ? fs::canonical(below) : canonical)) {
      candidates.push_back(listed.path);
    }
  }
  Search search;
  for (const Path& candidate : candidates) {
    if (search.found) {
      search.older.push_back(candidate);
      continue;
    }
    Findings findings;
    std::vector<std::string>& problems = findings.problems;
    // What cannot be read may well be whole. That an old checkpoint is passed over would
    // hurt nobody, but passing over the newest loses steps.
    const auto pass_over = [&]<class Kind>(const Kind& error) {
      const Path latest =
          fs::weakly_canonical(candidate.parent_path() / kLatestName, ignored);
      if (candidates.size() == 1 || candidate == latest) {
        throw Kind(fmt::format("{}.{}", error.what(), advice_beside(candidate)));
      }
      problems = {error.what()};
    };
    try {
      findings = examine(candidate, depth);
      if (!findings.unreadable.empty()) {
        pass_over(io::UnreadableError(findings.unreadable.front()));
      }
    } catch (const io::ReadError& error) {
      pass_over(error);
    }
    if (problems.empty()) {
      search.found = candidate;
      search.manifest = std::move(findings.manifest);
      continue;
    }
    search.skipped.push_back(
        fmt::format("{}: {}", candidate.filename().string(), join(problems)));
  }
  return search;
}

Search find_whole(const Path& path, Depth depth) {
  Search search = find_newest(path, depth);
  if (search.found) return search;
  TRIREME_REQUIRE_INPUT(!search.skipped.empty(), "'{}' holds no checkpoint (no step_*)",
                        path.string());
  throw InputError(fmt::format("'{}' holds no whole checkpoint:\n  {}", path.string(),
                               join(search.skipped)));
}

Path require_newest(const Path& path, Depth depth) {
  return *find_whole(path, depth).found;
}

CheckpointReader open_newest(const Path& path, Log& log) {
  // Named by itself it is all there is: what is read of it is checked as it is read, and
  // damage elsewhere does not matter.
  std::error_code ignored;
  const bool is_one = is_checkpoint(fs::weakly_canonical(path, ignored));
  Search search = find_whole(path, is_one ? Depth::sizes : Depth::checksums);
  for (const std::string& skipped : search.skipped) {
    log.warning("a newer checkpoint cannot be used: {}", skipped);
  }
  const std::string note = format_note(*search.manifest, *search.found);
  if (!note.empty()) log.warning("{}", note);
  return CheckpointReader(*search.found, std::move(search.manifest));
}

namespace {

bool is_whole(const Path& checkpoint) {
  try {
    return problems_of(checkpoint, Depth::sizes).empty();
  } catch (const io::ReadError&) {  // it stays, and does not count
    return false;
  }
}

// The checkpoints that the rule does not keep.
std::vector<Path> unwanted(const Path& directory, const Retention& retention) {
  std::error_code ignored;
  const std::string latest =
      fs::read_symlink(directory / kLatestName, ignored).filename().string();
  std::vector<Path> doomed;
  int whole = 0;
  for (const Listed& listed : list_checkpoints(directory)) {
    // Unreadable ones come first and stay: someone will want to know what happened.
    if (listed.generation >= 0 && whole < retention.keep) {
      if (is_whole(listed.path)) ++whole;
      continue;
    }
    const bool wanted =
        (retention.keep_every > 0 && listed.step % retention.keep_every == 0) ||
        retention.keep_best == listed.step || listed.path.filename() == latest ||
        listed.generation < 0;
    if (!wanted) doomed.push_back(listed.path);
  }
  return doomed;
}

}  // namespace

Purged purge(const Path& directory, const Retention& retention, const FaultHook& hook) {
  if (retention.keep <= 0) return {};
  Purged purged;
  std::vector<Path> doomed;
  try {
    doomed = unwanted(directory, retention);
  } catch (const std::exception& error) {
    purged.problems.push_back(message_of(error));
  }
  for (const Path& path : doomed) {
    const Path gone = temporary_name(path);
    try {
      enter_phase(hook, "ckpt.purge", path);
      io::rename_synced(path, gone);
    } catch (const Error& error) {
      purged.problems.emplace_back(error.what());
      continue;
    }
    std::error_code error;
    fs::remove_all(gone, error);
    if (error) {
      purged.problems.push_back(io::system_message("cannot remove", gone, error.value()));
    } else {
      purged.removed.push_back(path);
    }
  }
  return purged;
}

void remove_stale(const Path& directory, const Path& but) {
  const auto is_ours = [](std::string_view name) {
    return name.starts_with("step_") || name.starts_with(kLatestName);
  };
  std::error_code ignored;
  for (const Path& path : temporaries_in(directory, is_ours)) {
    if (path != but) fs::remove_all(path, ignored);
  }
}

}  // namespace trireme::ckpt
