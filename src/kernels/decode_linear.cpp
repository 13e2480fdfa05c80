// kernels/decode_linear.cpp — see decode_linear.hpp. By teams: the way of a GPU, which a
// host can take, too.
//
// Of one row of x a warp has so little to do that what counts is how many instructions it
// does one after the other. A team therefore has some rows of W, and deals their columns
// to its warps in turns of 16 bytes a lane: each lane makes of x (a norm, or attention's
// output) just the columns that it multiplies, and keeps them in shared memory, where
// nobody else reads them. The lanes' sums meet there, once for a tile of rows of W; then
// each of its numbers is a warp's. The first turns of W are on their way to registers,
// and more of it, like all that is no product of earlier kernels, to the GPU's cache,
// before the kernel ahead has ended (base/early_start.hpp). With more than one row of x,
// some share what is read of W.
//
// Each number has one order of sums, whatever is multiplied beside it: a lane's columns
// in order, then the warps of the team, then the lanes by halves. On a host a thread has
// all lanes of some warps, and gets the same bits.
#include "kernels/decode_linear.hpp"

#include <algorithm>

#include "base/early_start.hpp"
#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/types.hpp"
#include "kernels/impl/activation.hpp"
#include "kernels/impl/decode_attention.hpp"
#include "kernels/impl/decode_tiles.hpp"
#include "kernels/impl/held_piece.hpp"
#include "kernels/impl/pieces.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/impl/team_row.hpp"
#include "kernels/impl/vector_math.hpp"

namespace trireme::kernels {

namespace {

using impl::HeldPiece;
using impl::hold_piece;
using impl::Piece;

constexpr int kWarpThreads = 32;
constexpr int kWarps = 4;
constexpr int kThreads = kWarpThreads * kWarps;
// A thread of a GPU is one lane of one warp; one of a host is all lanes of some warps.
constexpr int kWarpsHere = kHostExecution ? kWarps : 1;
constexpr int kLanesHere = kHostExecution ? kWarpThreads : 1;

// What a team has of shared memory.
constexpr std::size_t kScratchBytes = std::size_t{46} << 10;
// Up to so many rows of W a team has one at a time, where each has columns enough.
constexpr index_t kFewOut = 2048;
// What a warp asks for ahead of each row of W, in bytes.
constexpr int kAsked = 4 << 10;

// What x is made of.
enum class Made : std::uint8_t { as_it_is, of_norm, of_tiles };

// A warp of a team, and the lanes of it that this thread has, from `lane` on.
struct Warp {
  int rank, lane;

  // body(lane, i), i counting those that are here.
  template <class Body>
  KOKKOS_FORCEINLINE_FUNCTION void for_each_lane(const Body& body) const {
    for (int i = 0; i < kLanesHere; ++i) body(lane + i, i);
  }
  // The sum over all lanes, for each of them: by halves.
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION A sum(const A (&of)[kLanesHere]) const {
#if defined(__CUDA_ARCH__)
    A sum = of[0];
    for (int apart = kWarpThreads / 2; apart > 0; apart /= 2) {
      sum += detail::value_across(sum, apart);
    }
    return sum;
#else
    A sums[kLanesHere];
    for (int i = 0; i < kLanesHere; ++i) sums[i] = of[i];
    for (int apart = kLanesHere / 2; apart > 0; apart /= 2) {
      for (int i = 0; i < apart; ++i) sums[i] += sums[i + apart];
    }
    return sums[0];
#endif
  }
};

template <class Body>
KOKKOS_FORCEINLINE_FUNCTION void for_each_warp(const TeamMember& team, const Body& body) {
  if constexpr (kHostExecution) {
    for (int warp = team.team_rank(); warp < kWarps; warp += team.team_size()) {
      body(Warp{warp, 0});
    }
  } else {
    const auto rank = static_cast<unsigned>(team.team_rank());
    body(Warp{static_cast<int>(rank / kWarpThreads),
              static_cast<int>(rank % kWarpThreads)});
  }
}

template <class T>
struct Input {
  using A = Accumulator<T>;
  const T* rows = nullptr;
  index_t leading = 0;
  const T* gamma = nullptr;
  const T* beta = nullptr;
  A epsilon{}, per_column{};
  impl::TeamTiles<A> tiles = {};
  impl::Divisor head_size = {};
};

template <class T>
struct Output {
  T* y = nullptr;
  index_t leading = 0;
  const T* bias = nullptr;
  const T* residual = nullptr;
  index_t residual_leading = 0;
  T* k = nullptr;
  T* v = nullptr;
  int columns = 0;     // of y; those behind go to k, then to v
  int kv_columns = 0;  // of k, and of v
  bool has_gelu = false;
};

template <class T>
struct Problem {
  CachedTexts texts = {};
  Input<T> input = {};
  Output<T> output = {};
  const T* weight = nullptr;
  int weight_leading = 0;
  int rows = 0, in = 0, out = 0;
};

// Of some columns of a row: sums of their differences from one number, and of squares.
template <class A>
struct RowSums {
  A sum{}, squares{};
  KOKKOS_FORCEINLINE_FUNCTION friend RowSums operator+(const RowSums& a,
                                                       const RowSums& b) {
    return {a.sum + b.sum, a.squares + b.squares};
  }
};

// Of a row: its mean less the pivot, its mean, and its variance.
template <class A>
struct Moments {
  A shift, center, variance;

