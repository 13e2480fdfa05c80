// kernels/cross_entropy.cpp — softmax cross-entropy over a shard of the vocabulary.
//
// Maximum and sum of exponentials are found together, a piece of the row at a time that
// the nearest cache holds (Milakov & Gimelshein 2018, arXiv:1805.02867): memory is read
// once. The gradient in place is a second pass over a row that the second cache holds. A
// host's thread asks for its next row while it works on this one, half of it in either
// pass, because memory would be idle while the exponentials of the second are computed:
//
//   this row     maximum and sum of pieces 0, 1, ... n    gradient of pieces 0, 1, ... n
//   next row     fetched: elements 0 ... half             half ... all
//
// The rows that a GPU has in hand at a time are more than its second cache holds: there a
// thread keeps a part of its row in registers (KeptLogits), and the rest does fit. As
// soon as the gradient of a kept piece is written, the next row's is loaded in its place.
//
// Derivation: docs/math/cross_entropy.md
#include "kernels/cross_entropy.hpp"

#include <type_traits>
#include <utility>

#include "kernels/impl/lanes.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/impl/softmax_rows.hpp"
#include "kernels/impl/vector_math.hpp"

namespace trireme::kernels {
namespace {

using impl::Ahead;
using impl::kSoftmaxPiece;
using impl::RowStatistics;
using impl::SoftmaxRows;

// Whether there may be loops in a host's longest vectors, besides the plain ones here.
template <class T>
constexpr bool kMayHaveVectors = !kRowsByTeams && sizeof(T) == 2;

template <class T>
SoftmaxRows<T> vectors_of_host() {
  if constexpr (kMayHaveVectors<T>) return impl::softmax_rows<T>();
  return {};
}

// The label's logit where the label lies in this shard, else 0.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION Accumulator<T> label_logit(const VocabRange& range,
                                                       const T* logits,
                                                       std::int32_t label) {
  const index_t column = static_cast<index_t>(label) - range.begin;
  return column >= 0 && column < range.valid_columns
             ? static_cast<Accumulator<T>>(logits[column])
             : Accumulator<T>{0};
}

// Columns of whole pieces. Places within a row are of 32 bits in loops over kept pieces
// (require_range): with 64 each address would cost some instructions.
KOKKOS_FORCEINLINE_FUNCTION int end_of_pieces(const TeamRow& team, index_t count) {
  return team.has_pieces ? static_cast<int>(count) / kPieceColumns * kPieceColumns : 0;
}

// What of a row is kept from a pass over it for the next one: in registers, the first
// pieces that a thread of a GPU has of it. They are loaded before the first pass, those
// of the next row each as soon as the second pass is done with this row's.
template <class T, int kCount>
struct KeptPieces {
  static constexpr int kPieces = kCount;
  StoredEight<T> piece[kCount > 0 ? kCount : 1];

