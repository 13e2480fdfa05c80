// run/run_directory.cpp — see run_directory.hpp.
//
// The directory is held by a lock before anything is decided (check/run_start.hpp),
// because a decision is true only as long as nobody else writes there. Rank 0 does all
// of it and tells the others. Until begin() nothing stays behind: a directory that was
// made for the lock goes again with it.
#include "run/run_directory.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.hpp"
#include "base/temporary_name.hpp"
#include "ckpt/directory.hpp"
#include "comm/on_ranks.hpp"
#include "io/atomic_file.hpp"
#include "io/json.hpp"
#include "run/shared_directory.hpp"

namespace trireme::run {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

namespace {

void set_aside(const std::vector<io::Path>& checkpoints, const io::Path& restored) {
  if (checkpoints.empty()) return;
  const io::Path directory = checkpoints.front().parent_path();
  // First the link: it must name a checkpoint at every instant.
  io::swap_symlink(restored.filename(), directory / ckpt::kLatestName);
  const io::Path aside = directory / "set_aside";
  io::create_directories(aside);
  for (const io::Path& checkpoint : checkpoints) {
    const std::string name = checkpoint.filename().string();
    io::Path target = aside / name;
    for (int n = 2; fs::exists(target); ++n)
      target = aside / fmt::format("{}-{}", name, n);
    io::rename_synced(checkpoint, target);
  }
}

// What starts left that were killed as they wrote it: temporary files, and the probes of
// require_seen_by_all() and of the preflight, which are called so. The directory is
// locked, so that nobody is at it.
void remove_leftovers(const io::Path& directory) {
  std::error_code ignored;
  for (const io::Path& path : temporaries_in(directory, [](auto) { return true; })) {
    if (fs::is_regular_file(path, ignored)) fs::remove(path, ignored);
  }
}

}  // namespace

RunDirectory::RunDirectory(comm::Communicator& world, const check::RunOptions& options)
    : world_(world), options_(options), path_(options.path) {
  // What the other ranks go by. Paths are bytes, and need not be text of any encoding.
  const std::vector<std::string> known = comm::on_first_rank(world, [&] {
    start_ = hold_and_decide();
    std::vector<std::string> texts = {std::to_string(static_cast<int>(start_.kind)),
                                      std::to_string(start_.step),
                                      start_.checkpoint.string()};
    for (const io::Path& path : start_.older) texts.push_back(path.string());
    return texts;
  });
  if (world.rank() == 0) return;
  start_.kind = static_cast<check::StartKind>(std::stoi(known.at(0)));
  start_.step = std::stoll(known.at(1));
  start_.checkpoint = known.at(2);
  start_.older.assign(known.begin() + 3, known.end());
}

check::RunStart RunDirectory::hold_and_decide() {
  std::string unwritable;
  try {
    held_.emplace(path_, io::HeldDirectory::Words{
                             .what = "run directory",
                             .does = "trains in",
                             .advice = "train elsewhere: --run-dir DIR or run.dir"});
    std::error_code error;
    if (!fs::equivalent(path_, options_.checkpoints, error)) {
      held_checkpoints_.emplace(
          options_.checkpoints,
          io::HeldDirectory::Words{.what = "checkpoint directory",
                                   .does = "writes checkpoints to",
                                   .advice = "name another directory: checkpoint.dir"});
    }
  } catch (const io::UnwritableDirectory& error) {
    unwritable = error.what();
  }
  check::RunStart start = check::decide_start(options_);
  // A finished run may be kept where nobody can write.
  TRIREME_REQUIRE_INPUT(unwritable.empty() || start.kind == check::StartKind::finished,
                        "{}", unwritable);
  return start;
}

void RunDirectory::begin() {
  comm::on_first_rank(world_, [&] {
    TRIREME_REQUIRE_INPUT(held_, "'{}' cannot be written to", path_.string());
    held_->keep();
    if (held_checkpoints_) {
      held_checkpoints_->keep();
      link_checkpoints();
    }
    remove_leftovers(path_);
    remove_leftovers(options_.checkpoints);
    set_aside(start_.superseded, start_.checkpoint);
  });
  require_seen_by_all(world_, path_, "run directory");
  require_seen_by_all(world_, options_.checkpoints, "checkpoint directory");
}

void RunDirectory::require_held() const {
  for (const auto* held : {&held_, &held_checkpoints_}) {
    const std::string loss = *held ? (*held)->loss() : std::string();
    TRIREME_REQUIRE(
        loss.empty(),
        "{}, while this run trained in '{}'. It ends: what it goes on to write "
        "would be lost, or mixed with what another start writes. Move or "
        "remove a run when it has ended.",
        loss, path_.string());
  }
}

// Who is given the run directory finds its checkpoints, wherever they are.
void RunDirectory::link_checkpoints() const {
  const io::Path& checkpoints = options_.checkpoints;
  const io::Path link = file("checkpoints");
  std::error_code error;
  const bool is_link = fs::is_symlink(fs::symlink_status(link, error));
  if (fs::exists(link) && fs::equivalent(link, checkpoints, error)) return;
  if (fs::exists(link) && !is_link) {
    // A start that saved nothing leaves only its lock there.
    fs::remove(link / ".lock", error);
    if (!fs::remove(link, error)) return;
  }
  io::swap_symlink(fs::canonical(checkpoints), link);
}

void RunDirectory::write_deck(std::string_view resolved_deck) {
  comm::on_first_rank(world_, [&] {
    const io::Path path = file("deck.yaml");
    if (fs::exists(path)) {
      if (io::read_file(path) == resolved_deck) return;
      int n = 1;
      while (fs::exists(file(fmt::format("deck.{}.yaml", n)))) ++n;
      io::rename_synced(path, file(fmt::format("deck.{}.yaml", n)));
    }
    io::write_file(path, resolved_deck);
  });
}

void RunDirectory::write_environment(OrderedJson json) {
  comm::on_first_rank(world_, [&] {
    const io::Path path = file("environment.json");
    if (fs::exists(path)) {
      OrderedJson earlier = io::parse_json_or_null<OrderedJson>(io::read_file(path));
      if (earlier.is_object()) {  // else damaged: nothing to keep
        OrderedJson starts = OrderedJson::array();
        if (earlier.contains("earlier_starts")) starts = earlier["earlier_starts"];
        earlier.erase("earlier_starts");
        if (starts.is_array()) starts.push_back(std::move(earlier));
        json["earlier_starts"] = std::move(starts);
      }
    }
    io::write_file(path, io::json_text(json, 2) + "\n");
  });
}

void RunDirectory::write_gemm_table(std::string_view text) {
  comm::on_first_rank(world_, [&] { io::write_file(file("gemm_table.json"), text); });
}

}  // namespace trireme::run