  // The variance is what is left of a number so many times as large.
  KOKKOS_FORCEINLINE_FUNCTION bool is_lost() const {
    return shift * shift > A{16} * variance;
  }
};

template <class T>
KOKKOS_FORCEINLINE_FUNCTION Accumulator<T> dot(
    const HeldPiece<T>& a, const Accumulator<T> (&b)[Piece<T>::kElements]) {
  using A = Accumulator<T>;
  A sum = a.number(0) * b[0];
  TRIREME_IN_REGISTERS
  for (int e = 1; e < Piece<T>::kElements; ++e) {
    sum = multiply_add(a.number(e), b[e], sum);
  }
  return sum;
}

// kRows: rows of x that a team has; kOut: rows of W at a time; kTurns: of a warp, whose
// loads are under way together. kAligned: rows of every array are whole pieces.
template <class T, Made kMade, int kRows, int kOut, int kTurns, bool kAligned>
struct DecodeLinear {
  using A = Accumulator<T>;
  static constexpr int kElements = Piece<T>::kElements;
  static constexpr int kTurn = kWarpThreads * kElements;  // columns of a warp's turn
  static constexpr int kApart = kWarps * kTurn;           // from one of its turns on
  static constexpr int kRound = kTurns * kApart;
  // Of a tile; each is ended by a warp.
  static constexpr int kNumbers = kRows * kOut;
  static constexpr int kEnds = (kNumbers + kWarps - 1) / kWarps;
  // Teams that a multiprocessor runs together: nvcc takes no more registers than let
  // them, and needs no more.
  static constexpr bool kIsSmall = kNumbers * kTurns <= 4 && sizeof(T) == 2 && kAligned;
  static constexpr int kTeamsAtOnce = sizeof(A) == 8 ? 3 : kIsSmall ? 6 : 4;
  using Bounds = Kokkos::LaunchBounds<kThreads, kTeamsAtOnce>;

  Problem<T> of;
  int row_tiles;  // of x
  int step;  // teams of each; they go on to the next tile, so that x is made less often

  // A team's rows of x, and its scratch memory.
  struct Place {
    int row, rows;     // the first of so many
    T* x;              // (kRows, made_leading()), where it is made
    A* parts;          // (2, kNumbers, kWarps, kWarpThreads)
    RowSums<A>* sums;  // (2, kRows, kWarps)
  };
  // What a lane has of W, of the next round; its sums; and of its first turn, what a norm
  // takes.
  struct Lane {
    HeldPiece<T> held[kTurns][kOut];
    A sum[kOut][kRows];
    HeldPiece<T> gamma, beta;
  };
  // How a warp ends numbers of its tile, and what of the next tile is known.
  struct Ends {
    A bias[kEnds], next_bias[kEnds];
    A beside[kEnds];
    T *result[kEnds], *next_result[kEnds];
  };
  // Of the warps that this thread has a part of.
  struct Held {
    Lane lanes[kWarpsHere][kLanesHere];
    Ends ends[kWarpsHere];
    index_t length;  // of the first text, where x is made of tiles
  };
  KOKKOS_FORCEINLINE_FUNCTION static int here(const Warp& warp) {
    return kHostExecution ? warp.rank : 0;
  }

  explicit DecodeLinear(const Problem<T>& problem)
      : of(problem),
        row_tiles((of.rows + kRows - 1) / kRows),
        step(static_cast<int>(std::min(index_t{out_tiles()},
                                       kMultiprocessors * kTeamsAtOnce / row_tiles))) {}

