// comm/operation_board.hpp — what each rank is doing, kept where others can read it: also
// after it was killed.
//
// Each node has a small file `ranks.<host>` in the run directory, with a slot for each of
// its ranks, mapped by them all. A rank notes an operation there with a few stores and no
// system call. The kernel keeps what was stored, whatever becomes of the process; only a
// node that goes down takes the last seconds along. Readers are the rank that gives up
// waiting (run.hang_timeout) and the next start in the same directory. Files of other
// nodes are as new as the file system has them. A file that is cut, or that its disk does
// not take any more, is given up and said to be lost: the run goes on without.
#ifndef TRIREME_COMM_OPERATION_BOARD_HPP_
#define TRIREME_COMM_OPERATION_BOARD_HPP_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/mapping_guard.hpp"
#include "comm/communicator.hpp"

namespace trireme::comm {

struct BoardDevice;
struct BoardSlot;

enum class RankActivity : std::uint32_t { computing, waiting, done, failed };

class OperationBoard {
 public:
  using Clock = std::chrono::steady_clock;

  struct Operation {
    const char* name = "";
    Site site = "";
    const char* group = "";
    std::int64_t sequence = 0;  // of the group's calls that all its ranks make
    index_t elements = 0;
    int peer = -1;  // of a message between two ranks
  };

  // How far the device is with the messages of one communicator. What it says of an
  // operation is of the oldest that has not ended, where fewer have ended than begun.
  struct DeviceLane {
    std::uint64_t key = 0;  // the same on all ranks of the communicator, and on no other
    const char* group = "";
    std::int64_t begun = 0, ended = 0;  // operations of this rank
    const char* operation = "";
    Site site = "";
    index_t elements = 0;
    int peer = -1;            // of a message between two ranks: the other, of the world
    bool is_running = false;  // the device is at it, and was so at `since`
    Clock::time_point since{};
  };

  // A file for `slots` ranks of this host; replaces what has this name.
  static void create_file(const std::filesystem::path& file, const std::string& host,
                          int slots, int ranks);
  // Takes a slot of such a file. Error where it cannot be mapped.
  OperationBoard(const std::filesystem::path& file, int slot, int rank);
  ~OperationBoard();  // leaves the slot as it is: only end() is an end
  OperationBoard(const OperationBoard&) = delete;
  OperationBoard& operator=(const OperationBoard&) = delete;

  void enter(const Operation& operation, Clock::time_point now) noexcept;
  void leave(Clock::time_point now) noexcept;
  // The process lives: while it waits, and now and then while it does not.
  void give_sign(Clock::time_point now) noexcept;
  void end(bool clean) noexcept;
  // What the device is at; for the one thread that watches it, beside what the rank's own
  // thread notes.
  void note_device(const std::vector<DeviceLane>& lanes) noexcept;
  // Once, to the first rank of the host: that the file is lost, for a warning. Empty
  // where it is not.
  std::string take_loss();

  // For a rank that gives up: the first one of all prints what every rank is doing to
  // stderr, and writes it to kHangName in the run directory. Comes back after seconds
  // even where the file system does not answer.
  void report_hang(double waited) const noexcept;
  // Of an operation that does not end, as a sentence: which ranks of its communicator
  // have not begun it, or begun another one, and what they do. Comes back after seconds
  // as well.
  std::string late_ranks(const DeviceLane& lane) const noexcept;

 private:
  std::int64_t wall(Clock::time_point time) const noexcept;
  template <class Write>
  void change(const Write& write) noexcept;

  std::filesystem::path file_;
  std::string host_;
  int rank_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  MappingGuard guard_;
  BoardSlot* slot_ = nullptr;
  BoardDevice* device_ = nullptr;
  bool tells_loss_ = false;
  std::int64_t wall_offset_ = 0;  // of the wall clock to Clock, ns
};

inline constexpr const char* kHangName = "ranks.hang";

// Collective over the world: makes the files of a run in its directory anew, one per
// host, and takes a slot for every rank. A rank whose file cannot be made or mapped goes
// without, and the note (on every rank; empty: none) says why.
struct OpenedBoard {
  std::shared_ptr<OperationBoard> board;
  std::string note;
};
OpenedBoard open_board(Communicator& world, const std::filesystem::path& directory,
                       const std::string& host);

// A communicator of a rank's device as it was read; OperationBoard::DeviceLane says more.
struct LaneState {
  std::uint64_t key = 0;
  std::int64_t begun = 0, ended = 0;
  double since = 0.0;  // 0: the device is not at the operation
  std::string group, operation, site;
  index_t elements = 0;
  int peer = -1;
};

// A slot as it was read. Times are seconds since 1970.
struct RankState {
  int rank = 0;
  int ranks = 1;  // of the run
  int process = 0;
  std::string host;
  RankActivity activity = RankActivity::computing;
  double since = 0.0;
  double last_sign = 0.0;              // of life; at least `since`
  std::string group, operation, site;  // the last ones, where it is in none now
  std::int64_t sequence = 0;
  index_t elements = 0;
  int peer = -1;
  std::vector<LaneState> lanes;  // of its device
};
struct BoardReading {
  std::vector<RankState> ranks;       // ascending
  std::vector<std::string> problems;  // files that are no boards or damaged
};
BoardReading read_boards(const std::filesystem::path& directory);

// What keeps this rank's operation on a communicator from ending, see
// OperationBoard::late_ranks; `now` in seconds since 1970.
std::string describe_late(const BoardReading& reading, int rank,
                          const OperationBoard::DeviceLane& lane, double now);

// "rank 3 (process 4711 on host): in all_reduce 'row-parallel output' of group tensor
// (call 17, 4096 elements), since 12.4 s".
std::string describe_now(const RankState& state, double now);
// Describes what a rank did in a run that is over: "..., since 2025-03-01T12:30:05Z".
std::string describe_past(const RankState& state);

// What the run that used the directory before left unfinished, for the log: nothing where
// every rank ended cleanly or nothing is there. At most 8 ranks and how many more; those
// first that stopped first.
std::vector<std::string> unclean_ends(const std::filesystem::path& directory);

}  // namespace trireme::comm

#endif  // TRIREME_COMM_OPERATION_BOARD_HPP_
