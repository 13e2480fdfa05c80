// kernels/decode_linear.cpp — see decode_linear.hpp. By teams: the way of a GPU, which a
// host can take, too.
//
// A team makes its rows of x in its scratch memory (a norm, or attention's output),
// unless they lie in memory as they are, and multiplies them with rows of W: a warp with
// one or some of them at a time, of which each of its threads reads 16 bytes in a turn.
// That x is made again by every team matters little beside what does not wait for it: the
// first turns of W are on their way to registers, and more of it, like all that is no
// product of earlier kernels, to the GPU's cache, before the kernel ahead has ended
// (base/early_start.hpp). Rows of W are the more at a time where there are so many that
// all multiprocessors have some; with more than one row of x, these share what is read.
//
// Each number has one order of sums, whatever is multiplied beside it: a lane's columns
// in order, piece by piece, then the lanes of a warp by halves. On a host a thread has
// all lanes of some warps, and gets the same bits.
#include "kernels/decode_linear.hpp"

#include <algorithm>

#include "base/early_start.hpp"
#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/types.hpp"
#include "kernels/impl/decode_attention.hpp"
#include "kernels/impl/decode_tiles.hpp"
#include "kernels/impl/gelu.hpp"
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
// Of an H100. A product with more tiles than teams that run at a time has teams go on to
// the next one, so that x is made less often.
constexpr index_t kMultiprocessors = 132;
// Rows of W from which on warps have some at a time: teams are still two for each
// multiprocessor.
constexpr index_t kManyOut = 4096;
// What a team asks for ahead, in bytes of W.
constexpr int kAsked = 24 << 10;

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
      sum += detail::value_of_thread(sum, lane ^ apart);
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
  const int rank = team.team_rank();
  if constexpr (kHostExecution) {
    for (int warp = rank; warp < kWarps; warp += team.team_size()) body(Warp{warp, 0});
  } else {
    body(Warp{rank / kWarpThreads, rank % kWarpThreads});
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
  index_t weight_leading = 0;
  int rows = 0, in = 0, out = 0;
};

// Of some columns of a row: sums of their differences from one number, and of squares.
template <class A>
struct RowSums {
  A sum{}, squares{};
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

// kRows: rows of x that a team has; kOut: rows of W that a warp has at a time; kTurns: of
// W's columns, whose loads are under way together. kStaged: x is made in scratch memory.
// kAligned: rows of every array are whole pieces.
template <class T, int kRows, int kOut, int kTurns, bool kStaged, bool kAligned>
struct DecodeLinear {
  using A = Accumulator<T>;
  static constexpr int kElements = Piece<T>::kElements;
  static constexpr int kTile = kWarps * kOut;              // rows of W that a team has
  static constexpr int kWidth = kWarpThreads * kElements;  // columns of a warp's turn
  static constexpr int kRound = kTurns * kWidth;
  // Warps that make a row together, each a part of its columns.
  static constexpr int kMakers = kRows < kWarps ? kWarps / kRows : 1;
  // Teams that a multiprocessor runs together: nvcc takes no more registers than let
  // them, and needs no more.
  static constexpr bool kIsSmall = kOut == 1 && kTurns <= 4;
  static constexpr int kTeamsAtOnce = sizeof(A) == 8 ? (kIsSmall ? 4 : 2)
                                      : kIsSmall     ? 6
                                      : kRows == 4   ? 4
                                                     : 3;
  using Bounds = Kokkos::LaunchBounds<kThreads, kTeamsAtOnce>;
  // A lane ends with one number.
  static_assert(kOut * kRows <= kWarpThreads);

  Problem<T> of;

  // A team's rows of x, and its scratch memory.
  struct Place {
    int row, rows;  // the first of so many
    T* x;           // (kRows, staged_leading()), where it is made
  };
  // What a lane has of W, of the next round; its sums; and what it ends with.
  struct Lane {
    HeldPiece<T> held[kTurns][kOut];
    A sum[kOut][kRows];
    A bias;
    A beside;
    T* result;
  };