  index_t teams() const { return index_t{row_tiles} * step; }
  static std::size_t scratch_bytes(index_t in) {
    const index_t made =
        kMade == Made::as_it_is ? 0 : kRows * tiles_of(in, kElements) * kElements;
    return extent(made) * sizeof(T) + kPartsBytes + kSumsBytes + 16;
  }
  static constexpr std::size_t kPartsBytes =
      sizeof(A) * 2 * kNumbers * kWarps * kWarpThreads;
  static constexpr std::size_t kSumsBytes =
      kMade == Made::of_norm ? sizeof(RowSums<A>) * 2 * kRows * kWarps : 0;
  KOKKOS_FUNCTION int made_leading() const {
    return (of.in + kElements - 1) / kElements * kElements;
  }
  KOKKOS_FUNCTION int out_tiles() const { return (of.out + kOut - 1) / kOut; }

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    let_next_start();
    const auto rank = static_cast<int>(team.league_rank());
    const int first = row_tiles == 1 ? rank : rank / row_tiles;
    const int row = row_tiles == 1 ? 0 : (rank - first * row_tiles) * kRows;
    Held held;
    for_each_warp(team, [&](const Warp& warp) {
      begin_tile(warp, row, first, held);
      begin_row(warp, row, held);
      ask_ahead(warp, first);
    });
    const Place place = find_place(team, row);
    wait_for_previous();
    if constexpr (kMade == Made::of_norm) normalize(team, place, held);
    if constexpr (kMade == Made::of_tiles) {
      for_each_warp(team, [&](const Warp& warp) { combine(warp, place, held.length); });
    }
    int turn = 0;
    for (int tile = first; tile < out_tiles(); tile += step) {
      A* const parts = place.parts + turn * (kNumbers * kWarps * kWarpThreads);
      for_each_warp(team, [&](const Warp& warp) {
        multiply(warp, place, tile, parts, held);
        begin_tile(warp, row, tile + step, held);
      });
      // What is left of the tile before lies in the other half.
      team.team_barrier();
      for_each_warp(team,
                    [&](const Warp& warp) { end(warp, parts, held.ends[here(warp)]); });
      turn = 1 - turn;
    }
  }

  KOKKOS_FORCEINLINE_FUNCTION Place find_place(const TeamMember& team, int row) const {
    Place place;
    place.row = row;
    place.rows = of.rows - row < kRows ? of.rows - row : kRows;
    const int made = kMade == Made::as_it_is
                         ? 0
                         : kRows * made_leading() * static_cast<int>(sizeof(T));
    auto* const memory = static_cast<char*>(
        team.team_scratch(scratch_level(1))
            .get_shmem_aligned(made + static_cast<int>(kPartsBytes + kSumsBytes), 16));
    place.x = reinterpret_cast<T*>(memory);
    place.parts = reinterpret_cast<A*>(memory + made);
    place.sums = reinterpret_cast<RowSums<A>*>(memory + made + kPartsBytes);
    return place;
  }

  // The first column of a lane.
  KOKKOS_FORCEINLINE_FUNCTION static int begin_of(const Warp& warp, int lane) {
    return (warp.rank * kWarpThreads + lane) * kElements;
  }
  // A row of W from a column on; behind the last row, the last again.
  KOKKOS_FORCEINLINE_FUNCTION const T* weight_at(int tile, int o, int column) const {
    const int n = tile * kOut + o;
    return of.weight + index_t{n < of.out ? n : of.out - 1} * of.weight_leading + column;
  }
  KOKKOS_FORCEINLINE_FUNCTION void load_round(int tile, int begin,
                                              HeldPiece<T> (&part)[kTurns][kOut]) const {
    TRIREME_IN_REGISTERS
    for (int o = 0; o < kOut; ++o) {
      const T* const row = weight_at(tile, o, begin);
      TRIREME_IN_REGISTERS
      for (int turn = 0; turn < kTurns; ++turn) {
        const int left = of.in - begin - turn * kApart;
        part[turn][o] =
            left > 0 ? hold_piece<kAligned>(row + turn * kApart, left) : HeldPiece<T>{};
      }
    }
  }

  // The numbers that a warp ends: body(e, r, n) for the e-th of them, of row r of x and
  // row n of W.
  template <class Body>
  KOKKOS_FORCEINLINE_FUNCTION static void for_each_end(const Warp& warp, int tile,
                                                       const Body& body) {
    TRIREME_IN_REGISTERS
    for (int e = 0; e < kEnds; ++e) {
      const auto number = static_cast<unsigned>(warp.rank + e * kWarps);
      if (kNumbers % kWarps != 0 && number >= kNumbers) break;
      body(e, static_cast<int>(number / kOut),
           tile * kOut + static_cast<int>(number % kOut));
    }
  }

  // What of a tile no kernel before this one makes. Lengths change between graphs.
  KOKKOS_FORCEINLINE_FUNCTION void begin_tile(const Warp& warp, int row, int tile,
                                              Held& held) const {
    if (tile >= out_tiles()) return;
    warp.for_each_lane([&](int lane, int i) {
      load_round(tile, begin_of(warp, lane), held.lanes[here(warp)][i].held);
    });
    Ends& ends = held.ends[here(warp)];
    for_each_end(warp, tile, [&](int e, int r, int n) {
      const bool exists = row + r < of.rows && n < of.out;
      ends.next_result[e] = exists ? place_of(row + r, n) : nullptr;
      ends.next_bias[e] =
          exists && of.output.bias != nullptr ? static_cast<A>(of.output.bias[n]) : A{0};
    });
  }

