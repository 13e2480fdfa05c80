// kernels/decode_linear.cpp — see decode_linear.hpp. By teams: the way of a GPU, which a
// host can take, too.
//
// A team makes its rows of x in its scratch memory (a norm, or attention's output),
// unless they lie in memory as they are, and multiplies them with rows of W: a warp with
// one or some of them at a time, whose threads read 16 bytes each. That is done again by
// every team, since x is little beside its part of W, and the part is asked for before:
// it comes to the GPU's cache while x is made. Rows of W are the more at a time where
// there are so many that all multiprocessors have some; with more than one row of x, some
// of these share what is read of W.
//
// Each number has one order of sums, whatever is multiplied beside it: a thread's columns
// in order, piece by piece, then the threads of its warp. Of a norm it is that of the
// team's threads. A host, whose teams have two threads, gets the same bits.
#include "kernels/decode_linear.hpp"

#include <algorithm>

#include "base/early_start.hpp"
#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/types.hpp"
#include "kernels/impl/decode_attention.hpp"
#include "kernels/impl/decode_tiles.hpp"
#include "kernels/impl/gelu.hpp"
#include "kernels/impl/pieces.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/impl/vector_math.hpp"

namespace trireme::kernels {

namespace {

using impl::load_piece;
using impl::Piece;

constexpr int kWarpThreads = 32;
constexpr int kWarps = 4;
constexpr int kThreads = kWarpThreads * kWarps;
// One more than there are, so that threads read different banks of shared memory.
constexpr int kParts = kWarpThreads + 1;
// Sums over a row are those of groups of threads, then of the groups.
constexpr int kGroups = 8;
constexpr int kGroup = kThreads / kGroups;
constexpr int kPartSums = kThreads + kGroups;

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

// Columns of a row that a team takes in a turn.
template <class T>
constexpr int kTeamColumns = kThreads* Piece<T>::kElements;

// Of some columns of a row: sums of their differences from one number, and of squares.
template <class A>
struct RowSums {
  A sum{}, squares{};
  KOKKOS_FORCEINLINE_FUNCTION void add(const RowSums& other) {
    sum += other.sum;
    squares += other.squares;
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
    const Piece<T>& a, const Accumulator<T> (&b)[Piece<T>::kElements]) {
  using A = Accumulator<T>;
  A sum = static_cast<A>(a.element[0]) * b[0];
  TRIREME_IN_REGISTERS
  for (int e = 1; e < Piece<T>::kElements; ++e) {
    sum = multiply_add(static_cast<A>(a.element[e]), b[e], sum);
  }
  return sum;
}

// kRows: rows of x that a team has; kOut: rows of W that a warp has at a time. kStaged:
// x is made in scratch memory. kAligned: rows of every array are whole pieces.
template <class T, int kRows, int kOut, bool kStaged, bool kAligned>
struct DecodeLinear {
  using A = Accumulator<T>;
  static constexpr int kElements = Piece<T>::kElements;
  static constexpr int kTile = kWarps * kOut;              // rows of W that a team has
  static constexpr int kWidth = kWarpThreads * kElements;  // columns of a warp's turn
  static constexpr int kTurns = kOut == 1 ? 4 : 2;         // whose loads are under way
  // Of a multiprocessor, by the registers of kernels over bf16.
  static constexpr index_t kTeamsAtOnce = kOut == 4 ? 5 : kRows == 1 ? 9 : 7;
  static constexpr int kSums =
      std::max(kRows * kTile * kParts, kStaged ? kRows* kPartSums * 2 : 0);

  Problem<T> of;

  // A team's rows of x, and its scratch memory.
  struct Place {
    int row, rows;         // the first of so many
    T* x;                  // (kRows, staged_leading()), where it is made
    A* sums;               // (kRows, kTile, kParts)
    RowSums<A>* row_sums;  // (kRows, kPartSums), in the same memory
    A* pivots;             // (kRows), about which sums over rows are taken
  };