  template <int kPiece>
  KOKKOS_FORCEINLINE_FUNCTION void load_one(const TeamRow& team, const T* in, int end) {
    const int at = kPieceColumns * (team.rank + kPiece * team.size);
    if (at < end) piece[kPiece] = load_stored(in, PieceAt{at});
  }
  KOKKOS_FORCEINLINE_FUNCTION void load(const TeamRow& team, const T* in, index_t count) {
    const int end = end_of_pieces(team, count);
    detail::unrolled(std::make_integer_sequence<int, kCount>(),
                     [&](auto p) { load_one<decltype(p)::value>(team, in, end); });
  }
  KOKKOS_FORCEINLINE_FUNCTION void load(const HostRow&, const T*, index_t) {}
};
// Where one pass is all, or rows stay in a cache.
template <class T>
using NothingKept = KeptPieces<T, 0>;
// As many as there are registers for beside those that are worked on.
template <class T>
using KeptLogits = KeptPieces<T, kRowsByTeams && sizeof(T) == 2 ? 6 : 0>;

// The largest of `count` logits, and the sum of exp(logit - largest).
template <class T, class Kept>
KOKKOS_FORCEINLINE_FUNCTION RowStatistics<Accumulator<T>> statistics_of_row(
    const HostRow& team, const SoftmaxRows<T>& vectors, const T* in, index_t count,
    const Ahead<T>& ahead, Kept&) {
  using A = Accumulator<T>;
  if constexpr (kMayHaveVectors<T>) {
    if (vectors.statistics != nullptr) return vectors.statistics(in, count, ahead);
  }
  // No infinity: less itself it would be NaN, in a piece of logits that all are minus
  // infinity.
  A largest = Kokkos::Experimental::finite_min_v<A>;
  A sum{0};
  for (index_t begin = 0; begin < count; begin += kSoftmaxPiece) {
    const index_t width = tile_width(count, begin, kSoftmaxPiece);
    const T* const piece = in + begin;
    ahead.fetch(team, begin, width);
    const A piece_max =
        max_columns<A>(team, width, [=](index_t j) { return static_cast<A>(piece[j]); });
    if (piece_max > largest) {
      sum *= vector_exp(largest - piece_max);  // by 0 the first time
      largest = piece_max;
    }
    sum += sum_columns<A>(team, width, [=](index_t j) {
      return vector_exp(static_cast<A>(piece[j]) - largest);
    });
  }
  return {largest, sum};
}

// What a thread of a GPU finds of its columns in one pass.
template <class T>
struct alignas(detail::kReducedAlignment<Accumulator<T>, 2>) RunningStatistics {
  using A = Accumulator<T>;
  static constexpr bool kIsSymmetric = false;  // one of the two sums is scaled
  A largest = Kokkos::Experimental::finite_min_v<A>;
  A sum{0};