  // What of making a row they make neither.
  KOKKOS_FORCEINLINE_FUNCTION void begin_row(const Warp& warp, int row,
                                             Held& held) const {
    if constexpr (kMade == Made::of_tiles) held.length = of.texts.length(row);
    if constexpr (kMade == Made::of_norm) {
      warp.for_each_lane([&](int lane, int i) {
        Lane& mine = held.lanes[here(warp)][i];
        const int begin = begin_of(warp, lane);
        mine.gamma = hold_at(of.input.gamma, begin);
        mine.beta = hold_at(of.input.beta, begin);
      });
    }
  }
  // Zeros behind the last column.
  KOKKOS_FORCEINLINE_FUNCTION HeldPiece<T> hold_at(const T* row, int c) const {
    return c < of.in ? hold_piece<kAligned>(row + c, of.in - c) : HeldPiece<T>{};
  }

  // The columns of W behind the first round, and what the norm takes.
  KOKKOS_FORCEINLINE_FUNCTION void ask_ahead(const Warp& warp, int tile) const {
    if constexpr (!kHostExecution) {
      constexpr int kOfLine = kDeviceLine / static_cast<int>(sizeof(T));
      constexpr int kMost = kAsked / static_cast<int>(sizeof(T));
      const int end = of.in - kRound < kMost ? of.in : kRound + kMost;
      for (int o = warp.rank; o < kOut; o += kWarps) {
        TRIREME_ROUND_BY_ROUND
        for (int c = kRound + warp.lane * kOfLine; c < end; c += kWarpThreads * kOfLine) {
          ask_for_line(weight_at(tile, o, c));
        }
      }
      if constexpr (kMade == Made::of_norm) {
        const int thread = warp.rank * kWarpThreads + warp.lane;
        TRIREME_ROUND_BY_ROUND
        for (int c = kApart + thread * kOfLine; c < of.in; c += kThreads * kOfLine) {
          ask_for_line(of.input.gamma + c);
          ask_for_line(of.input.beta + c);
        }
      }
    }
  }

  // The row of x as it lies in memory; behind the last row, the last again.
  KOKKOS_FORCEINLINE_FUNCTION const T* given_row(const Place& place, int r) const {
    const int row = r < place.rows ? place.row + r : of.rows - 1;
    return of.input.rows + row * of.input.leading;
  }

  // body(r) for the team's rows of x.
  template <class Body>
  KOKKOS_FORCEINLINE_FUNCTION static void for_each_row(const Place& place,
                                                       const Body& body) {
    if constexpr (kRows == 1) {
      body(0);
    } else {
      TRIREME_ROUND_BY_ROUND
      for (int r = 0; r < place.rows; ++r) body(r);
    }
  }

  // Sums over a row are taken about the mean of its first columns, so that little is lost
  // of the variance of a row that is far from zero.
  KOKKOS_FORCEINLINE_FUNCTION A pivot_of(const HeldPiece<T>& piece) const {
    A sum{0};
    for (int e = 0; e < kElements; ++e) sum += piece.number(e);
    const int count = kAligned || of.in >= kElements ? kElements : of.in;
    return sum / static_cast<A>(count);
  }
  KOKKOS_FORCEINLINE_FUNCTION A pivot_of_row(const Place& place, int r) const {
    return pivot_of(hold_at(given_row(place, r), 0));
  }
  // Of a lane's columns, of which it has the first ones.
  KOKKOS_FORCEINLINE_FUNCTION RowSums<A> sums_of(const T* x, int begin,
                                                 HeldPiece<T> piece, A pivot) const {
    RowSums<A> sums;
    TRIREME_ROUND_BY_ROUND
    for (int c = begin; c < of.in; c += kApart) {
      if (c > begin) piece = hold_piece<kAligned>(x + c, of.in - c);
      for (int e = 0; e < kElements; ++e) {
        if (!kAligned && c + e >= of.in) break;
        const A difference = piece.number(e) - pivot;
        sums.sum += difference;
        sums.squares = multiply_add(difference, difference, sums.squares);
      }
    }
    return sums;
  }
  // Of a row, what a warp has of its sums, about pivot_of(its first columns).
  template <class PivotOf>
  KOKKOS_FORCEINLINE_FUNCTION void add_up(const Warp& warp, const Place& place, int r,
                                          RowSums<A>* sums,
                                          const PivotOf& pivot_of) const {
    A sum[kLanesHere], squares[kLanesHere];
    warp.for_each_lane([&](int lane, int i) {
      const T* const x = given_row(place, r);
      const int begin = begin_of(warp, lane);
      // Both are under way before either is waited for.
      const HeldPiece<T> first = hold_at(x, 0), own = hold_at(x, begin);
      const RowSums<A> found = sums_of(x, begin, own, pivot_of(first));
      sum[i] = found.sum;
      squares[i] = found.squares;
    });
    const RowSums<A> all{warp.sum(sum), warp.sum(squares)};
    warp.for_each_lane([&](int lane, int) {
      if (lane == 0) sums[r * kWarps + warp.rank] = all;
    });
  }
  // With every contraction written out, so that kernels for more rows have the same bits.
  KOKKOS_FORCEINLINE_FUNCTION Moments<A> moments_of(const RowSums<A>* sums, int r,
                                                    A pivot) const {
    const RowSums<A>* const of_row = sums + r * kWarps;
    const RowSums<A> all = (of_row[0] + of_row[1]) + (of_row[2] + of_row[3]);
    const A shift = all.sum * of.input.per_column;
    const A rest = multiply_add(-shift, shift, all.squares * of.input.per_column);
    return {shift, multiply_add(all.sum, of.input.per_column, pivot), rest};
  }