  static std::size_t scratch_bytes(index_t in) {
    const index_t made =
        kStaged ? kRows * tiles_of(in, kElements) * kElements : index_t{0};
    return extent(made) * sizeof(T) + (kSums + kRows) * sizeof(A) + 16;
  }
  KOKKOS_FUNCTION int staged_leading() const {
    return (of.in + kElements - 1) / kElements * kElements;
  }
  KOKKOS_FUNCTION int row_tiles() const { return (of.rows + kRows - 1) / kRows; }
  KOKKOS_FUNCTION int out_tiles() const { return (of.out + kTile - 1) / kTile; }
  index_t teams() const {
    const index_t most = kMultiprocessors * kTeamsAtOnce / row_tiles();
    return row_tiles() * std::min(static_cast<index_t>(out_tiles()), most);
  }

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    let_next_start();
    const auto rank = static_cast<int>(team.league_rank());
    const int step = static_cast<int>(team.league_size()) / row_tiles();
    int tile = rank / row_tiles();
    ask_for_weights(team, tile);
    wait_for_previous();
    Place place;
    place.row = rank % row_tiles() * kRows;
    place.rows = of.rows - place.row < kRows ? of.rows - place.row : kRows;
    find_scratch(team, place);
    if constexpr (kStaged) make_rows(team, place);
    for (; tile < out_tiles(); tile += step) {
      if (tile + step < out_tiles()) ask_for_weights(team, tile + step);
      multiply(team, place, tile);
      team.team_barrier();
      finish(team, place, tile);
      team.team_barrier();
    }
  }

  KOKKOS_FUNCTION void find_scratch(const TeamMember& team, Place& place) const {
    const int made = kStaged ? kRows * staged_leading() * static_cast<int>(sizeof(T)) : 0;
    constexpr int kSumBytes = (kSums + kRows) * static_cast<int>(sizeof(A));
    auto* const memory = static_cast<char*>(
        team.team_scratch(scratch_level(1)).get_shmem_aligned(made + kSumBytes, 16));
    place.x = reinterpret_cast<T*>(memory);
    place.sums = reinterpret_cast<A*>(memory + made);
    place.row_sums = reinterpret_cast<RowSums<A>*>(place.sums);
    place.pivots = place.sums + kSums;
  }

  // The first bytes of each row of W that the team will read.
  KOKKOS_FUNCTION void ask_for_weights(const TeamMember& team, int tile) const {
    if constexpr (!kHostExecution) {
      constexpr int kMost = kAsked / kTile;
      const int bytes = of.in * static_cast<int>(sizeof(T));
      const int lines = ((bytes < kMost ? bytes : kMost) + kDeviceLine - 1) / kDeviceLine;
      const int first = tile * kTile;
      const int count = of.out - first < kTile ? of.out - first : kTile;
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count * lines), [&](int i) {
        const T* const row = of.weight + (first + i / lines) * of.weight_leading;
        ask_for_line(reinterpret_cast<const char*>(row) + i % lines * kDeviceLine);
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
      add_rows_up(team, place);
      // The whole team knows, from what all of it has added up.
      if (is_any_lost(place)) add_rows_again(team, place);
      normalize(team, place);
    } else {
      combine(team, place);
    }
    team.team_barrier();
  }