  static std::size_t scratch_bytes(index_t in) {
    const index_t made =
        kStaged ? kRows * tiles_of(in, kElements) * kElements : index_t{0};
    return extent(made) * sizeof(T) + 16;
  }
  KOKKOS_FUNCTION int staged_leading() const {
    return (of.in + kElements - 1) / kElements * kElements;
  }
  KOKKOS_FUNCTION int row_tiles() const { return (of.rows + kRows - 1) / kRows; }
  KOKKOS_FUNCTION int out_tiles() const { return (of.out + kTile - 1) / kTile; }
  index_t teams() const {
    const index_t most = kMultiprocessors * index_t{kTeamsAtOnce} / row_tiles();
    return row_tiles() * std::min(static_cast<index_t>(out_tiles()), most);
  }

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    let_next_start();
    const auto rank = static_cast<int>(team.league_rank());
    const int step = static_cast<int>(team.league_size()) / row_tiles();
    const int first = rank / row_tiles();
    Lane lanes[kWarpsHere][kLanesHere];
    for_each_warp(team, [&](const Warp& warp) {
      warp.for_each_lane([&](int lane, int i) {
        begin_tile(warp, lane, first, lanes[kHostExecution ? warp.rank : 0][i]);
      });
    });
    ask_ahead(team, first);
    wait_for_previous();
    const Place place = find_place(team, rank % row_tiles() * kRows);
    if constexpr (kStaged) make_rows(team, place);
    for_each_warp(team, [&](const Warp& warp) {
      Lane(&mine)[kLanesHere] = lanes[kHostExecution ? warp.rank : 0];
      for (int tile = first; tile < out_tiles(); tile += step) {
        multiply(warp, place, tile, tile + step, mine);
      }
    });
  }

  KOKKOS_FORCEINLINE_FUNCTION Place find_place(const TeamMember& team, int row) const {
    Place place{row, of.rows - row < kRows ? of.rows - row : kRows, nullptr};
    if constexpr (kStaged) {
      const int bytes = kRows * staged_leading() * static_cast<int>(sizeof(T));
      place.x = static_cast<T*>(
          team.team_scratch(scratch_level(1)).get_shmem_aligned(bytes, 16));
    }
    return place;
  }

  // A row of W of a warp's tile; behind the last row, the last again.
  KOKKOS_FORCEINLINE_FUNCTION const T* weight_row(const Warp& warp, int tile,
                                                  int o) const {
    const int n = tile * kTile + warp.rank * kOut + o;
    return of.weight + (n < of.out ? n : of.out - 1) * of.weight_leading;
  }
  // Of the columns from `begin` on, kTurns turns.
  KOKKOS_FORCEINLINE_FUNCTION void load_round(const Warp& warp, int tile, int begin,
                                              HeldPiece<T> (&part)[kTurns][kOut]) const {
    TRIREME_IN_REGISTERS
    for (int turn = 0; turn < kTurns; ++turn) {
      const int c = begin + turn * kWidth;
      TRIREME_IN_REGISTERS
      for (int o = 0; o < kOut; ++o) {
        part[turn][o] =
            c < of.in ? hold_piece<kAligned>(weight_row(warp, tile, o) + c, of.in - c)
                      : HeldPiece<T>{};
      }
    }
  }
  // Of the numbers of a warp's tile, which of them this lane ends with.
  KOKKOS_FORCEINLINE_FUNCTION static int row_of_lane(int lane) { return lane / kOut; }
  KOKKOS_FORCEINLINE_FUNCTION static int column_of_lane(const Warp& warp, int lane,
                                                        int tile) {
    return tile * kTile + warp.rank * kOut + lane % kOut;
  }

  // What of a tile no kernel before this one makes.
  KOKKOS_FORCEINLINE_FUNCTION void begin_tile(const Warp& warp, int lane, int tile,
                                              Lane& mine) const {
    if (tile >= out_tiles()) return;
    load_round(warp, tile, lane * kElements, mine.held);
    const int n = column_of_lane(warp, lane, tile);
    const bool has_bias = of.output.bias != nullptr && n < of.out;
    mine.bias = has_bias ? static_cast<A>(of.output.bias[n]) : A{0};
  }

