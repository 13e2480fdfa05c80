// kernels/impl/rows.hpp — kernels that work on rows of a matrix: one thread per row on
// the host, one team per row on a GPU, written once.
//
// A row kernel is a KOKKOS_LAMBDA (const RowTeam& team, index_t row); inside it loops
// over columns go through the functions below. On the host they are plain loops that g++
// vectorises; sums run in kLanes interleaved partial sums (column j goes to lane
// j % kLanes), combined in a fixed tree: the same bits for every number of threads,
// alignment and vector length. What a team's threads do instead: impl/team_lanes.hpp,
// and how they join sums: impl/team_row.hpp.
#ifndef TRIREME_KERNELS_IMPL_ROWS_HPP_
#define TRIREME_KERNELS_IMPL_ROWS_HPP_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "base/plural.hpp"
#include "kernels/impl/team_row.hpp"

// Before a loop whose iterations are independent although the compiler cannot see it (an
// output may alias an input of the same index).
#if defined(__GNUC__) && !defined(__CUDACC__) && !defined(__clang__)
#define TRIREME_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#else
#define TRIREME_INDEPENDENT_ITERATIONS
#endif

// Asks for the cache line of an address, which need not exist.
#if defined(__GNUC__) && !defined(__CUDA_ARCH__)
#define TRIREME_PREFETCH(address) __builtin_prefetch(address)
#else
#define TRIREME_PREFETCH(address)
#endif

namespace trireme::kernels {

// Whether a row is a team's, as on a GPU. Tests compile kernels once more so on a host,
// where what a GPU's threads do is held against the same references.
#if defined(TRIREME_ROWS_BY_TEAMS)
inline constexpr bool kRowsByTeams = true;
#else
inline constexpr bool kRowsByTeams = !kHostExecution;
#endif

struct HostRow {};
using RowTeam = std::conditional_t<kRowsByTeams, TeamRow, HostRow>;

inline constexpr int kLanes = 32;
inline constexpr int kPieceColumns = 8;  // that a thread of a GPU has side by side

// Of a team. Kernels over double take up to 228 registers, those over other types at most
// 128, and a multiprocessor has 65536.
template <class T>
inline constexpr int kMostThreadsOver = sizeof(T) == sizeof(double) ? kRowThreads
                                                                    : kMostRowThreads;

// What a GPU's teams are made for: rows of so many columns. They have whole pieces, of 16
// bytes or more, where every array begins, and every row goes on, at a multiple of 16.
struct ColumnsOfRows {
  index_t count = index_t{kRowThreads} * kPieceColumns;
  bool has_pieces = false;
  int most_threads = kRowThreads;  // of a team
  int pieces_each = 1;             // of a thread, where there are threads enough