  // NaN is no maximum, and makes the sum one.
  KOKKOS_FORCEINLINE_FUNCTION void raise(A to) {
    if (!(to > largest)) return;
    sum *= exp_for<T>(largest - to);
    largest = to;
  }
  KOKKOS_FORCEINLINE_FUNCTION void add(A logit) {
    raise(logit);
    sum += exp_for<T>(logit - largest);
  }
  KOKKOS_FORCEINLINE_FUNCTION void add(const Eight<A>& logits) {
    A most = logits.of[0];
    for (const A& logit : logits.of) most = Kokkos::fmax(most, logit);
    raise(most);
    const A shift = largest;
    sum += sum_of(mapped(logits, [=](A logit) { return exp_for<T>(logit - shift); }));
  }
  KOKKOS_FORCEINLINE_FUNCTION void join(const RunningStatistics& other) {
    raise(other.largest);
    sum += other.sum * exp_for<T>(other.largest - largest);
  }
};

// body(logits, j) for the pieces of a row that a thread has, in order, and for columns
// that are no whole piece, of which logits is one: kept ones from where they are kept,
// then used(p) of the piece p, which may put another in its place; others loaded a piece
// ahead.
template <class T, class Kept, class Body, class Used>
KOKKOS_FORCEINLINE_FUNCTION void for_each_kept(const TeamRow& team, const T* in,
                                               index_t count, const Kept& kept,
                                               const Body& body, const Used& used) {
  using A = Accumulator<T>;
  constexpr int kKept = Kept::kPieces;
  if constexpr (kKept == 0) {  // to load ahead costs registers, and so threads
    for_each_lanes(team, count, [&](auto j) { body(read<A>(in, j), j); });
    return;
  }
  const int end = end_of_pieces(team, count);
  const int apart = kPieceColumns * team.size;
  const int first = kPieceColumns * team.rank;
  int at = kKept * apart + first;
  StoredEight<T> next{};
  if (at < end) next = load_stored(in, PieceAt{at});
  detail::unrolled(std::make_integer_sequence<int, kKept>(), [&](auto p) {
    constexpr int kPiece = decltype(p)::value;
    const int of_kept = kPiece * apart + first;
    if (of_kept < end) body(numbers_of<A>(kept.piece[kPiece]), PieceAt{of_kept});
    used(p);
  });
  while (at < end) {
    const StoredEight<T> now = next;
    const int behind = apart + at;
    if (behind < end) next = load_stored(in, PieceAt{behind});
    body(numbers_of<A>(now), PieceAt{at});
    at = behind;
  }
  for (index_t j = end + team.rank; j < count; j += team.size) body(read<A>(in, j), j);
}

template <class T, class Kept>
KOKKOS_FORCEINLINE_FUNCTION RowStatistics<Accumulator<T>> statistics_of_row(
    const TeamRow& team, const SoftmaxRows<T>&, const T* in, index_t count,
    const Ahead<T>&, Kept& kept) {
  RunningStatistics<T> running;
  for_each_kept(
      team, in, count, kept, [&](const auto& logits, auto) { running.add(logits); },
      [](auto) {});
  running = detail::reduce(team, running);
  return {running.largest, running.sum};
}

// in[j] = exp(in[j] - largest) * factor
template <class T, class Kept>
KOKKOS_FORCEINLINE_FUNCTION void softmax_of_row(const HostRow& team,
                                                const SoftmaxRows<T>& vectors,
                                                index_t count, Accumulator<T> largest,
                                                Accumulator<T> factor, T* in,
                                                const Ahead<T>& ahead, Kept&) {
  using A = Accumulator<T>;
  if constexpr (kMayHaveVectors<T>) {
    if (vectors.gradient != nullptr) {
      return vectors.gradient(in, count, largest, factor, ahead);
    }
  }
  for (index_t begin = 0; begin < count; begin += kSoftmaxPiece) {
    const index_t width = tile_width(count, begin, kSoftmaxPiece);
    T* const piece = in + begin;
    ahead.fetch(team, begin, width);
    for_each_column(team, width, [=](index_t j) {
      piece[j] = static_cast<T>(exp_for<T>(static_cast<A>(piece[j]) - largest) * factor);
    });
  }
}

template <class T, class Kept>
KOKKOS_FORCEINLINE_FUNCTION void softmax_of_row(const TeamRow& team,
                                                const SoftmaxRows<T>&, index_t count,
                                                Accumulator<T> largest,
                                                Accumulator<T> factor, T* in,
                                                const Ahead<T>& ahead, Kept& kept) {
  using A = Accumulator<T>;
  const int end = end_of_pieces(team, count);
  for_each_kept(
      team, in, count, kept,
      [&](const auto& logits, auto j) {
        write(in, j, mapped(logits, [=](A logit) {
                return exp_for<T>(logit - largest) * factor;
              }));
      },
      [&](auto p) {
        if (ahead.from != nullptr) {
          kept.template load_one<decltype(p)::value>(team, ahead.from, end);
        }
      });
}

// What is fetched while a row's gradient is made: the half of the next row that is left,
// or what a GPU's thread keeps of it.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION Ahead<T> ahead_of_gradient(const HostRow&, const T* next,
                                                       const VocabRange& range) {
  return {next == nullptr ? next : next + range.valid_columns / 2, 2};
}
template <class T>
KOKKOS_FORCEINLINE_FUNCTION Ahead<T> ahead_of_gradient(const TeamRow&, const T* next,
                                                       const VocabRange&) {
  return {next, 1};
}

// Logits of a row become d_logits = weight * (exp(logit - largest) / sum - one_hot), and
// those of padding zero.
template <class T, class Kept>
KOKKOS_FORCEINLINE_FUNCTION void gradient_of_row(
    const RowTeam& team, const SoftmaxRows<T>& vectors, const VocabRange& range,
    index_t columns, std::int32_t label, const RowStatistics<Accumulator<T>>& of_row,
    Accumulator<T> weight, T* in, Kept& kept, const Ahead<T>& ahead = {}) {
  using A = Accumulator<T>;
  const A largest = of_row.largest;
  const A factor = weight / of_row.sum;
  const index_t column = static_cast<index_t>(label) - range.begin;
  const bool is_here = column >= 0 && column < range.valid_columns;
  // Kept from before the row is overwritten.
  const A label_value = label_logit(range, in, label);
  team_barrier(team);
  softmax_of_row(team, vectors, range.valid_columns, largest, factor, in, ahead, kept);
  T* const padding = in + range.valid_columns;
  for_each_column(team, columns - range.valid_columns,
                  [=](index_t j) { padding[j] = static_cast<T>(A{0}); });
  team_barrier(team);
  if (is_here) {
    for_each_column(team, 1, [=](index_t j) {
      in[column + j] =
          static_cast<T>(exp_for<T>(label_value - largest) * factor - weight);
    });
  }
}

