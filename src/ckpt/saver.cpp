// ckpt/saver.cpp — see saver.hpp.
//
// A save is a sequence of phases, each with work for a thread of every rank: laying files
// out, writing, publishing. advance() looks whether this rank's thread is done, and all
// ranks agree by one message whether everybody is; only then does the next phase start,
// so that all ranks are always in the same phase. Threads make no MPI call, which works
// with every MPI and every level of thread support. An error in a thread is kept as text
// and gathered by all (failures()): all ranks give up together, and training goes on.
#include "ckpt/saver.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.hpp"
#include "base/error_message.hpp"
#include "base/wall_time.hpp"
#include "comm/on_ranks.hpp"

namespace trireme::ckpt {

namespace {

using Clock = std::chrono::steady_clock;

// How long a rank that has nothing to do but wait for a save sleeps between two looks.
constexpr auto kPatience = std::chrono::milliseconds(1);

// The number of the file that each rank writes to, from 0 on; empty where each rank has a
// file of its own.
std::vector<int> files_of(comm::Communicator& world, const std::string& host,
                          index_t writers) {
  std::vector<int> files;
  if (writers == config::kWriterPerNode) {
    std::vector<std::string> hosts;
    for (const std::string& name : world.gather(host)) {
      const auto it = std::find(hosts.begin(), hosts.end(), name);
      files.push_back(static_cast<int>(it - hosts.begin()));
      if (it == hosts.end()) hosts.push_back(name);
    }
  } else if (writers != config::kWriterPerRank && writers < world.size()) {
    for (index_t rank = 0; rank < world.size(); ++rank) {
      files.push_back(static_cast<int>(rank * writers / world.size()));
    }
  }
  return files;
}

std::vector<Manifest> manifests_of(const std::vector<std::string>& texts) {
  std::vector<Manifest> manifests;
  for (const std::string& text : texts) {
    manifests.push_back(Manifest::from_text(text, "a shard's manifest"));
  }
  return manifests;
}

}  // namespace

Saver::Saver(comm::Communicator& world, const std::string& host,
             const SaverOptions& options)
    : world_(world), options_(options), writer_(world.rank()) {
  options_.hook = [this, hook = options.hook](std::string_view phase) {
    ++progress_;
    return hook ? hook(phase) : Fault::none;
  };
  const std::vector<int> files = files_of(world, host, options.writers);
  if (files.empty()) return;
  writer_ = files[static_cast<std::size_t>(world.rank())];
  group_ = world.split(writer_, world.rank(), "checkpoint file");
}

Saver::~Saver() {
  if (!thread_.joinable()) return;
  if (has_given_up_) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Saver::reserve(const Exec& exec, const std::vector<TensorPart>& parts) {
  if (options_.in_background) snapshot_.reserve(exec, Snapshot::bytes_of(parts));
}

template <class Work>
void Saver::start(Phase phase, Work&& work) {
  phase_ = phase;
  failure_.clear();
  is_done_ = false;
  thread_ = std::thread([this, work = std::forward<Work>(work)] {
    const auto begin = Clock::now();
    try {
      work();
    } catch (const std::exception& error) {
      failure_ = message_of(error);
    }
    phase_seconds_ = seconds_since(begin);
    is_done_ = true;
  });
}

void Saver::begin(const Exec& exec, const std::vector<TensorPart>& parts,
                  const TrainingState& state, const Retention& retention) {
  TRIREME_REQUIRE(!is_under_way(), "the save of step {} is under way still", state_.step);
  const auto begin = Clock::now();
  report_ = {.step = state.step};
  state_ = state;
  retention_ = retention;
  exec_ = exec;
  std::string failure;
  try {
    enter_phase(options_.hook, "ckpt.stage", options_.directory);
    launched_.record(exec);
    if (options_.in_background) snapshot_.take(exec, parts);
    parts_ = options_.in_background ? snapshot_.parts() : parts;
  } catch (const std::exception& error) {
    failure = message_of(error);
  }
  shard_ = outline_of(parts_);
  outlines_ = {shard_};
  if (group_ != nullptr) {
    const std::vector<std::string> outlines = group_->gather_to_first(shard_.to_text());
    outlines_ = group_->rank() == 0 ? manifests_of(outlines) : std::vector<Manifest>();
  }
  // The thread of the first phase waits for nobody, so that the directory has to be
  // there.
  if (const std::string error = make_staging(); !error.empty()) failure = error;
  report_.busy_seconds = report_.own_seconds = seconds_since(begin);
  start(Phase::laying_out, [this, failure] {
    if (!failure.empty()) throw Error(failure);
    if (world_.rank() == 0) remove_stale(options_.directory, staging_.path);
    if (outlines_.empty()) return;  // another rank does it
    shard_ = lay_out_shard(staging_, writer_, outlines_, options_.hook);
    if (group_ == nullptr) write();
  });
  if (group_ == nullptr) phase_ = Phase::writing;
}

// On rank 0; the others learn its name and identity. Returns what went wrong.
std::string Saver::make_staging() {
  staging_ = {};
  const std::string made = comm::on_first_rank(world_, [&] {
    try {
      const Staging staging = begin_save(options_.directory, state_, options_.hook);
      return "+" + staging.identity.run + staging.identity.save + staging.path.string();
    } catch (const Error& error) {
      return "-" + std::string(error.what());
    }
  });
  if (made.front() == '-') return made.substr(1);
  staging_ = {
      made.substr(1 + 2 * kIdLength),
      {made.substr(1, kIdLength), made.substr(1 + kIdLength, kIdLength), state_.step}};
  return "";
}

std::string Saver::failures() {
  const std::vector<std::string> all = world_.gather(failure_);
  // One that all have (a full disk, most often) is said once.
  std::string text;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto first = std::ranges::find(all, all[rank]) - all.begin();
    if (all[rank].empty() || std::cmp_less(first, rank)) continue;
    text += fmt::format("{}rank {}: {}", text.empty() ? "" : "\n", rank, all[rank]);
  }
  return text;
}

// The rank that laid out the file tells the others where their blocks are.
void Saver::share_layout() {
  const std::size_t mine = outline_of(parts_).blocks.size();
  std::string text = group_->rank() == 0 ? shard_.to_text() : "";
  group_->broadcast(text);
  const Manifest all = Manifest::from_text(text, "the layout of a shard");
  const std::int64_t first = group_->exclusive_scan(static_cast<std::int64_t>(mine));
  shard_ = all.part(static_cast<std::size_t>(first), mine);
}

// By the thread, which waits until what it reads is there.
void Saver::write() {
  (options_.in_background ? copied() : launched_).wait();
  write_blocks(*exec_, staging_.path, parts_, shard_, options_.hook);
}

void Saver::start_writing() {
  start(Phase::writing, [this] { write(); });
}

void Saver::start_publishing(const std::vector<std::string>& shards) {
  start(Phase::publishing, [this, shards] {
    if (world_.rank() != 0) return;
    if (options_.before_publish) options_.before_publish();
    saved_ = publish(options_.directory, staging_, state_, manifests_of(shards),
                     {.retention = retention_, .hook = options_.hook});
  });
}

SaveReport Saver::end(std::string error) {
  phase_ = Phase::idle;
  if (!error.empty() && !staging_.path.empty() && world_.rank() == 0) {
    abandon(staging_.path);
  }
  report_.error = std::move(error);
  parts_.clear();
  return report_;
}

std::optional<SaveReport> Saver::advance() {
  if (!is_under_way() || !world_.all(is_done_)) return {};
  thread_.join();
  const double busy = world_.all_reduce(phase_seconds_, comm::Op::max);
  report_.busy_seconds += busy;
  report_.own_seconds += phase_seconds_;
  std::string failed = failures();
  if (!failed.empty()) return end(std::move(failed));
  switch (phase_) {
    case Phase::idle:
      break;
    case Phase::laying_out:
      share_layout();
      start_writing();
      break;
    case Phase::writing:
      start_publishing(world_.gather_to_first(shard_.to_text()));
      break;
    case Phase::publishing:
      report_.bytes = static_cast<std::uint64_t>(
          world_.all_reduce(static_cast<std::int64_t>(saved_.bytes), comm::Op::max));
      report_.path = options_.directory / step_name(state_.step);
      report_.warning = saved_.warning;
      world_.broadcast(report_.warning);
      return end("");
  }
  return {};
}

SaveReport Saver::finish(double timeout) {
  auto begin = Clock::now();
  std::int64_t before = 0;
  while (true) {
    if (auto report = advance()) return *report;
    const std::int64_t progress = world_.all_reduce(std::int64_t{progress_});
    if (progress != before) begin = Clock::now();
    before = progress;
    // Clocks differ, so that the ranks agree on whether the time is over.
    if (timeout > 0.0 && world_.any(seconds_since(begin) > timeout)) give_up(timeout);
    std::this_thread::sleep_for(kPatience);
  }
}

void Saver::give_up(double timeout) {
  has_given_up_ = true;
  const std::vector<std::int64_t> done = world_.gather(std::int64_t{is_done_});
  std::string ranks;
  for (std::size_t rank = 0; rank < done.size(); ++rank) {
    if (done[rank] == 0) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
  }
  throw Error(
      fmt::format("the checkpoint of step {} is still being written after {:.0f} s in "
                  "'{}', by rank {}: "
                  "does the file system hang? (The limit is run.hang_timeout.)",
                  state_.step, timeout, options_.directory.string(), ranks));
}

}  // namespace trireme::ckpt