  ColumnsOfRows() = default;
  template <class... Arrays>
  explicit ColumnsOfRows(index_t columns, const Arrays*... arrays)
      : count(columns),
        has_pieces(columns % kPieceColumns == 0),
        most_threads(std::min({kMostThreadsOver<Arrays>...})) {
    const auto begins_at_piece = [](const void* array) {
      return reinterpret_cast<std::uintptr_t>(array) % 16 == 0;
    };
    has_pieces = has_pieces && (begins_at_piece(arrays) && ...);
  }
  // Rows are cut in tiles of so many columns.
  ColumnsOfRows in_tiles(index_t tile) const {
    ColumnsOfRows columns = *this;
    columns.count = std::min(count, tile);
    return columns;
  }
  // Threads keep so many pieces of a row in registers: a row has few threads then, and
  // what they join takes less of its time.
  ColumnsOfRows held(int pieces) const {
    ColumnsOfRows columns = *this;
    columns.pieces_each = pieces;
    return columns;
  }
  // Whole warps, in which each thread has a piece, or some; of longest rows, more.
  int threads() const {
    const index_t each = has_pieces ? pieces_each * kPieceColumns : 1;
    const index_t warps = (count + kWarp * each - 1) / (kWarp * each);
    const index_t most = has_pieces ? most_threads : kRowThreads;
    return static_cast<int>(std::clamp(kWarp * warps, index_t{kWarp}, most));
  }
  // 0 where rows are not made of pieces.
  index_t pieces_of_thread() const {
    const index_t of_threads = index_t{threads()} * kPieceColumns;
    return has_pieces ? (count + of_threads - 1) / of_threads : 0;
  }
};
// Elements that one row of a flat array is taken to have: long enough to stream, short
// enough that there are rows for every thread.
inline constexpr index_t kFlatBlock = 16384;

// Work items that cover `columns` in tiles, and the columns of one of them.
KOKKOS_FORCEINLINE_FUNCTION index_t tiles_of(index_t columns, index_t tile) {
  return (columns + tile - 1) / tile;
}
KOKKOS_FORCEINLINE_FUNCTION index_t tile_width(index_t columns, index_t begin,
                                               index_t tile) {
  return columns - begin < tile ? columns - begin : tile;
}

namespace detail {

// Threads of a team on a host, for tests: two, so that a barrier that is missing shows.
inline constexpr int kHostTeam = 2;

template <class Body>
struct HostRows {
  Body body;
  KOKKOS_FORCEINLINE_FUNCTION void operator()(index_t row) const { body(HostRow{}, row); }
};

// How many pieces threads hold is known to the compiler, or it takes the registers that
// the most would need. 0: a row may have any number.
template <class Body, int kHeld>
struct TeamRows {
  Body body;
  bool has_pieces;
  KOKKOS_FORCEINLINE_FUNCTION void operator()(const TeamMember& member) const {
    body(TeamRow{member, has_pieces, kHeld, member.team_rank(), member.team_size(),
                 memory_to_reduce(member)},
         static_cast<index_t>(member.league_rank()));
  }
};

// Each warp of a team has a row. Teams of several warps, since a multiprocessor runs no
// more than 32 blocks at a time.
inline constexpr int kWarpsOfTeam = 4;
template <class Body, int kHeld>
struct WarpRows {
  Body body;
  index_t rows;
  KOKKOS_FORCEINLINE_FUNCTION void operator()(const TeamMember& member) const {
    const int rank = member.team_rank() % kWarp;
    index_t row = kWarpsOfTeam * static_cast<index_t>(member.league_rank()) +
                  member.team_rank() / kWarp;
    if constexpr (!kHostExecution) {
      if (row < rows) body(TeamRow{member, true, kHeld, rank, kWarp, nullptr}, row);
    } else {  // a team has fewer threads
      const index_t end = kWarpsOfTeam * (member.league_rank() + 1);
      for (; row < rows && row < end; row += member.team_size()) {
        body(TeamRow{member, true, kHeld, rank, kWarp, nullptr}, row);
      }
    }
  }
};

// Folds the lanes onto lane 0.
template <class A, class Join>
KOKKOS_FORCEINLINE_FUNCTION A combine_lanes(A* lanes, const Join& join) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] = join(lanes[l], lanes[l + half]);
  }
  return lanes[0];
}

template <class A>
struct Plus {
  KOKKOS_FORCEINLINE_FUNCTION A operator()(A a, A b) const { return a + b; }
};
template <class A>
struct Larger {
  KOKKOS_FORCEINLINE_FUNCTION A operator()(A a, A b) const { return b > a ? b : a; }
};

template <class A, class Join, class Value>
KOKKOS_FORCEINLINE_FUNCTION A reduce_on_host(index_t count, A identity, const Join& join,
                                             const Value& value) {
  A lanes[kLanes];
  for (int l = 0; l < kLanes; ++l) lanes[l] = identity;
  index_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] = join(lanes[l], value(j + l));
  }
  for (int l = 0; j + l < count; ++l) lanes[l] = join(lanes[l], value(j + l));
  return combine_lanes(lanes, join);
}

}  // namespace detail