template <class T>
KOKKOS_FORCEINLINE_FUNCTION void zero_row(const RowTeam& team, index_t columns, T* in) {
  for_each_column(team, columns,
                  [=](index_t j) { in[j] = static_cast<T>(Accumulator<T>{0}); });
}

template <class View>
void require_range(const char* kernel, const VocabRange& range, const View& logits) {
  const auto columns = static_cast<index_t>(logits.extent(1));
  TRIREME_REQUIRE(range.valid_columns >= 0 && range.valid_columns <= columns,
                  "kernels::{}: {} valid columns of {}", kernel, range.valid_columns,
                  columns);
  // A thread of a GPU goes on by a team's pieces, and may step over the end once.
  constexpr index_t kMost = index_t{1} << 30;
  TRIREME_REQUIRE(columns <= kMost, "kernels::{}: {}, more than {}", kernel,
                  format_plural(columns, "column"), kMost);
}

}  // namespace

template <class T>
void cross_entropy_row_max(const Exec& exec, VocabRange range, View2<const T> logits,
                           View1<Accumulator<T>> row_max) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(logits.extent(0));
  const auto columns = static_cast<index_t>(logits.extent(1));
  require_range("cross_entropy_row_max", range, logits);
  require_extent("cross_entropy_row_max", "row_max", row_max, rows);

  const T* const logits_data = logits.data();
  A* const max_data = row_max.data();
  launch_rows(
      exec,
      {"trireme::kernels::cross_entropy_row_max", {.bytes = bytes_of(logits, row_max)}},
      rows, KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const in = logits_data + row * columns;
        max_data[row] = max_columns<A>(team, range.valid_columns,
                                       [=](index_t j) { return static_cast<A>(in[j]); });
      });
}

template <class T>
void cross_entropy_row_sums(const Exec& exec, VocabRange range, View2<const T> logits,
                            View1<const std::int32_t> labels,
                            View1<const Accumulator<T>> row_max,
                            View2<Accumulator<T>> sums) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(logits.extent(0));
  const auto columns = static_cast<index_t>(logits.extent(1));
  require_range("cross_entropy_row_sums", range, logits);
  require_extent("cross_entropy_row_sums", "labels", labels, rows);
  require_extent("cross_entropy_row_sums", "row_max", row_max, rows);
  require_extents("cross_entropy_row_sums", "sums", sums, rows, 2);

  const T* const logits_data = logits.data();
  const std::int32_t* const label_data = labels.data();
  const A* const max_data = row_max.data();
  A* const sums_data = sums.data();
  launch_rows(
      exec,
      {"trireme::kernels::cross_entropy_row_sums",
       {.bytes = bytes_of(logits, labels, row_max, sums)}},
      rows, KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const in = logits_data + row * columns;
        const A largest = max_data[row];
        const A sum = sum_columns<A>(team, range.valid_columns, [=](index_t j) {
          return exp_for<T>(static_cast<A>(in[j]) - largest);
        });
        sums_data[2 * row] = sum;
        sums_data[2 * row + 1] = label_logit(range, in, label_data[row]);
      });
}