  // Were the first columns of a row far from all others, most of its variance would be
  // lost: its sums are taken again about the mean that was found. Those of other rows
  // stay as they are, so that a row has the same bits beside any.
  KOKKOS_FORCEINLINE_FUNCTION void normalize(const TeamMember& team, const Place& place,
                                             const Held& held) const {
    RowSums<A>* const again = place.sums + kRows * kWarps;
    for_each_warp(team, [&](const Warp& warp) {
      for_each_row(place, [&](int r) {
        add_up(warp, place, r, place.sums,
               [&](const HeldPiece<T>& first) { return pivot_of(first); });
      });
    });
    team.team_barrier();
    bool is_any_lost = false;  // as all the team's threads find
    for_each_row(place, [&](int r) {
      if (moments_of(place.sums, r, pivot_of_row(place, r)).is_lost()) is_any_lost = true;
    });
    if (is_any_lost) {
      for_each_warp(team, [&](const Warp& warp) {
        for_each_row(place, [&](int r) {
          add_up(warp, place, r, again, [&](const HeldPiece<T>& first) {
            return moments_of(place.sums, r, pivot_of(first)).center;
          });
        });
      });
      team.team_barrier();
    }
    for_each_warp(team, [&](const Warp& warp) {
      for_each_row(place, [&](int r) {
        Moments<A> moments = moments_of(place.sums, r, pivot_of_row(place, r));
        if (moments.is_lost()) moments = moments_of(again, r, moments.center);
        warp.for_each_lane([&](int lane, int i) {
          normalize_columns(place, r, begin_of(warp, lane), moments,
                            held.lanes[here(warp)][i]);
        });
      });
    });
  }
  KOKKOS_FORCEINLINE_FUNCTION void normalize_columns(const Place& place, int r, int begin,
                                                     const Moments<A>& moments,
                                                     const Lane& mine) const {
    const T* const x = given_row(place, r);
    // Rounding may leave less than nothing of a row that is constant.
    const A variance = moments.variance > A{0} ? moments.variance : A{0};
    const A scale = quotient_for<T>(A{1}, Kokkos::sqrt(variance + of.input.epsilon));
    HeldPiece<T> gamma = mine.gamma, beta = mine.beta;
    TRIREME_ROUND_BY_ROUND
    for (int c = begin; c < of.in; c += kApart) {
      const int left = of.in - c;
      const HeldPiece<T> piece = hold_piece<kAligned>(x + c, left);
      if (c > begin) {
        gamma = hold_piece<kAligned>(of.input.gamma + c, left);
        beta = hold_piece<kAligned>(of.input.beta + c, left);
      }
      A made[kElements];
      for (int e = 0; e < kElements; ++e) {
        const A x_hat = (piece.number(e) - moments.center) * scale;
        made[e] = multiply_add(x_hat, gamma.number(e), beta.number(e));
      }
      keep(place, r, c, made);
    }
  }

  // Attention's output, in columns that a lane has side by side: they are of one head.
  KOKKOS_FORCEINLINE_FUNCTION void combine(const Warp& warp, const Place& place,
                                           index_t length) const {
    constexpr int kTogether = kAligned ? kElements : 1;
    warp.for_each_lane([&](int lane, int) {
      TRIREME_ROUND_BY_ROUND
      for (int c = begin_of(warp, lane); c < of.in; c += kApart) {
        for_each_row(place, [&](int r) {
          const int row = place.row + r;
          A made[kElements] = {};
          for (int e = 0; e < kElements && c + e < of.in; e += kTogether) {
            const int head = of.input.head_size.quotient(c + e);
            A part[kTogether];
            impl::combine_tiles<T>(of.input.tiles, row, head,
                                   c + e - head * of.input.tiles.d,
                                   r == 0 ? length : of.texts.length(row), part);
            for (int t = 0; t < kTogether; ++t) made[e + t] = part[t];
          }
          keep(place, r, c, made);
        });
      }
    });
  }

