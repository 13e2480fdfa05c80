// comm/board_format.hpp — the bytes of a board file, for its writer and its readers.
#ifndef TRIREME_COMM_BOARD_FORMAT_HPP_
#define TRIREME_COMM_BOARD_FORMAT_HPP_

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/descriptor.hpp"

namespace trireme::comm {

inline constexpr const char* kBoardPrefix = "ranks.";
inline constexpr std::uint32_t kMostSlots = 1u << 16;

struct BoardHeader {
  static constexpr char kMagic[8] = {'T', 'R', 'I', 'R', 'A', 'N', 'K', '2'};
  char magic[8] = {'T', 'R', 'I', 'R', 'A', 'N', 'K', '2'};
  std::uint32_t slots = 0;
  std::uint32_t ranks = 0;  // of the run
  char host[240] = {};

  bool is_valid() const {
    return std::memcmp(magic, kMagic, sizeof(magic)) == 0 && slots >= 1 &&
           slots <= kMostSlots && slots <= ranks && host[sizeof(host) - 1] == '\0';
  }
};

// A rank's own lines of the cache: nobody else writes there.
struct BoardSlot {
  std::atomic<std::uint32_t> version;  // odd while it is written
  std::uint32_t activity;
  std::int32_t rank, process, peer, spare;
  std::int64_t since;  // ns since 1970
  std::atomic<std::int64_t> last_sign;
  std::int64_t sequence, elements;
  char operation[40], group[56], site[104];
};

// One communicator of a rank, as far as its device is: what it says of an operation is of
// the oldest that has not ended.
struct BoardLane {
  std::uint64_t key;          // the same on all ranks of the communicator
  std::int64_t begun, ended;  // operations
  std::int64_t since;  // ns since 1970; where the device is at the operation, else 0
  std::int64_t elements;
  std::int32_t peer, spare;
  char operation[16], group[24], site[56];
};

// What the device of a rank does. The thread that watches it is the only one to write
// here.
struct BoardDevice {
  static constexpr std::uint32_t kMostLanes = 16;
  std::atomic<std::uint32_t> version;  // odd while it is written
  std::uint32_t lanes;
  std::int64_t spare;
  BoardLane lane[kMostLanes];
};

static_assert(sizeof(BoardHeader) == 256 && sizeof(BoardSlot) == 256 &&
              sizeof(BoardLane) == 144 && sizeof(BoardDevice) == 2320);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::int64_t>::is_always_lock_free);

// The header, all slots, and then as many devices.
inline std::size_t slot_place(std::uint32_t slot) {
  return sizeof(BoardHeader) + sizeof(BoardSlot) * slot;
}
inline std::size_t device_place(std::uint32_t slots, std::uint32_t slot) {
  return slot_place(slots) + sizeof(BoardDevice) * slot;
}
inline std::size_t board_bytes(std::uint32_t slots) {
  return device_place(slots, slots);
}

// At a path of its own flags; not open where the file cannot be opened (errno).
struct OpenFile : Descriptor {
  OpenFile(const std::filesystem::path& path, int flags)
      : Descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  // Reads all of the bytes, or returns false.
  bool read_at(std::size_t place, void* data, std::size_t bytes) const {
    return ::pread(*this, data, bytes, static_cast<off_t>(place)) ==
           static_cast<ssize_t>(bytes);
  }
};

// What is called like a board, in the order of names; with its beginning (is_board) it is
// one.
std::vector<std::filesystem::path> board_files(const std::filesystem::path& directory);
bool is_board(const std::filesystem::path& file);

}  // namespace trireme::comm

#endif  // TRIREME_COMM_BOARD_FORMAT_HPP_
