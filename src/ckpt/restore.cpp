// ckpt/restore.cpp — see restore.hpp.
#include "ckpt/restore.hpp"

#include <chrono>
#include <utility>

#include "base/error.hpp"
#include "base/error_message.hpp"
#include "ckpt/directory.hpp"
#include "comm/on_ranks.hpp"
#include "io/files.hpp"

namespace trireme::ckpt {

namespace {

// What the ranks have to say, each thing once; empty where none has anything to say.
std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (word.empty() || text.find(word) != std::string::npos) continue;
    text += (text.empty() ? "" : "\n  ") + word;
  }
  return text;
}

}  // namespace

Restore::Restore(comm::Communicator& world, Candidates candidates, Log& log)
    : world_(world),
      older_(std::move(candidates.paths)),
      manifest_(std::move(candidates.manifest)),
      log_(log) {
  fall_back("");
}

Restore::Candidates Restore::candidates_of(comm::Communicator& world,
                                           const io::Path& path, Log& log) {
  std::optional<ckpt::Manifest> manifest;
  const std::vector<std::string> names = comm::on_first_rank(world, [&] {
    ckpt::Search search = ckpt::find_whole(path, ckpt::Depth::sizes);
    manifest = std::move(search.manifest);
    for (const std::string& skipped : search.skipped) {
      log.warning("a newer checkpoint cannot be used: {}", skipped);
    }
    std::vector<std::string> names = {search.found->string()};
    for (const io::Path& older : search.older) names.push_back(older.string());
    return names;
  });
  return {{names.begin(), names.end()}, std::move(manifest)};
}

// Goes to the first checkpoint that can be opened, and says what is wrong with those
// before it.
void Restore::fall_back(const std::string& problems) {
  std::string said = problems;
  while (true) {
    if (!said.empty()) {
      const std::string advice = older_.empty() ? this->advice() : "";
      TRIREME_REQUIRE_INPUT(
          !older_.empty(),
          "no checkpoint is left to go on from:\n  {}\nPut a whole copy of one "
          "back, or train anew elsewhere (--run-dir DIR).{}",
          said, advice);
      log_.warning(
          "a checkpoint cannot be used:\n  {}\nGoing on from an older "
          "one: "
          "'{}'",
          said, older_.front().string());
    }
    path_ = older_.front();
    older_.erase(older_.begin());
    try {
      reader_.emplace(world_, path_, std::exchange(manifest_, {}));
      const std::string note = ckpt::format_note(reader_->manifest(), path_);
      if (!note.empty()) log_.warning("{}", note);
      return;
    } catch (const InputError& error) {
      said = error.what();
    } catch (const Error& error) {
      throw Error(fmt::format("{}.{}", error.what(), advice()));
    }
  }
}

std::string Restore::advice() {
  return comm::on_first_rank(world_, [&] { return ckpt::advice_beside(path_); });
}

void Restore::read(const Use& load, const Use& check) {
  while (true) {
    const auto begin = std::chrono::steady_clock::now();
    std::string mine, failure;
    try {
      load(*reader_);
    } catch (const InputError& error) {
      mine = error.what();
    } catch (const std::exception& error) {
      failure = message_of(error);
    }
    if (world_.any(!failure.empty())) {
      const std::string failures = joined(world_.gather(failure));
      throw Error(fmt::format("{}.{}", failures, advice()));
    }
    const std::string problems = joined(world_.gather(mine));
    const std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - begin;
    seconds_ = world_.all_reduce(seconds.count(), comm::Op::max);
    bytes_ = static_cast<std::uint64_t>(
        world_.all_reduce(static_cast<std::int64_t>(reader_->bytes_read())));
    if (problems.empty()) return;
    fall_back(problems);
    check(*reader_);
  }
}

void Restore::verify() {
  const Use nothing = [](const ckpt::CheckpointReader&) {};
  const Use its_share = [&](const ckpt::CheckpointReader& reader) {
    const ckpt::Manifest& manifest = reader.manifest();
    const auto blocks = manifest.blocks_by_file();
    std::vector<std::string> problems;
    for (std::size_t i = 0; i < manifest.files.size(); ++i) {
      if (i % static_cast<std::size_t>(world_.size()) !=
          static_cast<std::size_t>(world_.rank())) {
        continue;
      }
      const auto found = ckpt::problems_of_file(reader.path(), manifest, i, blocks[i],
                                                ckpt::Depth::checksums);
      problems.insert(problems.end(), found.begin(), found.end());
    }
    if (!problems.empty()) throw InputError(joined(problems));
  };
  read(its_share, nothing);
}

}  // namespace trireme::ckpt