// body(team, row) for row in [0, rows). `kernel` is a label, or {label, cost}. Without
// `columns` a GPU's threads have single ones. A team has so much scratch memory.
template <class Body>
void launch_rows(const Exec& exec, const Kernel& kernel, index_t rows,
                 const ColumnsOfRows& columns, const Body& body,
                 std::size_t scratch_bytes = 0) {
  if constexpr (!kRowsByTeams) {
    launch(exec, kernel, rows, detail::HostRows<Body>{body});
  } else {
    launch_teams(exec, kernel, rows, columns.threads(),
                 detail::TeamRows<Body, 0>{body, columns.has_pieces},
                 detail::kReduceScratch + scratch_bytes, detail::kHostTeam);
  }
}
template <class Body>
void launch_rows(const Exec& exec, const Kernel& kernel, index_t rows, const Body& body) {
  launch_rows(exec, kernel, rows, ColumnsOfRows(), body);
}

namespace detail {

// Threads and teams of a multiprocessor that leave a thread so many registers as nvcc
// needs for what a warp's threads hold, without memory: 80 and 96 for numbers of 16 bits.
template <class T, int kHeld>
using BoundsOfWarps = Kokkos::LaunchBounds < 32 * kWarpsOfTeam,
      sizeof(T) == 8   ? 2
      : sizeof(T) == 4 ? 4
                       : kHeld<4 ? 6 : 5>;

// As launch_rows() has them, with registers for as many threads as a team may have.
template <class T, int kHeld, class Body>
void launch_bounded_rows(const Exec& exec, const Kernel& kernel, index_t rows,
                         const ColumnsOfRows& columns, const Body& body) {
  if constexpr (kRowsByTeams) {
    launch_teams<Kokkos::LaunchBounds<kMostThreadsOver<T>, 1>>(
        exec, kernel, rows, columns.threads(),
        TeamRows<Body, kHeld>{body, columns.has_pieces}, kReduceScratch, kHostTeam);
  } else {
    launch_rows(exec, kernel, rows, columns, body);
  }
}

template <class T, int kHeld, class Body>
void launch_held(const Exec& exec, const Kernel& kernel, index_t rows,
                 const ColumnsOfRows& columns, const Body& body) {
  if (columns.threads() > kWarp) {
    launch_bounded_rows<T, kHeld>(exec, kernel, rows, columns, body);
  } else {
    launch_teams<BoundsOfWarps<T, kHeld>>(
        exec, kernel, tiles_of(rows, kWarpsOfTeam), kWarpsOfTeam * kWarp,
        WarpRows<Body, kHeld>{body, rows}, 0, kHostTeam);
  }
}

// With as many pieces as a thread has, if that is kMost or less.
template <class T, int kMost, class Body>
void launch_held_or_not(const Exec& exec, const Kernel& kernel, index_t rows,
                        const ColumnsOfRows& columns, const Body& body) {
  if constexpr (kRowsByTeams && kMost > 0) {
    if (columns.pieces_of_thread() == kMost) {
      launch_held<T, kMost>(exec, kernel, rows, columns, body);
    } else {
      launch_held_or_not<T, kMost - 1>(exec, kernel, rows, columns, body);
    }
  } else {
    launch_bounded_rows<T, 0>(exec, kernel, rows, columns, body);
  }
}

}  // namespace detail

// The same for rows of T of which a GPU's threads hold up to kMost pieces in registers
// (TeamRow::held). A warp has one, where it fits, so that there are no barriers in the
// body for rows that are held.
template <class T, int kMost, class Body>
void launch_held_rows(const Exec& exec, const Kernel& kernel, index_t rows,
                      const ColumnsOfRows& columns, const Body& body) {
  detail::launch_held_or_not<T, kMost>(exec, kernel, rows, columns.held(kMost), body);
}

// Threads of a multiprocessor that have 96 registers each, and 64: five warps of each of
// its four parts, and eight.
inline constexpr int kThreadsOfRows = 640;
inline constexpr int kThreadsOfTiles = 1024;