template <class T>
void cross_entropy_row_max_and_sums(const Exec& exec, VocabRange range,
                                    View2<const T> logits,
                                    View1<const std::int32_t> labels,
                                    View1<Accumulator<T>> row_max,
                                    View2<Accumulator<T>> sums) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(logits.extent(0));
  const auto columns = static_cast<index_t>(logits.extent(1));
  require_range("cross_entropy_row_max_and_sums", range, logits);
  require_extent("cross_entropy_row_max_and_sums", "labels", labels, rows);
  require_extent("cross_entropy_row_max_and_sums", "row_max", row_max, rows);
  require_extents("cross_entropy_row_max_and_sums", "sums", sums, rows, 2);

  const T* const logits_data = logits.data();
  const std::int32_t* const label_data = labels.data();
  A* const max_data = row_max.data();
  A* const sums_data = sums.data();
  const SoftmaxRows<T> vectors = vectors_of_host<T>();
  launch_rows(
      exec,
      {"trireme::kernels::cross_entropy_row_max_and_sums",
       {.bytes = bytes_of(logits, labels, row_max, sums)}},
      rows, ColumnsOfRows(columns, logits_data),
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const in = logits_data + row * columns;
        const Ahead<T> ahead{row + 1 < rows ? in + columns : nullptr, 1};
        NothingKept<T> nothing;
        const auto [largest, sum] =
            statistics_of_row<T>(team, vectors, in, range.valid_columns, ahead, nothing);
        max_data[row] = largest;
        sums_data[2 * row] = sum;
        sums_data[2 * row + 1] = label_logit(range, in, label_data[row]);
      });
}

template <class T>
void cross_entropy_loss(const Exec& exec, View1<const Accumulator<T>> row_max,
                        View2<const Accumulator<T>> sums, View1<const float> mask,
                        View1<Accumulator<T>> loss, View1<double> totals) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(row_max.extent(0));
  require_extents("cross_entropy_loss", "sums", sums, rows, 2);
  require_extent("cross_entropy_loss", "mask", mask, rows);
  require_extent("cross_entropy_loss", "loss", loss, rows);
  require_extent("cross_entropy_loss", "totals", totals, 2);

  const A* const max_data = row_max.data();
  const A* const sums_data = sums.data();
  const float* const mask_data = mask.data();
  A* const loss_data = loss.data();
  double* const totals_data = totals.data();
  // One team takes all rows: these are a few thousand logarithms only, and their sum
  // keeps one order.
  launch_rows(
      exec,
      {"trireme::kernels::cross_entropy_loss",
       {.bytes = bytes_of(row_max, sums, mask, loss, totals, totals)}},
      rows > 0 ? 1 : 0, KOKKOS_LAMBDA(const RowTeam& team, index_t) {
        const double loss_sum = sum_columns<double>(team, rows, [=](index_t r) {
          // The difference of two logits is exact or nearly so, and log S is of the size
          // of the loss: max + log S would round to the last place of the maximum.
          const A value =
              (max_data[r] - sums_data[2 * r + 1]) + vector_log(sums_data[2 * r]);
          loss_data[r] = value;
          const auto weight = static_cast<double>(mask_data[r]);
          // A row that does not count may hold anything, NaN included.
          return weight == 0.0 ? 0.0 : weight * static_cast<double>(value);
        });
        const double mask_sum = sum_columns<double>(
            team, rows, [=](index_t r) { return static_cast<double>(mask_data[r]); });
        for_each_column(team, 1, [=](index_t j) {
          totals_data[j] += loss_sum;
          totals_data[j + 1] += mask_sum;
        });
      });
}

template <class T>
void cross_entropy_backward(const Exec& exec, VocabRange range, StepStateView step,
                            ObjectiveScale objective, View1<const std::int32_t> labels,
                            View1<const float> mask, View1<const Accumulator<T>> row_max,
                            View2<const Accumulator<T>> sums, View2<T> logits) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(logits.extent(0));
  const auto columns = static_cast<index_t>(logits.extent(1));
  require_range("cross_entropy_backward", range, logits);
  require_extent("cross_entropy_backward", "labels", labels, rows);
  require_extent("cross_entropy_backward", "mask", mask, rows);
  require_extent("cross_entropy_backward", "row_max", row_max, rows);
  require_extents("cross_entropy_backward", "sums", sums, rows, 2);

  T* const logits_data = logits.data();
  const std::int32_t* const label_data = labels.data();
  const float* const mask_data = mask.data();
  const A* const max_data = row_max.data();
  const A* const sums_data = sums.data();
  const StepState* const state = step.data();
  const SoftmaxRows<T> vectors = vectors_of_host<T>();
  launch_rows(
      exec,
      {"trireme::kernels::cross_entropy_backward",
       {.bytes = bytes_of(labels, mask, row_max, sums, logits, logits)}},
      rows, ColumnsOfRows(columns, logits_data),
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        T* const in = logits_data + row * columns;
        if (mask_data[row] == 0.0f) {
          zero_row(team, columns, in);
          return;
        }
        const A weight =
            static_cast<A>(objective.in(*state) * static_cast<double>(mask_data[row]));
        NothingKept<T> nothing;
        gradient_of_row<T>(team, vectors, range, columns, label_data[row],
                           {max_data[row], sums_data[2 * row]}, weight, in, nothing);
      });
}