  // Sums over a row are taken about the mean of its first columns, so that little is lost
  // of the variance of a row that is far from zero.
  KOKKOS_FORCEINLINE_FUNCTION A pivot_of(const T* x) const {
    const Piece<T> piece = load_piece<kAligned>(x, of.in);
    A sum{0};
    for (const T& one : piece.element) sum += static_cast<A>(one);
    return sum / static_cast<A>(of.in < kElements ? of.in : kElements);
  }
  KOKKOS_FUNCTION void add_rows_up(const TeamMember& team, const Place& place) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, kThreads), [&](int thread) {
      for (int r = 0; r < kRows; ++r) {
        if (r >= place.rows) break;
        const A pivot = pivot_of(given_row(place, r));
        place.row_sums[r * kPartSums + thread] =
            sums_of(given_row(place, r), thread, pivot);
        if (thread == 0) place.pivots[r] = pivot;
      }
    });
    add_threads_up(team, place);
  }
  // Of a thread's columns.
  KOKKOS_FORCEINLINE_FUNCTION RowSums<A> sums_of(const T* x, int thread, A pivot) const {
    RowSums<A> sums;
    for (int c = thread * kElements; c < of.in; c += kTeamColumns<T>) {
      const Piece<T> piece = load_piece<kAligned>(x + c, of.in - c);
      for (int e = 0; e < kElements; ++e) {
        if (!kAligned && c + e >= of.in) break;
        const A difference = static_cast<A>(piece.element[e]) - pivot;
        sums.sum += difference;
        sums.squares = multiply_add(difference, difference, sums.squares);
      }
    }
    return sums;
  }
  KOKKOS_FUNCTION void add_threads_up(const TeamMember& team, const Place& place) const {
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, place.rows * kGroups), [&](int i) {
      const int group = i % kGroups;
      RowSums<A>* const row = place.row_sums + i / kGroups * kPartSums;
      RowSums<A> sums;
      for (int k = 0; k < kGroup; ++k) sums.add(row[group * kGroup + k]);
      row[kThreads + group] = sums;
    });
    team.team_barrier();
  }

  // With every contraction written out, so that kernels for more rows have the same bits.
  KOKKOS_FORCEINLINE_FUNCTION Moments<A> moments_of(const Place& place, int r) const {
    RowSums<A> all;
    for (int group = 0; group < kGroups; ++group) {
      all.add(place.row_sums[r * kPartSums + kThreads + group]);
    }
    const A shift = all.sum * of.input.per_column;
    const A rest = multiply_add(-shift, shift, all.squares * of.input.per_column);
    return {shift, multiply_add(all.sum, of.input.per_column, place.pivots[r]), rest};
  }
  // Were the first columns far from all others, most of the variance would be lost.
  KOKKOS_FORCEINLINE_FUNCTION bool is_any_lost(const Place& place) const {
    bool is_lost = false;
    for (int r = 0; r < kRows; ++r) {
      if (r < place.rows && moments_of(place, r).is_lost()) is_lost = true;
    }
    return is_lost;
  }
  // Sums of such rows are taken about the mean that was found; those of others stay as
  // they are, so that a row has the same bits beside any.
  KOKKOS_FUNCTION void add_rows_again(const TeamMember& team, const Place& place) const {
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, kThreads), [&](int thread) {
      for (int r = 0; r < kRows; ++r) {
        if (r >= place.rows) break;
        const Moments<A> moments = moments_of(place, r);
        if (!moments.is_lost()) continue;
        place.row_sums[r * kPartSums + thread] =
            sums_of(given_row(place, r), thread, moments.center);
      }
    });
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, place.rows), [&](int r) {
      const Moments<A> moments = moments_of(place, r);
      if (moments.is_lost()) place.pivots[r] = moments.center;
    });
    add_threads_up(team, place);
  }

  KOKKOS_FUNCTION void normalize(const TeamMember& team, const Place& place) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, kThreads), [&](int thread) {
      for (int r = 0; r < kRows; ++r) {
        if (r >= place.rows) break;
        const T* const x = given_row(place, r);
        const Moments<A> moments = moments_of(place, r);
        const A center = moments.center;
        // Rounding may leave less than nothing of a row that is constant.
        const A variance = moments.variance > A{0} ? moments.variance : A{0};
        const A scale = A{1} / Kokkos::sqrt(variance + of.input.epsilon);
        for (int c = thread * kElements; c < of.in; c += kTeamColumns<T>) {
          const Piece<T> gamma = load_piece<kAligned>(of.input.gamma + c, of.in - c);
          const Piece<T> beta = load_piece<kAligned>(of.input.beta + c, of.in - c);
          Piece<T> piece = load_piece<kAligned>(x + c, of.in - c);
          for (int e = 0; e < kElements; ++e) {
            const A x_hat = (static_cast<A>(piece.element[e]) - center) * scale;
            piece.element[e] =
                static_cast<T>(multiply_add(x_hat, static_cast<A>(gamma.element[e]),
                                            static_cast<A>(beta.element[e])));
          }
          *reinterpret_cast<Piece<T>*>(place.x + r * staged_leading() + c) = piece;
        }
      }
    });
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
        Piece<T> piece;
        for (int e = 0; e < kElements; ++e) piece.element[e] = static_cast<T>(sum[e]);
        *reinterpret_cast<Piece<T>*>(to) = piece;
      } else {
        to[0] = static_cast<T>(sum[0]);
      }
    });
  }

  KOKKOS_FORCEINLINE_FUNCTION Piece<T> load_x(const Place& place, int r, int c) const {
    if constexpr (kStaged) {
      return load_piece<true>(place.x + r * staged_leading() + c, kElements);
    } else {
      return load_piece<kAligned>(given_row(place, r) + c, of.in - c);
    }
  }

  // sums = what each thread of a warp makes of its columns. Rows of W behind the last are
  // the last again.
  KOKKOS_FUNCTION void multiply(const TeamMember& team, const Place& place,
                                int tile) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, kThreads), [&](int thread) {
      const int lane = thread % kWarpThreads, warp = thread / kWarpThreads;
      const T* weight[kOut];
      for (int o = 0; o < kOut; ++o) {
        const int n = tile * kTile + warp * kOut + o;
        weight[o] = of.weight + (n < of.out ? n : of.out - 1) * of.weight_leading;
      }
      A sum[kOut][kRows] = {};
      for (int begin = lane * kElements; begin < of.in; begin += kTurns * kWidth) {
        add_turns(place, begin, weight, sum);
      }
      TRIREME_IN_REGISTERS
      for (int r = 0; r < kRows; ++r) {
        TRIREME_IN_REGISTERS
        for (int o = 0; o < kOut; ++o) {
          place.sums[(r * kTile + warp * kOut + o) * kParts + lane] = sum[o][r];
        }
      }
    });
  }
  KOKKOS_FORCEINLINE_FUNCTION void add_turns(const Place& place, int begin,
                                             const T* const (&weight)[kOut],
                                             A (&sum)[kOut][kRows]) const {
    Piece<T> part[kTurns][kOut] = {};
    TRIREME_IN_REGISTERS
    for (int turn = 0; turn < kTurns; ++turn) {
      const int c = begin + turn * kWidth;
      if (c >= of.in) continue;
      TRIREME_IN_REGISTERS
      for (int o = 0; o < kOut; ++o) {
        part[turn][o] = load_piece<kAligned>(weight[o] + c, of.in - c);
      }
    }
    TRIREME_IN_REGISTERS
    for (int turn = 0; turn < kTurns; ++turn) {
      const int c = begin + turn * kWidth;
      if (c >= of.in) continue;
      TRIREME_IN_REGISTERS
      for (int r = 0; r < kRows; ++r) {
        const Piece<T> piece = load_x(place, r, c);
        A x[kElements];
        TRIREME_IN_REGISTERS
        for (int e = 0; e < kElements; ++e) x[e] = static_cast<A>(piece.element[e]);
        TRIREME_IN_REGISTERS
        for (int o = 0; o < kOut; ++o) sum[o][r] += dot<T>(part[turn][o], x);
      }
    }
  }

  // What is beside the sums is read before they are taken.
  KOKKOS_FUNCTION void finish(const TeamMember& team, const Place& place,
                              int tile) const {
    const Output<T>& to = of.output;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, place.rows * kTile), [&](int i) {
      const int n = tile * kTile + i % kTile, row = place.row + i / kTile;
      if (n >= of.out) return;
      T* const result = place_of(row, n);
      const A bias = to.bias == nullptr ? A{0} : static_cast<A>(to.bias[n]);
      const A beside = to.residual == nullptr
                           ? A{0}
                           : static_cast<A>(to.residual[row * to.residual_leading + n]);
      const A* const part = place.sums + i * kParts;
      A sum[4] = {part[0], part[1], part[2], part[3]};
      for (int lane = 4; lane < kWarpThreads; lane += 4) {
        for (int k = 0; k < 4; ++k) sum[k] += part[lane + k];
      }
      const A z = (sum[0] + sum[2]) + (sum[1] + sum[3]) + bias;
      if (result == nullptr) return;
      *result = static_cast<T>((to.has_gelu ? gelu<T>(z) : z) + beside);
    });
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

