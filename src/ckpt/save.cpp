// ckpt/save.cpp — see save.hpp.
//
// All that can fail comes before the rename, which is the moment from which the
// checkpoint exists. Afterwards only the link and old checkpoints are touched, and what
// goes wrong there is a warning. The sizes of the files are asked for once more before
// the manifest is written, as a file system may lose the end of a file and tell nobody.
#include "ckpt/save.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/temporary_name.hpp"
#include "ckpt/saver.hpp"
#include "comm/on_ranks.hpp"
#include "io/atomic_file.hpp"
#include "io/checksum.hpp"

namespace trireme::ckpt {

namespace fs = std::filesystem;

namespace {

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
      temporary_name(final.parent_path() / (final.filename().string() + ".old"));
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

// Compares the files with what was written: a file system that loses the end of a file
// tells nobody.
void require_files(const Path& staging, const Manifest& manifest) {
  for (const FileEntry& file : manifest.files) {
    const std::uint64_t bytes = io::file_size(staging / file.name);
    TRIREME_REQUIRE(bytes == file.bytes,
                    "'{}' was written with {} and now has {}: the file system lost some",
                    (staging / file.name).string(), format_plural(file.bytes, "byte"),
                    format_grouped(bytes));
  }
}

}  // namespace

Staging begin_save(const Path& directory, const TrainingState& state,
                   const FaultHook& hook) {
  const Path path = temporary_name(directory / step_name(state.step));
  io::create_directory(path);
  enter_phase(hook, "ckpt.begin", path);
  return {path,
          {.run = state.run.empty() ? random_id() : state.run,
           .save = random_id(),
           .step = state.step}};
}

void abandon(const Path& path) {
  std::error_code ignored;  // another error is under way, most often
  fs::remove_all(path, ignored);
}

namespace {

// All files but the index, which is made of it.
Manifest manifest_of(const Path& directory, const Identity& identity,
                     const TrainingState& state, const std::vector<Manifest>& shards) {
  Manifest manifest;
  manifest.set_identity(identity);
  manifest.samples = state.samples;
  manifest.tokens = state.tokens;
  manifest.generation = next_generation(directory);
  for (const Manifest& shard : shards) {
    TRIREME_REQUIRE(shard.blocks.empty() || shard.identity() == identity,
                    "a shard of {} came to {}", shard.identity().text(), identity.text());
  }
  manifest.merge(shards);
  return manifest;
}

}  // namespace

Saved publish(const Path& directory, const Staging& to, const TrainingState& state,
              const std::vector<Manifest>& shards, const SaveOptions& options) {
  const Path& staging = to.path;
  Manifest manifest = manifest_of(directory, to.identity, state, shards);
  const Path manifest_path = staging / kManifestName;
  manifest.check(manifest_path.string());
  require_files(staging, manifest);
  const Path index = staging / kIndexName;
  write_index(index, state, manifest,
              options.hook ? options.hook("ckpt.index") : Fault::none);
  io::sync_file(index);
  manifest.files.push_back(entry_of(index));
  enter_phase(options.hook, "ckpt.manifest", manifest_path);
  io::write_file(manifest_path, manifest.to_text());
  io::sync_directory(staging);

  Saved saved{directory / step_name(state.step), io::file_size(manifest_path), ""};
  for (const FileEntry& file : manifest.files) saved.bytes += file.bytes;
  enter_phase(options.hook, "ckpt.rename", saved.path);
  take_final_name(staging, saved.path);
  // Saved it is, whatever becomes of the link and of the old ones.
  try {
    enter_phase(options.hook, "ckpt.publish", directory / kLatestName);
    io::swap_symlink(saved.path.filename(), directory / kLatestName);
  } catch (const Error& error) {
    saved.warning = fmt::format("'{}' is saved, but '{}' does not name it: {}",
                                saved.path.string(), kLatestName, error.what());
    return saved;
  }
  const Purged purged = purge(directory, options.retention, options.hook);
  if (!purged.problems.empty()) {
    saved.warning = fmt::format(
        "'{}' is saved, but checkpoints that are no longer wanted could not all be "
        "removed; remove them by hand, the disk fills up otherwise:\n  {}",
        saved.path.string(), fmt::join(purged.problems, "\n  "));
  }
  if (options.hook) options.hook("ckpt.end");
  return saved;
}

Saved save_checkpoint(const Exec& exec, comm::Communicator& comm, const Path& directory,
                      const TrainingState& state, const std::vector<TensorPart>& parts,
                      const SaveOptions& options) {
  comm::on_first_rank(comm, [&] { io::create_directories(directory); });
  Saver saver(comm, "",
              {.directory = directory, .in_background = false, .hook = options.hook});
  saver.begin(exec, parts, state, options.retention);
  const SaveReport report = saver.finish();
  if (!report.error.empty()) throw Error(report.error);
  return {report.path, report.bytes, report.warning};
}

}  // namespace trireme::ckpt
