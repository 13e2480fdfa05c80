// ckpt/save.cpp — see save.hpp.
#include "ckpt/save.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.hpp"
#include "comm/on_ranks.hpp"
#include "io/atomic_file.hpp"
#include "io/checksum.hpp"

namespace trireme::ckpt {

namespace fs = std::filesystem;

namespace {

// A rank's word to rank 0: its part of the manifest, or what went wrong.
constexpr char kPart = 'P';
constexpr char kFailure = 'F';

void call(const FaultHook& hook, const char* phase) {
  if (hook) hook(phase);
}

// Gives `staging` its final name. An older checkpoint of that name (a damaged one, or of
// a run that went on from before it) takes the temporary name in the same instant where
// the file system can exchange names.
void take_final_name(const Path& staging, const Path& final) {
  if (!fs::exists(fs::symlink_status(final))) {
    io::rename_synced(staging, final);
    return;
  }
  if (::renameat2(AT_FDCWD, staging.c_str(), AT_FDCWD, final.c_str(), RENAME_EXCHANGE) ==
      0) {
    io::sync_directory(final.parent_path());
    abandon(staging);
    return;
  }
  const Path old =
      io::temporary_name(final.parent_path() / (final.filename().string() + ".old"));
  abandon(old);
  io::rename_synced(final, old);
  io::rename_synced(staging, final);
  abandon(old);
}

std::int64_t next_generation(const Path& directory) {
  std::int64_t newest = 0;
  for (const Listed& listed : list_checkpoints(directory)) {
    newest = std::max(newest, listed.generation);
  }
  return newest + 1;
}

FileEntry entry_of(const Path& path) {
  const io::FileSum sum = io::checksum_file(path);
  return {path.filename().string(), sum.bytes, sum.checksum};
}

// "" where all is well, else every rank's failure.
std::string failures_of(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    if (words[rank].front() != kFailure) continue;
    text += fmt::format("{}rank {}: {}", text.empty() ? "" : "\n", rank,
                        words[rank].substr(1));
  }
  return text;
}

}  // namespace

Path begin_save(const Path& directory, std::int64_t step, const FaultHook& hook) {
  io::create_directories(directory);
  remove_stale(directory);
  const Path staging = io::temporary_name(directory / step_name(step));
  io::create_directories(staging);
  call(hook, "save.begun");
  return staging;
}

void abandon(const Path& staging) {
  std::error_code ignored;  // another error is under way, most often
  fs::remove_all(staging, ignored);
}

Saved publish(const Path& directory, const Path& staging, const TrainingState& state,
              const std::vector<Manifest>& shards, const SaveOptions& options) {
  Manifest manifest;
  manifest.step = state.step;
  manifest.generation = next_generation(directory);
  for (const Manifest& shard : shards) manifest.merge(shard);
  const Path manifest_path = staging / kManifestName;
  manifest.check(manifest_path.string());
  const Path index = staging / kIndexName;
  write_index(index, state, manifest);
  io::sync_file(index);
  manifest.files.push_back(entry_of(index));
  call(options.hook, "index.written");
  io::write_file(manifest_path, manifest.to_text());
  call(options.hook, "manifest.written");
  io::sync_directory(staging);
  call(options.hook, "save.synced");

  Saved saved{directory / step_name(state.step), io::file_size(manifest_path), ""};
  for (const FileEntry& file : manifest.files) saved.bytes += file.bytes;
  take_final_name(staging, saved.path);
  call(options.hook, "save.renamed");
  io::swap_symlink(saved.path.filename(), directory / kLatestName);
  call(options.hook, "save.linked");
  // Saved it is, whatever becomes of the old ones.
  const Purged purged = purge(directory, options.retention, options.hook);
  if (!purged.problems.empty()) {
    saved.warning = fmt::format(
        "'{}' is saved, but checkpoints that are no longer wanted could not all be "
        "removed; remove them by hand, the disk fills up otherwise:\n  {}",
        saved.path.string(), fmt::join(purged.problems, "\n  "));
  }
  call(options.hook, "save.purged");
  return saved;
}

Saved save_checkpoint(const Exec& exec, comm::Communicator& comm, const Path& directory,
                      const TrainingState& state, const std::vector<TensorPart>& parts,
                      const SaveOptions& options) {
  const Path staging = comm::on_first_rank(
      comm, [&] { return begin_save(directory, state.step, options.hook).string(); });
  std::string mine;
  try {
    mine =
        kPart + write_shard(exec, staging, comm.rank(), state.step, parts, options.hook)
                    .to_text();
  } catch (const std::exception& error) {
    mine = kFailure + std::string(error.what());
  }
  const std::vector<std::string> words = comm.gather(mine);
  Saved saved;
  const std::string result = comm::on_first_rank(comm, [&] {
    try {
      const std::string failures = failures_of(words);
      if (!failures.empty()) throw Error(failures);
      std::vector<Manifest> shards;
      for (const std::string& text : words) {
        shards.push_back(Manifest::from_text(text.substr(1), "a shard's manifest"));
      }
      saved = publish(directory, staging, state, shards, options);
    } catch (...) {
      abandon(staging);
      throw;
    }
    return fmt::format("{} {}", saved.bytes, saved.path.string());
  });
  const std::size_t space = result.find(' ');
  return {result.substr(space + 1), std::stoull(result.substr(0, space)),
          std::move(saved.warning)};
}

}  // namespace trireme::ckpt
