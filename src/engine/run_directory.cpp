// engine/run_directory.cpp — making, locking and describing; the decision is in
// run_start.cpp.
#include "engine/run_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.hpp"
#include "base/host_name.hpp"
#include "base/wall_time.hpp"
#include "ckpt/directory.hpp"
#include "comm/on_ranks.hpp"
#include "engine/shared_directory.hpp"
#include "io/atomic_file.hpp"
#include "io/json.hpp"

namespace trireme::engine {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

namespace {

// Made if need be, and writable; `key` and `option` say how to name another.
void make_writable(const io::Path& path, std::string_view what, std::string_view advice) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw InputError(
        fmt::format("{}. {}",
                    io::system_message(fmt::format("cannot create the {}", what), path,
                                       error.value()),
                    advice));
  }
  TRIREME_REQUIRE_INPUT(fs::is_directory(path, error),
                        "the {} '{}' exists and is a file. {}", what, path.string(),
                        advice);
  if (::access(path.c_str(), W_OK | X_OK) != 0) {
    throw InputError(fmt::format(
        "{}. {}",
        io::system_message(fmt::format("cannot write to the {}", what), path, errno),
        advice));
  }
}

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
// require_seen_by_all(). The directory is locked, so that nobody is at it.
void remove_leftovers(const io::Path& directory) {
  std::error_code ignored;
  std::vector<io::Path> leftovers;
  for (fs::directory_iterator it(directory, ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    const bool is_temporary =
        name.starts_with(".") && name.find(".tmp-") != std::string::npos;
    if (!is_temporary && !name.starts_with(".seen-") &&
        !name.starts_with(".preflight-")) {
      continue;
    }
    std::error_code unknown;
    if (it->is_regular_file(unknown)) leftovers.push_back(it->path());
  }
  for (const io::Path& path : leftovers) fs::remove(path, ignored);
}

std::string host_and_process() {
  return fmt::format("process {} on {}, since {}", ::getpid(), host_name(),
                     iso_time(wall_seconds()));
}

OrderedJson to_json(const RunEnvironment& environment) {
  OrderedJson json;
  const auto put = [&](const char* key, const auto& value) {
    if (!value.empty()) json[key] = value;
  };
  put("started", environment.started);
  put("command_line", environment.command_line);
  put("job", environment.job);
  for (const auto& [name, version] : environment.versions) {
    json["versions"][name] = version;
  }
  put("compiler", environment.compiler);
  put("build_type", environment.build_type);
  put("flags", environment.flags);
  put("grid", environment.grid);
  json["ranks"] = environment.ranks;
  json["threads_per_rank"] = environment.threads;
  put("hosts", environment.hosts);
  put("devices", environment.devices);
  put("places", environment.places);
  return json;
}

}  // namespace

RunDirectory::RunDirectory(comm::Communicator& world, const RunOptions& options,
                           const RunStart& start)
    : world_(world), path_(options.path) {
  try {
    comm::on_first_rank(world, [&] {
      make_writable(path_, "run directory",
                    "Name another one with --run-dir DIR or run.dir.");
      make_writable(options.checkpoints, "checkpoint directory",
                    "Name another one with checkpoint.dir.");
      lock(path_, "trains in", "train elsewhere: --run-dir DIR or run.dir");
      if (!fs::equivalent(path_, options.checkpoints)) {
        lock(options.checkpoints, "writes checkpoints to",
             "name another directory: checkpoint.dir");
        link_checkpoints(options.checkpoints);
      }
      remove_leftovers(path_);
      remove_leftovers(options.checkpoints);
      set_aside(start.superseded, start.checkpoint);
    });
    require_seen_by_all(world, path_, "run directory");
    require_seen_by_all(world, options.checkpoints, "checkpoint directory");
  } catch (const Error&) {
    unlock();
    throw;
  }
}

RunDirectory::~RunDirectory() {
  unlock();
}

// As at the process' death.
void RunDirectory::unlock() {
  for (const int lock : locks_) ::close(lock);
  locks_.clear();
}

void RunDirectory::lock(const io::Path& directory, std::string_view does,
                        std::string_view advice) {
  const io::Path path = directory / ".lock";
  const int lock = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock < 0) {
    throw InputError(fmt::format(
        "{}. Or {}.", io::system_message("cannot write", path, errno), advice));
  }
  locks_.push_back(lock);
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    // Other errors: a file system without locks.
    TRIREME_REQUIRE_INPUT(errno != EWOULDBLOCK,
                          "another process {} '{}' ({}). Wait for it to end, or {}.",
                          does, directory.string(), io::read_file(path), advice);
    return;
  }
  const std::string owner = host_and_process();
  if (::ftruncate(lock, 0) != 0 || ::pwrite(lock, owner.data(), owner.size(), 0) !=
                                       static_cast<ssize_t>(owner.size())) {
    throw Error(io::system_message("cannot write", path, errno));
  }
}

// Who is given the run directory finds its checkpoints, wherever they are.
void RunDirectory::link_checkpoints(const io::Path& checkpoints) const {
  const io::Path link = file("checkpoints");
  std::error_code error;
  const bool is_link = fs::is_symlink(fs::symlink_status(link, error));
  if (fs::exists(link) && fs::equivalent(link, checkpoints, error)) return;
  if (fs::exists(link) && !is_link) {
    // Of a start that saved nothing there: only its lock.
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

void RunDirectory::write_environment(const RunEnvironment& environment) {
  comm::on_first_rank(world_, [&] {
    const io::Path path = file("environment.json");
    OrderedJson json = to_json(environment);
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

}  // namespace trireme::engine