  // The columns of W behind the first round, as far as there is room for them on their
  // way, and what the norm takes.
  KOKKOS_FUNCTION void ask_ahead(const TeamMember& team, int tile) const {
    if constexpr (!kHostExecution) {
      constexpr int kMost = kAsked / kTile;
      constexpr int kSize = static_cast<int>(sizeof(T));
      const int bytes = (of.in - kRound) * kSize;
      const int first = tile * kTile;
      const int count = of.out - first < kTile ? of.out - first : kTile;
      if (bytes > 0) {
        const int lines =
            ((bytes < kMost ? bytes : kMost) + kDeviceLine - 1) / kDeviceLine;
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count * lines), [&](int i) {
          const T* const row = of.weight + (first + i / lines) * of.weight_leading;
          ask_for_line(reinterpret_cast<const char*>(row + kRound) +
                       i % lines * kDeviceLine);
        });
      }
      if (of.input.gamma == nullptr) return;
      const int lines = (of.in * kSize + kDeviceLine - 1) / kDeviceLine;
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, 2 * lines), [&](int i) {
        const T* const from = i < lines ? of.input.gamma : of.input.beta;
        ask_for_line(reinterpret_cast<const char*>(from) + i % lines * kDeviceLine);
      });
    }
  }

  // The row of x as it lies in memory; behind the last row, the last again.
  KOKKOS_FORCEINLINE_FUNCTION const T* given_row(const Place& place, int r) const {
    const int row = r < place.rows ? place.row + r : of.rows - 1;
    return of.input.rows + row * of.input.leading;
  }

  KOKKOS_FUNCTION void make_rows(const TeamMember& team, const Place& place) const {
    if (of.input.gamma != nullptr) {
      for_each_warp(team, [&](const Warp& warp) {
        for (int r = warp.rank / kMakers; r < place.rows; r += kWarps / kMakers) {
          normalize(warp, given_row(place, r), place.x + r * staged_leading());
        }
      });
    } else {
      combine(team, place);
    }
    team.team_barrier();
  }

  // use(c, load(c)) for the first columns c of pieces, from `begin` on and so many apart;
  // so many loads are under way together.
  template <int kTogether, class Load, class Use>
  KOKKOS_FORCEINLINE_FUNCTION void in_turns(int begin, int apart, const Load& load,
                                            const Use& use) const {
    for (int first = begin; first < of.in; first += kTogether * apart) {
      decltype(load(first)) part[kTogether] = {};
      TRIREME_IN_REGISTERS
      for (int turn = 0; turn < kTogether; ++turn) {
        const int c = first + turn * apart;
        if (c < of.in) part[turn] = load(c);
      }
      TRIREME_IN_REGISTERS
      for (int turn = 0; turn < kTogether; ++turn) {
        const int c = first + turn * apart;
        if (c < of.in) use(c, part[turn]);
      }
    }
  }

  // Sums over a row are taken about the mean of its first columns, so that little is lost
  // of the variance of a row that is far from zero.
  KOKKOS_FORCEINLINE_FUNCTION A pivot_of(const T* x) const {
    const HeldPiece<T> piece = hold_piece<kAligned>(x, of.in);
    A sum{0};
    for (int e = 0; e < kElements; ++e) sum += piece.number(e);
    return sum / static_cast<A>(of.in < kElements ? of.in : kElements);
  }
  // Of a lane's columns.
  KOKKOS_FORCEINLINE_FUNCTION RowSums<A> sums_of(const T* x, int lane, A pivot) const {
    RowSums<A> sums;
    in_turns<4>(
        lane * kElements, kWidth,
        [&](int c) { return hold_piece<kAligned>(x + c, of.in - c); },
        [&](int c, const HeldPiece<T>& piece) {
          for (int e = 0; e < kElements; ++e) {
            if (!kAligned && c + e >= of.in) break;
            const A difference = piece.number(e) - pivot;
            sums.sum += difference;
            sums.squares = multiply_add(difference, difference, sums.squares);
          }
        });
    return sums;
  }
  // With every contraction written out, so that kernels for more rows have the same bits.
  KOKKOS_FORCEINLINE_FUNCTION Moments<A> moments_of(const Warp& warp, const T* x,
                                                    A pivot) const {
    A sum[kLanesHere], squares[kLanesHere];
    warp.for_each_lane([&](int lane, int i) {
      const RowSums<A> sums = sums_of(x, lane, pivot);
      sum[i] = sums.sum;
      squares[i] = sums.squares;
    });
    const A all = warp.sum(sum), all_squares = warp.sum(squares);
    const A shift = all * of.input.per_column;
    const A rest = multiply_add(-shift, shift, all_squares * of.input.per_column);
    return {shift, multiply_add(all, of.input.per_column, pivot), rest};
  }

  // Each warp that makes the row knows its moments, and writes its part. Were the first
  // columns far from all others, most of the variance would be lost: the sums are taken
  // again about the mean that was found.
  KOKKOS_FUNCTION void normalize(const Warp& warp, const T* x, T* to) const {
    Moments<A> moments = moments_of(warp, x, pivot_of(x));
    if (moments.is_lost()) moments = moments_of(warp, x, moments.center);
    const A center = moments.center;
    // Rounding may leave less than nothing of a row that is constant.
    const A variance = moments.variance > A{0} ? moments.variance : A{0};
    const A scale = A{1} / Kokkos::sqrt(variance + of.input.epsilon);
    struct Pieces {
      HeldPiece<T> x, gamma, beta;
    };
    warp.for_each_lane([&](int lane, int) {
      const int part = warp.rank % kMakers * kWarpThreads + lane;
      in_turns<kMakers == 1 ? 4 : 2>(
          part * kElements, kMakers * kWidth,
          [&](int c) {
            const int left = of.in - c;
            return Pieces{hold_piece<kAligned>(x + c, left),
                          hold_piece<kAligned>(of.input.gamma + c, left),
                          hold_piece<kAligned>(of.input.beta + c, left)};
          },
          [&](int c, const Pieces& from) {
            A numbers[kElements];
            for (int e = 0; e < kElements; ++e) {
              const A x_hat = (from.x.number(e) - center) * scale;
              numbers[e] = multiply_add(x_hat, from.gamma.number(e), from.beta.number(e));
            }
            store(to + c, numbers);
          });
    });
  }

  // To a team's memory, each number rounded.
  KOKKOS_FORCEINLINE_FUNCTION static void store(T* to, const A (&numbers)[kElements]) {
    *reinterpret_cast<HeldPiece<T>*>(to) = HeldPiece<T>::of(numbers);
  }

  // Attention's output, in columns that a thread has side by side: they are of one head.
  KOKKOS_FUNCTION void combine(const TeamMember& team, const Place& place) const {
    constexpr int kColumns = kAligned ? kElements : 1;
    const int width = staged_leading(), items = width / kColumns;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, place.rows * items), [&](int i) {
      const int r = i / items, c = i % items * kColumns, row = place.row + r;
      T* const to = place.x + r * width + c;
      A sum[kColumns] = {};
      if (c < of.in) {
        impl::combine_tiles<T>(of.input.tiles, row, c / of.input.tiles.d,
                               c % of.input.tiles.d, of.texts.length(row), sum);
      }
      if constexpr (kAligned) {
        store(to, sum);
      } else {
        to[0] = static_cast<T>(sum[0]);
      }
    });
  }

  KOKKOS_FORCEINLINE_FUNCTION HeldPiece<T> load_x(const Place& place, int r,
                                                  int c) const {
    if constexpr (kStaged) {
      return hold_piece<true>(place.x + r * staged_leading() + c, kElements);
    } else {
      return hold_piece<kAligned>(given_row(place, r) + c, of.in - c);
    }
  }

  // A warp's rows of W, of this tile. What lanes hold when it is over is of the next.
  KOKKOS_FUNCTION void multiply(const Warp& warp, const Place& place, int tile, int next,
                                Lane (&lanes)[kLanesHere]) const {
    A bias[kLanesHere];
    warp.for_each_lane([&](int lane, int i) {
      Lane& mine = lanes[i];
      find_end(warp, place, lane, tile, mine);
      add_products(warp, place, lane, tile, mine);
      bias[i] = mine.bias;
      begin_tile(warp, lane, next, mine);
    });
    A own[kLanesHere] = {};
    TRIREME_IN_REGISTERS
    for (int r = 0; r < kRows; ++r) {
      TRIREME_IN_REGISTERS
      for (int o = 0; o < kOut; ++o) {
        A part[kLanesHere];
        for (int i = 0; i < kLanesHere; ++i) part[i] = lanes[i].sum[o][r];
        const A sum = warp.sum(part);
        warp.for_each_lane([&](int lane, int i) {
          if (lane == r * kOut + o) own[i] = sum;
        });
      }
    }
    warp.for_each_lane([&](int, int i) {
      const Lane& mine = lanes[i];
      if (mine.result == nullptr) return;
      const A z = own[i] + bias[i];
      *mine.result = static_cast<T>((of.output.has_gelu ? gelu<T>(z) : z) + mine.beside);
    });
  }

  // Where a lane's number goes, if it has one, and what is added to it.
  KOKKOS_FORCEINLINE_FUNCTION void find_end(const Warp& warp, const Place& place,
                                            int lane, int tile, Lane& mine) const {
    const Output<T>& to = of.output;
    const int r = row_of_lane(lane), n = column_of_lane(warp, lane, tile);
    const int row = place.row + r;
    mine.result = nullptr;
    mine.beside = A{0};
    if (r >= place.rows || n >= of.out) return;
    mine.result = place_of(row, n);
    if (to.residual == nullptr) return;
    mine.beside = static_cast<A>(to.residual[row * to.residual_leading + n]);
  }

  KOKKOS_FORCEINLINE_FUNCTION void add_products(const Warp& warp, const Place& place,
                                                int lane, int tile, Lane& mine) const {
    TRIREME_IN_REGISTERS
    for (int o = 0; o < kOut; ++o) {
      TRIREME_IN_REGISTERS
      for (int r = 0; r < kRows; ++r) mine.sum[o][r] = A{0};
    }
    int begin = lane * kElements;
    add_round(place, begin, mine.held, mine);
    for (begin += kRound; begin < of.in; begin += kRound) {
      HeldPiece<T> part[kTurns][kOut];
      load_round(warp, tile, begin, part);
      add_round(place, begin, part, mine);
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION void add_round(const Place& place, int begin,
                                             const HeldPiece<T> (&part)[kTurns][kOut],
                                             Lane& mine) const {
    TRIREME_IN_REGISTERS
    for (int turn = 0; turn < kTurns; ++turn) {
      const int c = begin + turn * kWidth;
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

  // Null where a text of length 0 has no place in the cache.
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
  of.weight_leading = static_cast<index_t>(weight.stride(0));
  of.texts = output.k.extent(1) > 0 ? output.texts : input.texts;
  Input<T>& from = of.input;
  if (input.tiles.extent(0) > 0) {
    // What a kernel of tiles writes, another reads.
    const View1<A> scratch(const_cast<A*>(input.tiles.data()), input.tiles.extent(0));
    from.tiles = impl::TeamTiles<A>(input.texts, input.heads, scratch);
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
  to.has_gelu = output.activation == Activation::gelu;
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

template <class T, int kRows>
bool fits(index_t in) {
  return DecodeLinear<T, kRows, 1, 1, true, true>::scratch_bytes(in) <= kScratchBytes;
}

template <class T, int kRows, int kOut, int kTurns, bool kStaged, bool kAligned>
void run(const Exec& exec, const Kernel& kernel, const Problem<T>& of) {
  using Functor = DecodeLinear<T, kRows, kOut, kTurns, kStaged, kAligned>;
  const Functor functor{of};
  // On a host, for tests, two, so that a barrier that is missing shows.
  constexpr int kHostThreads = 2;
  launch_early_teams<typename Functor::Bounds>(exec, kernel, functor.teams(), kThreads,
                                               functor, functor.scratch_bytes(of.in),
                                               kHostThreads);
}

// The most rows of x at a time that there are and that fit. Of one row, so many turns of
// W are under way that all of it is, or nearly.
template <class T, bool kStaged>
void choose(const Exec& exec, const Kernel& kernel, const Problem<T>& of) {
  constexpr int kFewTurns = 4, kManyTurns = 12;
  constexpr int kWidth = kWarpThreads * Piece<T>::kElements;
  if (!is_aligned(of)) {
    run<T, 1, 1, kFewTurns, kStaged, false>(exec, kernel, of);
  } else if (of.rows > 4 && fits<T, 8>(of.in)) {
    run<T, 8, 2, 2, kStaged, true>(exec, kernel, of);
  } else if (of.rows > 1 && fits<T, 4>(of.in)) {
    run<T, 4, 2, 2, kStaged, true>(exec, kernel, of);
  } else if (of.out >= kManyOut) {
    run<T, 1, 4, 3, kStaged, true>(exec, kernel, of);
  } else if (of.in <= kFewTurns * kWidth) {
    run<T, 1, 1, kFewTurns, kStaged, true>(exec, kernel, of);
  } else {
    run<T, 1, 1, kManyTurns, kStaged, true>(exec, kernel, of);
  }
}

}  // namespace

template <class T>
bool has_decode_linear(index_t rows, index_t in) {
  return impl::decodes_by_teams() && rows >= 1 && rows <= kDecodeRows && fits<T, 1>(in);
}

template <class T>
void decode_linear(const Exec& exec, const DecodeInput<T>& input,
                   const WeightOperand<T>& weight, const DecodeOutput<T>& output) {
  check(input, weight.rows, output);
  if (output.y.extent(0) == 0) return;
  const Problem<T> of = problem_of(input, weight.rows, output);
  const Kernel kernel = kernel_of(input, weight.rows, output);
  if (input.gamma.extent(0) == 0 && input.tiles.extent(0) == 0) {
    choose<T, false>(exec, kernel, of);
    return;
  }
  TRIREME_REQUIRE((fits<T, 1>(of.in)),
                  "kernels::decode_linear: a row of {} does not fit a team's memory",
                  format_plural(of.in, "element"));
  choose<T, true>(exec, kernel, of);
}

#define TRIREME_INSTANTIATE(T)                                  \
  template decltype(has_decode_linear<T>) has_decode_linear<T>; \
  template decltype(decode_linear<T>) decode_linear<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
