// comm/operation_board.cpp — the file, its slots, and the writer's side; readers are in
// operation_board_reader.cpp.
//
// A slot has one writer and takes no lock: its version is odd while the writer is at it,
// and readers read again until they see the same even version before and after (a
// seqlock). A reader thus never delays a rank, and a rank that is killed in the middle of
// a change leaves an odd version behind, which readers take as it is. Every byte of the
// file is written before it is mapped, so that a full disk is met by write(), which
// returns an error, and not by a store, which would raise SIGBUS.
#include "comm/operation_board.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/plural.hpp"
#include "base/temporary_name.hpp"
#include "comm/board_format.hpp"

namespace trireme::comm {

namespace fs = std::filesystem;

namespace {

// No system has smaller ones.
constexpr std::size_t kLeastPageBytes = 4096;

std::string system_text(const char* what, const fs::path& path, int error) {
  return fmt::format("cannot {} '{}': {}", what, path.string(),
                     std::generic_category().message(error));
}

void require_open(const OpenFile& file, const fs::path& path) {
  if (!file.is_open()) throw Error(system_text("open", path, errno));
}

std::int64_t since_epoch(OperationBoard::Clock::time_point time) {
  using std::chrono::duration_cast, std::chrono::nanoseconds;
  return duration_cast<nanoseconds>(time.time_since_epoch()).count();
}

// Copies a text, cut to the room there is, with the zero at its end.
template <std::size_t N>
void put(char (&field)[N], const char* text) noexcept {
  const std::size_t length = ::strnlen(text, N - 1);
  std::memcpy(field, text, length);
  field[length] = '\0';
}

}  // namespace

void OperationBoard::create_file(const fs::path& file, const std::string& host, int slots,
                                 int ranks) {
  BoardHeader header;
  header.slots = static_cast<std::uint32_t>(slots);
  header.ranks = static_cast<std::uint32_t>(ranks);
  host.copy(header.host, sizeof(header.host) - 1);
  // Every byte is written: a disk that is full must be found here and not by a store.
  std::vector<char> content(board_bytes(header.slots));
  std::memcpy(content.data(), &header, sizeof(header));
  const fs::path temporary = temporary_name(file);
  {
    const OpenFile out(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
    require_open(out, temporary);
    const ssize_t written = ::write(out, content.data(), content.size());
    if (written != static_cast<ssize_t>(content.size())) {
      const int error = written < 0 ? errno : ENOSPC;
      ::unlink(temporary.c_str());
      throw Error(system_text("write", temporary, error));
    }
  }
  if (::rename(temporary.c_str(), file.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw Error(system_text("write", file, error));
  }
}

OperationBoard::OperationBoard(const fs::path& file, int slot, int rank)
    : file_(file), rank_(rank), tells_loss_(slot == 0) {
  const OpenFile in(file, O_RDWR);
  require_open(in, file);
  BoardHeader header;
  TRIREME_REQUIRE(in.read_at(0, &header, sizeof(header)) && header.is_valid() &&
                      slot >= 0 && static_cast<std::uint32_t>(slot) < header.slots,
                  "'{}' is no board with a slot {}", file.string(), slot);
  host_ = header.host;
  bytes_ = board_bytes(header.slots);
  memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, in, 0);
  if (memory_ == MAP_FAILED) throw Error(system_text("map", file, errno));
  guard_ = MappingGuard(memory_, bytes_);
  auto* const bytes = static_cast<std::byte*>(memory_);
  const auto number = static_cast<std::uint32_t>(slot);
  slot_ = reinterpret_cast<BoardSlot*>(bytes + slot_place(number));
  device_ = reinterpret_cast<BoardDevice*>(bytes + device_place(header.slots, number));
  const auto now = Clock::now();
  wall_offset_ = std::chrono::duration_cast<std::chrono::nanoseconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count() -
                 since_epoch(now);
  change([&](BoardSlot& mine) {
    mine.rank = rank;
    mine.activity = static_cast<std::uint32_t>(RankActivity::computing);
    mine.since = wall(now);
    mine.process = ::getpid();  // from now on the slot is in use
  });
}

OperationBoard::~OperationBoard() {
  guard_ = MappingGuard();
  ::munmap(memory_, bytes_);
}

std::int64_t OperationBoard::wall(Clock::time_point time) const noexcept {
  return since_epoch(time) + wall_offset_;
}

namespace {

// Readers that find an odd version, or another one after reading, read again.
template <class Part, class Write>
void change_part(Part& part, const Write& write) noexcept {
  const std::uint32_t version = part.version.load(std::memory_order_relaxed);
  part.version.store(version | 1u, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  write(part);
  part.version.store((version | 1u) + 1u, std::memory_order_release);
}

}  // namespace

template <class Write>
void OperationBoard::change(const Write& write) noexcept {
  change_part(*slot_, write);
}

// Of more communicators than there is room for, those that have ended all that was begun
// are left out first.
void OperationBoard::note_device(const std::vector<DeviceLane>& lanes) noexcept {
  change_part(*device_, [&](BoardDevice& mine) {
    mine.lanes = 0;
    for (const bool is_busy : {true, false}) {
      for (const DeviceLane& lane : lanes) {
        if ((lane.begun > lane.ended) != is_busy) continue;
        if (mine.lanes == BoardDevice::kMostLanes) return;
        BoardLane& to = mine.lane[mine.lanes++];
        to.key = lane.key;
        to.begun = lane.begun;
        to.ended = lane.ended;
        to.since = lane.is_running ? wall(lane.since) : 0;
        to.elements = lane.elements;
        to.peer = lane.peer;
        put(to.operation, lane.operation);
        put(to.group, lane.group);
        put(to.site, lane.site);
      }
    }
  });
}

void OperationBoard::enter(const Operation& operation, Clock::time_point now) noexcept {
  change([&](BoardSlot& mine) {
    mine.activity = static_cast<std::uint32_t>(RankActivity::waiting);
    mine.since = wall(now);
    mine.sequence = operation.sequence;
    mine.elements = operation.elements;
    mine.peer = operation.peer;
    put(mine.operation, operation.name);
    put(mine.group, operation.group);
    put(mine.site, operation.site);
  });
}

void OperationBoard::leave(Clock::time_point now) noexcept {
  change([&](BoardSlot& mine) {
    mine.activity = static_cast<std::uint32_t>(RankActivity::computing);
    mine.since = wall(now);
  });
}

void OperationBoard::give_sign(Clock::time_point now) noexcept {
  slot_->last_sign.store(wall(now), std::memory_order_relaxed);
}

void OperationBoard::end(bool clean) noexcept {
  change([&](BoardSlot& mine) {
    mine.activity =
        static_cast<std::uint32_t>(clean ? RankActivity::done : RankActivity::failed);
    mine.since = wall(Clock::now());
  });
}

std::string OperationBoard::take_loss() {
  if (!tells_loss_) return {};
  // The slots of others may lie on pages that this rank does not write to.
  const auto* bytes = static_cast<const volatile std::byte*>(memory_);
  for (std::size_t at = 0; at < bytes_; at += kLeastPageBytes) {
    static_cast<void>(bytes[at]);
  }
  if (!guard_.is_cut()) return {};
  tells_loss_ = false;
  return fmt::format(
      "'{}' was cut short, or its disk fails: what the ranks on {} do will not be known "
      "where the run hangs or they die. Training goes on, and the next start makes it "
      "anew",
      file_.string(), host_);
}

namespace {

fs::path board_path(const fs::path& directory, std::string host) {
  std::replace(host.begin(), host.end(), '/', '_');
  return directory / (kBoardPrefix + host);
}

// Removes the boards of the start before, those of hosts that take no part in this one,
// too.
void remove_boards(const fs::path& directory) {
  std::error_code ignored;
  for (const fs::path& path : board_files(directory)) {
    if (is_board(path)) fs::remove(path, ignored);
  }
  fs::remove(directory / kHangName, ignored);
}

template <class Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

OpenedBoard open_board(Communicator& world, const fs::path& directory,
                       const std::string& host) {
  const std::vector<std::string> hosts = world.gather(host);
  const auto begin = hosts.begin();
  const int slot = static_cast<int>(std::count(begin, begin + world.rank(), host));
  const int slots = static_cast<int>(std::count(begin, hosts.end(), host));
  const fs::path file = board_path(directory, host);
  if (world.rank() == 0) remove_boards(directory);
  world.barrier();
  std::string error;
  if (slot == 0) {
    error =
        error_of([&] { OperationBoard::create_file(file, host, slots, world.size()); });
  }
  world.barrier();
  OpenedBoard opened;
  if (error.empty()) {
    error = error_of([&] {
      opened.board = std::make_shared<OperationBoard>(file, slot, world.rank());
    });
  }
  int without = 0;
  for (const std::string& other : world.gather(error)) {
    if (other.empty()) continue;
    if (without++ == 0) opened.note = other;
  }
  if (without > 0) {
    opened.note = fmt::format(
        "what is done on {} of {} will not be known where the run hangs or they die: {}",
        without, format_plural(world.size(), "rank"), opened.note);
  }
  return opened;
}

}  // namespace trireme::comm