// body(team, block) for blocks of rows of T, or of a tile of each, that a GPU's team
// walks. A thread holds one piece of each row, unless there are too many.
template <class T, int kThreadsAtOnce, class Body>
void launch_held_blocks(const Exec& exec, const Kernel& kernel, index_t blocks,
                        const ColumnsOfRows& columns, const Body& body) {
  if constexpr (kRowsByTeams) {
    if (columns.pieces_of_thread() == 1) {
      constexpr int kBound = sizeof(T) == 2 ? kThreadsAtOnce : kMostThreadsOver<T>;
      launch_teams<Kokkos::LaunchBounds<kBound, 1>>(
          exec, kernel, blocks, columns.threads(),
          detail::TeamRows<Body, 1>{body, columns.has_pieces}, detail::kReduceScratch,
          detail::kHostTeam);
      return;
    }
  }
  detail::launch_bounded_rows<T, 0>(exec, kernel, blocks, columns, body);
}

// What is read at column j, as a number to count with, and what is written there.
template <class A, class T>
KOKKOS_FORCEINLINE_FUNCTION A read(const T* row, index_t j) {
  return static_cast<A>(row[j]);
}
template <class T, class A>
KOKKOS_FORCEINLINE_FUNCTION void write(T* row, index_t j, A value) {
  row[j] = static_cast<T>(value);
}

// The team of a run of elements that begins somewhere in each of some arrays.
template <class... Arrays>
KOKKOS_FORCEINLINE_FUNCTION HostRow team_of_run(const HostRow& team, const Arrays*...) {
  return team;
}
template <class... Arrays>
KOKKOS_FORCEINLINE_FUNCTION TeamRow team_of_run(const TeamRow& team,
                                                const Arrays*... arrays) {
  TeamRow of_run = team;
  of_run.has_pieces = ((reinterpret_cast<std::uintptr_t>(arrays) % 16 == 0) && ...);
  return of_run;
}

// body(j) for j in [0, count), in any order.
template <class Body>
KOKKOS_FORCEINLINE_FUNCTION void for_each_column(const HostRow&, index_t count,
                                                 const Body& body) {
  TRIREME_INDEPENDENT_ITERATIONS
  for (index_t j = 0; j < count; ++j) body(j);
}
template <class Body>
KOKKOS_FORCEINLINE_FUNCTION void for_each_column(const TeamRow& team, index_t count,
                                                 const Body& body) {
  for (index_t j = team.rank; j < count; j += team.size) body(j);
}

// How far ahead of its place, in bytes, a pass over memory asks for what it will read. A
// core whose arithmetic keeps its window short has too few reads under way by itself:
// squares summed in double ran at half the bandwidth, AdamW at 0.85 of it. From 2 KiB on
// all distances are alike.
inline constexpr index_t kReadAhead = 4096;

// Asks for what kCount elements from this one on will be read from, kReadAhead later.
// The count is known to the compiler: a loop that it cannot unroll here costs it the
// registers of the sums around it.
template <index_t kCount, class T>
KOKKOS_FORCEINLINE_FUNCTION void ask_ahead(const T* data) {
  constexpr auto kLine = static_cast<index_t>(64 / sizeof(T));
  [[maybe_unused]] constexpr auto kAhead = static_cast<index_t>(kReadAhead / sizeof(T));
  for (index_t i = 0; i < kCount; i += kLine) TRIREME_PREFETCH(data + kAhead + i);
}

// for_each_column of arrays that no cache has. ask(j) asks ahead for kStreamPiece
// elements of each from j on: so many that compilers make vectors of the loop over them
// and do not unroll it whole.
inline constexpr index_t kStreamPiece = 256;
template <class Ask, class Body>
KOKKOS_FORCEINLINE_FUNCTION void for_each_streamed(const HostRow&, index_t count,
                                                   const Ask& ask, const Body& body) {
  for (index_t begin = 0; begin < count; begin += kStreamPiece) {
    ask(begin);
    const index_t end = count - begin < kStreamPiece ? count : begin + kStreamPiece;
    TRIREME_INDEPENDENT_ITERATIONS
    for (index_t j = begin; j < end; ++j) body(j);
  }
}
KOKKOS_FORCEINLINE_FUNCTION void team_barrier(const HostRow&) {}