  // For the same lane, each number rounded.
  KOKKOS_FORCEINLINE_FUNCTION void keep(const Place& place, int r, int c,
                                        const A (&made)[kElements]) const {
    impl::store_piece(HeldPiece<T>::of(made), place.x + r * made_leading() + c);
  }
  KOKKOS_FORCEINLINE_FUNCTION HeldPiece<T> load_x(const Place& place, int r,
                                                  int c) const {
    if constexpr (kMade != Made::as_it_is) {
      return hold_piece<true>(place.x + r * made_leading() + c, kElements);
    } else {
      return hold_piece<kAligned>(given_row(place, r) + c, of.in - c);
    }
  }

  // What the lanes of a warp have of this tile's numbers goes to `parts`.
  KOKKOS_FORCEINLINE_FUNCTION void multiply(const Warp& warp, const Place& place,
                                            int tile, A* parts, Held& held) const {
    Ends& ends = held.ends[here(warp)];
    const Output<T>& to = of.output;
    for_each_end(warp, tile, [&](int e, int r, int n) {
      ends.bias[e] = ends.next_bias[e];
      ends.result[e] = ends.next_result[e];
      const bool has_residual = ends.result[e] != nullptr && to.residual != nullptr;
      ends.beside[e] =
          has_residual
              ? static_cast<A>(to.residual[(place.row + r) * to.residual_leading + n])
              : A{0};
    });
    warp.for_each_lane([&](int lane, int i) {
      Lane& mine = held.lanes[here(warp)][i];
      add_products(place, begin_of(warp, lane), tile, mine);
      TRIREME_IN_REGISTERS
      for (int r = 0; r < kRows; ++r) {
        TRIREME_IN_REGISTERS
        for (int o = 0; o < kOut; ++o) {
          const int number = r * kOut + o;
          parts[(number * kWarps + warp.rank) * kWarpThreads + lane] = mine.sum[o][r];
        }
      }
    });
  }

  // Where a number goes. Null where a text of length 0 has no place in the cache.
  KOKKOS_FORCEINLINE_FUNCTION T* place_of(int row, int n) const {
    const Output<T>& to = of.output;
    if (n < to.columns) return to.y + row * to.leading + n;
    const index_t length = of.texts.length(row);
    if (length == 0) return nullptr;
    const int column = n - to.columns;
    const index_t at = (of.texts.first_row(row) + length - 1) * to.kv_columns;
    return column < to.kv_columns ? to.k + at + column
                                  : to.v + at + column - to.kv_columns;
  }