template <class T, int kRows, int kOut, bool kStaged, bool kAligned>
bool fits(index_t in) {
  return DecodeLinear<T, kRows, kOut, kStaged, kAligned>::scratch_bytes(in) <=
         kScratchBytes;
}

template <class T, int kRows, int kOut, bool kStaged, bool kAligned>
void run(const Exec& exec, const Kernel& kernel, const Problem<T>& of) {
  const DecodeLinear<T, kRows, kOut, kStaged, kAligned> functor{of};
  // On a host, for tests, two, so that a barrier that is missing shows.
  constexpr int kHostThreads = 2;
  launch_early_teams(exec, kernel, functor.teams(), kThreads, functor,
                     functor.scratch_bytes(of.in), kHostThreads);
}

// The most rows of x at a time that there are and that fit.
template <class T, bool kStaged>
void choose(const Exec& exec, const Kernel& kernel, const Problem<T>& of) {
  if (!is_aligned(of)) {
    run<T, 1, 1, kStaged, false>(exec, kernel, of);
  } else if (of.rows > 4 && fits<T, 8, 2, kStaged, true>(of.in)) {
    run<T, 8, 2, kStaged, true>(exec, kernel, of);
  } else if (of.rows > 1 && fits<T, 4, 2, kStaged, true>(of.in)) {
    run<T, 4, 2, kStaged, true>(exec, kernel, of);
  } else if (of.out >= kManyOut) {
    run<T, 1, 4, kStaged, true>(exec, kernel, of);
  } else {
    run<T, 1, 1, kStaged, true>(exec, kernel, of);
  }
}

}  // namespace

template <class T>
bool has_decode_linear(index_t rows, index_t in) {
  return impl::decodes_by_teams() && rows >= 1 && rows <= kDecodeRows &&
         fits<T, 1, 4, true, true>(in);
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
  TRIREME_REQUIRE((fits<T, 1, 4, true, true>(of.in)),
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