// Sum of value(j) over j in [0, count), known to the whole team.
template <class A, class Value>
KOKKOS_FORCEINLINE_FUNCTION A sum_columns(const HostRow&, index_t count,
                                          const Value& value) {
  return detail::reduce_on_host(count, A{0}, detail::Plus<A>{}, value);
}
template <class A, class Value>
KOKKOS_FORCEINLINE_FUNCTION A sum_columns(const TeamRow& team, index_t count,
                                          const Value& value) {
  detail::Sums<A, 1> own;
  for (index_t j = team.rank; j < count; j += team.size) own.of[0] += value(j);
  return detail::reduce(team, own).of[0];
}

// sum_columns of value(data[j]), for data that no cache has.
template <class A, class T, class Value>
KOKKOS_FORCEINLINE_FUNCTION A sum_streamed(const HostRow&, const T* data, index_t count,
                                           const Value& value) {
  A lanes[kLanes] = {};
  index_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    ask_ahead<kLanes>(data + j);
    for (int l = 0; l < kLanes; ++l) lanes[l] += value(data[j + l]);
  }
  for (int l = 0; j + l < count; ++l) lanes[l] += value(data[j + l]);
  return detail::combine_lanes(lanes, detail::Plus<A>{});
}
// Sums of both values that value(j, a, b) sets.
template <class A, class Value>
KOKKOS_FORCEINLINE_FUNCTION void sum_columns_of_two(const HostRow&, index_t count,
                                                    const Value& value, A& total_a,
                                                    A& total_b) {
  A lanes_a[kLanes] = {}, lanes_b[kLanes] = {};
  index_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      A a, b;
      value(j + l, a, b);
      lanes_a[l] += a;
      lanes_b[l] += b;
    }
  }
  for (int l = 0; j + l < count; ++l) {
    A a, b;
    value(j + l, a, b);
    lanes_a[l] += a;
    lanes_b[l] += b;
  }
  total_a = detail::combine_lanes(lanes_a, detail::Plus<A>{});
  total_b = detail::combine_lanes(lanes_b, detail::Plus<A>{});
}
template <class A, class Value>
KOKKOS_FORCEINLINE_FUNCTION void sum_columns_of_two(const TeamRow& team, index_t count,
                                                    const Value& value, A& total_a,
                                                    A& total_b) {
  detail::Sums<A, 2> own;
  for (index_t j = team.rank; j < count; j += team.size) {
    A a, b;
    value(j, a, b);
    own.of[0] += a;
    own.of[1] += b;
  }
  const auto totals = detail::reduce(team, own);
  total_a = totals.of[0];
  total_b = totals.of[1];
}

// Largest value(j); minus infinity where count is 0. NaN is passed over.
template <class A, class Value>
KOKKOS_FORCEINLINE_FUNCTION A max_columns(const HostRow&, index_t count,
                                          const Value& value) {
  return detail::reduce_on_host(count, -Kokkos::Experimental::infinity_v<A>,
                                detail::Larger<A>{}, value);
}
template <class A, class Value>
KOKKOS_FORCEINLINE_FUNCTION A max_columns(const TeamRow& team, index_t count,
                                          const Value& value) {
  detail::Largest<A> own;
  for (index_t j = team.rank; j < count; j += team.size) own.add(value(j));
  return detail::reduce(team, own).of;
}

// Multiprocessors of the GPU that the build is for: of an H100 or H200, or of an A100. Of
// another one some wait a little for others.
#if defined(KOKKOS_ARCH_AMPERE80)
inline constexpr index_t kMultiprocessors = 108;
#else
inline constexpr index_t kMultiprocessors = 132;
#endif

// Columns that one work item of a sum over rows takes, at most; of the sum over blocks,
// fewer, so that there is work for every thread: a GPU reads memory by 32 bytes.
inline constexpr index_t kColumnTile = kRowsByTeams ? 1024 : 4096;
inline constexpr index_t kCombineTile = kRowsByTeams ? 8 : 256;

// The tile that so many columns are cut in. Those of a GPU are alike, so that no team has
// threads without columns: 1536 are two tiles of 768.
inline index_t column_tile(index_t columns) {
  if constexpr (!kRowsByTeams) return kColumnTile;
  constexpr index_t kOfWarp = kWarp * kPieceColumns;
  const index_t tiles = tiles_of(columns, kColumnTile);
  const index_t even = tiles > 0 ? tiles_of(columns, tiles) : kOfWarp;
  return tiles_of(even, kOfWarp) * kOfWarp;
}