template <class T>
void cross_entropy_in_place(const Exec& exec, VocabRange range, StepStateView step,
                            ObjectiveScale objective, View1<const std::int32_t> labels,
                            View1<const float> mask, View2<T> logits,
                            View1<Accumulator<T>> row_max, View2<Accumulator<T>> sums) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(logits.extent(0));
  const auto columns = static_cast<index_t>(logits.extent(1));
  require_range("cross_entropy_in_place", range, logits);
  require_extent("cross_entropy_in_place", "labels", labels, rows);
  require_extent("cross_entropy_in_place", "mask", mask, rows);
  require_extent("cross_entropy_in_place", "row_max", row_max, rows);
  require_extents("cross_entropy_in_place", "sums", sums, rows, 2);

  T* const logits_data = logits.data();
  const std::int32_t* const label_data = labels.data();
  const float* const mask_data = mask.data();
  A* const max_data = row_max.data();
  A* const sums_data = sums.data();
  const StepState* const state = step.data();
  const SoftmaxRows<T> vectors = vectors_of_host<T>();
  launch_kept_rows<T>(
      exec,
      {"trireme::kernels::cross_entropy_in_place",
       {.bytes = bytes_of(labels, mask, row_max, sums, logits, logits)}},
      rows, ColumnsOfRows(columns, logits_data),
      KOKKOS_LAMBDA(const RowTeam& team, const RowsInTurn& mine) {
        const double of_objective = objective.in(*state);
        T* in = logits_data + mine.begin * columns;
        KeptLogits<T> kept;
        kept.load(team, in, range.valid_columns);
        for (index_t row = mine.begin; row < rows; row += mine.step) {
          const index_t to_next = mine.to_next * columns;
          const T* const next = row + mine.to_next < rows ? in + to_next : nullptr;
          const Ahead<T> first{next, 2};
          const auto of_row =
              statistics_of_row<T>(team, vectors, in, range.valid_columns, first, kept);
          max_data[row] = of_row.largest;
          sums_data[2 * row] = of_row.sum;
          const std::int32_t label = label_data[row];
          const float counts = mask_data[row];
          sums_data[2 * row + 1] = label_logit(range, in, label);
          if (counts == 0.0f) {
            team_barrier(team);  // the label's logit has been read
            zero_row(team, columns, in);
            if (next != nullptr) kept.load(team, next, range.valid_columns);
          } else {
            const A weight = static_cast<A>(of_objective * static_cast<double>(counts));
            gradient_of_row<T>(team, vectors, range, columns, label, of_row, weight, in,
                               kept, ahead_of_gradient(team, next, range));
          }
          in += to_next;
        }
      });
}

#define TRIREME_INSTANTIATE(T)                                            \
  template decltype(cross_entropy_row_max<T>) cross_entropy_row_max<T>;   \
  template decltype(cross_entropy_row_sums<T>) cross_entropy_row_sums<T>; \
  template decltype(cross_entropy_row_max_and_sums<T>)                    \
      cross_entropy_row_max_and_sums<T>;                                  \
  template decltype(cross_entropy_backward<T>) cross_entropy_backward<T>; \
  template decltype(cross_entropy_in_place<T>) cross_entropy_in_place<T>; \
  template decltype(cross_entropy_loss<T>) cross_entropy_loss<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