  KOKKOS_FORCEINLINE_FUNCTION void add_products(const Place& place, int begin, int tile,
                                                Lane& mine) const {
    TRIREME_IN_REGISTERS
    for (int o = 0; o < kOut; ++o) {
      TRIREME_IN_REGISTERS
      for (int r = 0; r < kRows; ++r) mine.sum[o][r] = A{0};
    }
    add_round(place, begin, mine.held, mine);
    for (begin += kRound; begin < of.in; begin += kRound) {
      HeldPiece<T> part[kTurns][kOut];
      load_round(tile, begin, part);
      add_round(place, begin, part, mine);
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION void add_round(const Place& place, int begin,
                                             const HeldPiece<T> (&part)[kTurns][kOut],
                                             Lane& mine) const {
    TRIREME_IN_REGISTERS
    for (int turn = 0; turn < kTurns; ++turn) {
      const int c = begin + turn * kApart;
      if (c >= of.in) continue;
      TRIREME_IN_REGISTERS
      for (int r = 0; r < kRows; ++r) {
        const HeldPiece<T> piece = load_x(place, r, c);
        A x[kElements];
        TRIREME_IN_REGISTERS
        for (int e = 0; e < kElements; ++e) x[e] = piece.number(e);
        TRIREME_IN_REGISTERS
        for (int o = 0; o < kOut; ++o) mine.sum[o][r] += dot<T>(part[turn][o], x);
      }
    }
  }

  KOKKOS_FORCEINLINE_FUNCTION void end(const Warp& warp, const A* parts,
                                       const Ends& ends) const {
    for_each_end(warp, 0, [&](int e, int r, int n) {
      const A* const number = parts + (r * kOut + n) * (kWarps * kWarpThreads);
      A sum[kLanesHere];
      warp.for_each_lane([&](int lane, int i) {
        const A* const from = number + lane;
        sum[i] = (from[0] + from[kWarpThreads]) +
                 (from[2 * kWarpThreads] + from[3 * kWarpThreads]);
      });
      const A z = warp.sum(sum) + ends.bias[e];
      const A y = (of.output.has_gelu ? gelu_tanh<T>(z) : z) + ends.beside[e];
      warp.for_each_lane([&](int lane, int) {
        if (lane == 0 && ends.result[e] != nullptr) *ends.result[e] = static_cast<T>(y);
      });
    });
  }
};

template <class T>
void check(const DecodeInput<T>& input, const View2<const T>& weight,
           const DecodeOutput<T>& output) {
  constexpr const char* kName = "decode_linear";
  const auto in = static_cast<index_t>(weight.extent(1));
  const auto out = static_cast<index_t>(weight.extent(0));
  const auto rows = static_cast<index_t>(output.y.extent(0));
  TRIREME_REQUIRE(rows <= kDecodeRows && in > 0, "kernels::{}: {} of {}, {} at most",
                  kName, format_plural(rows, "row"), format_plural(in, "column"),
                  kDecodeRows);
  TRIREME_REQUIRE(
      output.activation == Activation::none || output.activation == Activation::gelu_tanh,
      "kernels::{}: of the activations it has GeLU's tanh form alone", kName);
  if (input.tiles.extent(0) > 0) {
    const index_t least = decode_attention_scratch_elements(input.texts, input.heads);
    TRIREME_REQUIRE(input.texts.count == rows &&
                        input.heads.heads * input.heads.head_dim == in &&
                        static_cast<index_t>(input.tiles.extent(0)) >= least,
                    "kernels::{}: tiles of {} and {} of {} for {} of {}", kName,
                    format_plural(input.texts.count, "text"),
                    format_plural(input.heads.heads, "head"), input.heads.head_dim,
                    format_plural(rows, "row"), in);
    TRIREME_REQUIRE(output.k.extent(1) == 0,
                    "kernels::{}: what is made of tiles does not go to a cache", kName);
  } else {
    require_extents(kName, "x", input.rows, rows, in);
    TRIREME_REQUIRE(output.y.data() == nullptr || output.y.data() != input.rows.data(),
                    "kernels::{}: y is x, which other teams still read", kName);
  }
  if (input.gamma.extent(0) > 0) {
    require_extent(kName, "gamma", input.gamma, in);
    require_extent(kName, "beta", input.beta, in);
  }
  const auto kv_columns = static_cast<index_t>(output.k.extent(1));
  require_extents(kName, "y", output.y, rows, out - 2 * kv_columns);
  require_extents(kName, "v", output.v, static_cast<index_t>(output.k.extent(0)),
                  kv_columns);
  TRIREME_REQUIRE(kv_columns == 0 || output.texts.count == rows,
                  "kernels::{}: {} for the cache of {}", kName,
                  format_plural(rows, "row"), format_plural(output.texts.count, "text"));
  if (output.bias.extent(0) > 0) require_extent(kName, "bias", output.bias, out);
  if (output.residual.extent(0) > 0) {
    require_extents(kName, "residual", output.residual, rows, out);
  }
}

template <class View>
auto* data_of(const View& view) {
  return view.extent(0) > 0 ? view.data() : nullptr;
}

template <class T>
Problem<T> problem_of(const DecodeInput<T>& input, const View2<const T>& weight,
                      const DecodeOutput<T>& output) {
  using A = Accumulator<T>;
  Problem<T> of;
  of.rows = static_cast<int>(output.y.extent(0));
  of.in = static_cast<int>(weight.extent(1));
  of.out = static_cast<int>(weight.extent(0));
  of.weight = weight.data();
  of.weight_leading = static_cast<int>(weight.stride(0));
  of.texts = output.k.extent(1) > 0 ? output.texts : input.texts;
  Input<T>& from = of.input;
  if (input.tiles.extent(0) > 0) {
    // What a kernel of tiles writes, another reads.
    const View1<A> scratch(const_cast<A*>(input.tiles.data()), input.tiles.extent(0));
    from.tiles = impl::TeamTiles<A>(input.texts, input.heads, scratch);
    from.head_size = impl::Divisor(from.tiles.d);
  } else {
    from.rows = input.rows.data();
    from.leading = static_cast<index_t>(input.rows.stride(0));
    from.gamma = data_of(input.gamma);
    from.beta = data_of(input.beta);
    from.epsilon = static_cast<A>(input.epsilon);
    from.per_column = static_cast<A>(1.0 / static_cast<double>(of.in));
  }
  Output<T>& to = of.output;
  to.y = output.y.data();
  to.leading = static_cast<index_t>(output.y.stride(0));
  to.bias = data_of(output.bias);
  to.residual = data_of(output.residual);
  to.residual_leading = static_cast<index_t>(output.residual.stride(0));
  to.k = output.k.data();
  to.v = output.v.data();
  to.columns = static_cast<int>(output.y.extent(1));
  to.kv_columns = static_cast<int>(output.k.extent(1));
  to.has_gelu = output.activation == Activation::gelu_tanh;
  return of;
}

template <class T>
bool is_aligned(const Problem<T>& of) {
  const Input<T>& from = of.input;
  return of.in % Piece<T>::kElements == 0 &&
         impl::has_pieces(of.weight, of.weight_leading) &&
         impl::has_pieces(from.rows, from.leading) && impl::has_pieces(from.gamma, 0) &&
         impl::has_pieces(from.beta, 0) && from.tiles.d % Piece<T>::kElements == 0 &&
         impl::has_pieces(from.tiles.outputs, from.tiles.d);
}

template <class T>
Kernel kernel_of(const DecodeInput<T>& input, const View2<const T>& weight,
                 const DecodeOutput<T>& output) {
  const auto rows = static_cast<index_t>(output.y.extent(0));
  Cost cost;
  cost.flops = 2.0 * static_cast<double>(rows) *
               static_cast<double>(weight.extent(0) * weight.extent(1));
  const index_t cached = 2 * rows * static_cast<index_t>(output.k.extent(1));
  cost.bytes =
      bytes_of(weight, input.gamma, input.beta, output.y, output.bias, output.residual) +
      cached * static_cast<index_t>(sizeof(T));
  if (input.tiles.extent(0) > 0) {
    const CachedHeads& heads = input.heads;
    const index_t tiles = tiles_of(input.texts.longest, impl::kDecodeTile);
    cost.bytes += rows * heads.heads * tiles * (2 + heads.head_dim) *
                  static_cast<index_t>(sizeof(Accumulator<T>));
  } else {
    cost.bytes += bytes_of(input.rows);
  }
  return {"trireme::kernels::decode_linear", cost};
}

// Of several rows of x a team has some.
template <class T, Made kMade>
using ForRows = DecodeLinear<T, kMade, 4, 2, 2, true>;

template <class Functor, class T>
void run(const Exec& exec, const Kernel& kernel, const Problem<T>& of) {
  const Functor functor(of);
  // On a host, for tests, two, so that a barrier that is missing shows.
  constexpr int kHostThreads = 2;
  launch_early_teams<typename Functor::Bounds>(exec, kernel, functor.teams(), kThreads,
                                               functor, functor.scratch_bytes(of.in),
                                               kHostThreads);
}

// Four rows of W where warps have one turn of each, so that as much of W is under way as
// with more turns of fewer.
template <class T, Made kMade>
void choose(const Exec& exec, const Kernel& kernel, const Problem<T>& of) {
  constexpr int kOneTurn = kThreads * Piece<T>::kElements;
  if (!is_aligned(of)) {
    run<DecodeLinear<T, kMade, 1, 4, 1, false>>(exec, kernel, of);
  } else if (of.rows > 1 && ForRows<T, kMade>::scratch_bytes(of.in) <= kScratchBytes) {
    run<ForRows<T, kMade>>(exec, kernel, of);
  } else if (of.in <= kOneTurn) {
    run<DecodeLinear<T, kMade, 1, 4, 1, true>>(exec, kernel, of);
  } else if (of.out <= kFewOut) {
    run<DecodeLinear<T, kMade, 1, 1, 3, true>>(exec, kernel, of);
  } else {
    run<DecodeLinear<T, kMade, 1, 4, 2, true>>(exec, kernel, of);
  }
}

// Whether a row of so many elements fits a team's memory, whatever it is made of.
template <class T>
bool fits(index_t in) {
  using Largest = DecodeLinear<T, Made::of_norm, 1, 4, 2, true>;
  return Largest::scratch_bytes(in) <= kScratchBytes;
}

}  // namespace

template <class T>
bool has_decode_linear(index_t rows, index_t in) {
  return impl::decodes_by_teams() && rows >= 1 && rows <= kDecodeRows && fits<T>(in);
}

template <class T>
void decode_linear(const Exec& exec, const DecodeInput<T>& input,
                   const WeightOperand<T>& weight, const DecodeOutput<T>& output) {
  check(input, weight.rows, output);
  if (output.y.extent(0) == 0) return;
  const Problem<T> of = problem_of(input, weight.rows, output);
  const Kernel kernel = kernel_of(input, weight.rows, output);
  const bool has_norm = input.gamma.extent(0) > 0;
  if (!has_norm && input.tiles.extent(0) == 0) {
    choose<T, Made::as_it_is>(exec, kernel, of);
    return;
  }
  TRIREME_REQUIRE(fits<T>(of.in),
                  "kernels::decode_linear: a row of {} does not fit a team's memory",
                  format_plural(of.in, "element"));
  if (has_norm) {
    choose<T, Made::of_norm>(exec, kernel, of);
  } else {
    choose<T, Made::of_tiles>(exec, kernel, of);
  }
}

#define TRIREME_INSTANTIATE(T)                                  \
  template decltype(has_decode_linear<T>) has_decode_linear<T>; \
  template decltype(decode_linear<T>) decode_linear<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