// Rows cut in blocks, for sums over rows: a function of the shape only. A GPU has a block
// walked by one team, and as many blocks as teams run at a time: others would run last,
// alone.
struct RowBlocks {
  static constexpr index_t kMinRows = 16;
  static constexpr index_t kMostTeams = 16;  // of a multiprocessor

  index_t rows, count;

  RowBlocks(index_t row_count, index_t most)
      : rows(row_count),
        count(std::clamp(tiles_of(row_count, kMinRows), index_t{1}, most)) {}
  // A host's are runs of rows. A GPU's teams take the rows in turns, so that all of them
  // together read memory from one end to the other.
  struct Rows {
    index_t begin, end, step;
  };
  KOKKOS_FORCEINLINE_FUNCTION Rows of(index_t block) const {
    if constexpr (kRowsByTeams) return {block, rows, count};
    return {block * rows / count, (block + 1) * rows / count, 1};
  }

  // Where a team has whole rows of so many columns.
  static index_t most_whole(index_t columns) {
    return kRowsByTeams ? teams_at_once(columns, kThreadsOfRows) : 64;
  }
  // Where it has a tile of each.
  static index_t most_tiled(index_t columns) {
    if constexpr (!kRowsByTeams) return 64;
    const index_t tile = column_tile(columns);
    const index_t tiles = std::max(tiles_of(columns, tile), index_t{1});
    return std::max(teams_at_once(tile, kThreadsOfTiles) / tiles, index_t{1});
  }

 private:
  // Of teams in which a thread has a piece of so many columns.
  static index_t teams_at_once(index_t columns, index_t threads_at_once) {
    const index_t warps = std::max(tiles_of(columns, kWarp * kPieceColumns), index_t{1});
    return kMultiprocessors *
           std::clamp(threads_at_once / (kWarp * warps), index_t{1}, kMostTeams);
  }
};

// The rows of one call of a body: begin, begin + step, ... of all. The row that memory
// should be asked for meanwhile is to_next rows behind each.
struct RowsInTurn {
  static constexpr index_t kEach = 4;  // of a GPU's team, or more

  index_t begin, step, to_next;
};

namespace detail {

template <class Body>
struct EachByItself {
  Body body;
  index_t rows;
  template <class Team>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(const Team& team, index_t row) const {
    body(team, RowsInTurn{row, rows, 1});
  }
};
template <class Body>
struct EachInTurn {
  Body body;
  index_t teams;
  template <class Team>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(const Team& team, index_t first) const {
    body(team, RowsInTurn{first, teams, teams});
  }
};

}  // namespace detail

// Of the GPU that there is, where what is computed does not depend on it.
inline index_t multiprocessors_of([[maybe_unused]] const Exec& exec) {
#if defined(KOKKOS_ENABLE_CUDA)
  if (!exec.is_shape_only()) return exec.space().cuda_device_prop().multiProcessorCount;
#endif
  return kMultiprocessors;
}

// body(team, rows_in_turn) for long rows of T, of which a GPU's thread keeps some pieces
// in registers and goes through the others: 64 of them, so that a multiprocessor has two
// teams of the most threads, one of which computes while the other one reads. Each has
// some rows, and can load the next one's pieces while it still works on this one's. Teams
// are as many as run at a time, or a multiple of it: where another kernel has some of the
// multiprocessors, the rest shares out what is left.
template <class T, class Body>
void launch_kept_rows(const Exec& exec, const Kernel& kernel, index_t rows,
                      const ColumnsOfRows& columns, const Body& body) {
  if constexpr (kRowsByTeams && sizeof(T) == 2) {
    const index_t of_multiprocessor =
        std::min(kThreadsOfTiles / index_t{columns.threads()}, RowBlocks::kMostTeams);
    // For tests, a host has few, so that each has several rows.
    const index_t at_once =
        kHostExecution ? 2 : of_multiprocessor * multiprocessors_of(exec);
    const index_t times = std::max(rows / (RowsInTurn::kEach * at_once), index_t{1});
    const index_t teams = std::min(rows, times * at_once);
    launch_teams<Kokkos::LaunchBounds<kThreadsOfTiles, 1>>(
        exec, kernel, teams, columns.threads(),
        detail::TeamRows<detail::EachInTurn<Body>, 0>{{body, teams}, columns.has_pieces},
        detail::kReduceScratch, detail::kHostTeam);
  } else {
    launch_rows(exec, kernel, rows, columns, detail::EachByItself<Body>{body, rows});
  }
}

// sums[j] += term_of(row)(column_begin + j) for rows in order and j in [0, width).
// term_of(row) returns the row's function of the column.
template <class A, class TermOf>
KOKKOS_FORCEINLINE_FUNCTION void add_rows(const HostRow&, const RowBlocks::Rows& rows,
                                          index_t column_begin, index_t width, A* sums,
                                          const TermOf& term_of) {
  index_t row = rows.begin;
  for (; row + 4 <= rows.end;
       row += 4) {  // four rows at a time: sums[j] is stored less often
    const auto t0 = term_of(row), t1 = term_of(row + 1);
    const auto t2 = term_of(row + 2), t3 = term_of(row + 3);
    TRIREME_INDEPENDENT_ITERATIONS
    for (index_t j = 0; j < width; ++j) {
      const index_t c = column_begin + j;
      sums[j] += (t0(c) + t1(c)) + (t2(c) + t3(c));
    }
  }
  for (; row < rows.end; ++row) {
    const auto term = term_of(row);
    TRIREME_INDEPENDENT_ITERATIONS
    for (index_t j = 0; j < width; ++j) sums[j] += term(column_begin + j);
  }
}
// sums[j] = the same sum.
template <class Team, class A, class TermOf>
KOKKOS_FORCEINLINE_FUNCTION void sum_block(const Team& team, const RowBlocks::Rows& rows,
                                           index_t column_begin, index_t width, A* sums,
                                           const TermOf& term_of) {
  for_each_column(team, width, [=](index_t j) { sums[j] = A{0}; });
  team_barrier(team);
  add_rows(team, rows, column_begin, width, sums, term_of);
}

// Of a GPU's team that runs combine_rows(): partial sums of its threads.
template <class A>
inline constexpr std::size_t kCombineScratch = kRowsByTeams ? kRowThreads * sizeof(A) : 0;

// sums[j] += the sum over all rows, or = where it does not add. Sums of 16 bits are taken
// in float and rounded once. At most kCombineTile columns.
template <class G, class TermOf>
KOKKOS_FORCEINLINE_FUNCTION void combine_rows(const HostRow& team, bool adds,
                                              index_t rows, index_t column_begin,
                                              index_t width, G* sums,
                                              const TermOf& term_of) {
  using A = Accumulator<G>;
  if constexpr (!std::is_same_v<G, A>) {
    for_each_column(team, width, [=](index_t j) {
      A sum = adds ? static_cast<A>(sums[j]) : A{0};
      for (index_t row = 0; row < rows; ++row) sum += term_of(row)(column_begin + j);
      sums[j] = static_cast<G>(sum);
    });
  } else if (adds) {
    add_rows(team, {0, rows, 1}, column_begin, width, sums, term_of);
  } else {
    sum_block(team, {0, rows, 1}, column_begin, width, sums, term_of);
  }
}

// Throws unless a View has the expected shape.
template <class View>
void require_extents(const char* kernel, const char* name, const View& view, index_t rows,
                     index_t columns) {
  TRIREME_REQUIRE(static_cast<index_t>(view.extent(0)) == rows &&
                      static_cast<index_t>(view.extent(1)) == columns,
                  "kernels::{}: {} is ({}, {}), expected ({}, {})", kernel, name,
                  view.extent(0), view.extent(1), rows, columns);
}
template <class View>
void require_extent(const char* kernel, const char* name, const View& view,
                    index_t count) {
  TRIREME_REQUIRE(static_cast<index_t>(view.extent(0)) == count,
                  "kernels::{}: {} has {}, expected {}", kernel, name,
                  format_plural(view.extent(0), "element"), count);
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_ROWS_HPP_
