// kernels/cross_entropy.cpp — softmax cross-entropy over a shard of the vocabulary.
//
// Maximum and sum of exponentials are found together, a cache-sized piece of the row at a
// time (Milakov & Gimelshein 2018, arXiv:1805.02867): memory is read once. Derivation:
// docs/math/cross_entropy.md
#include "kernels/cross_entropy.hpp"

#include "kernels/impl/rows.hpp"
#include "kernels/impl/vector_math.hpp"

namespace trireme::kernels {
namespace {

// The columns that are gone through at a time: they are read from memory for the maximum,
// and from the nearest cache for the sum. A GPU's team needs enough of them for all its
// threads.
constexpr index_t kPiece = kHostExecution ? 1024 : 4096;

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

template <class View>
void require_range(const char* kernel, const VocabRange& range, const View& logits) {
  TRIREME_REQUIRE(range.valid_columns >= 0 &&
                      range.valid_columns <= static_cast<index_t>(logits.extent(1)),
                  "kernels::{}: {} valid columns of {}", kernel, range.valid_columns,
                  logits.extent(1));
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
          return vector_exp(static_cast<A>(in[j]) - largest);
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
  launch_rows(
      exec,
      {"trireme::kernels::cross_entropy_row_max_and_sums",
       {.bytes = bytes_of(logits, labels, row_max, sums)}},
      rows, KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const in = logits_data + row * columns;
        A largest = -Kokkos::Experimental::infinity_v<A>;
        A sum{0};
        for (index_t begin = 0; begin < range.valid_columns; begin += kPiece) {
          const index_t left = range.valid_columns - begin;
          const index_t count = left < kPiece ? left : kPiece;
          const T* const piece = in + begin;
          const A piece_max = max_columns<A>(
              team, count, [=](index_t j) { return static_cast<A>(piece[j]); });
          if (piece_max > largest) {
            sum *= vector_exp(largest - piece_max);  // exp(-inf) = 0 the first time
            largest = piece_max;
          }
          sum += sum_columns<A>(team, count, [=](index_t j) {
            return vector_exp(static_cast<A>(piece[j]) - largest);
          });
        }
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
  launch_rows(
      exec,
      {"trireme::kernels::cross_entropy_backward",
       {.bytes = bytes_of(labels, mask, row_max, sums, logits, logits)}},
      rows, KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        T* const in = logits_data + row * columns;
        const A weight =
            static_cast<A>(objective.in(*state) * static_cast<double>(mask_data[row]));
        if (mask_data[row] == 0.0f) {
          for_each_column(team, columns,
                          [=](index_t j) { in[j] = static_cast<T>(A{0}); });
          return;
        }
        const A largest = max_data[row];
        const A factor = weight / sums_data[2 * row];
        const index_t label = static_cast<index_t>(label_data[row]) - range.begin;
        const bool is_here = label >= 0 && label < range.valid_columns;
        // Kept from before the row is overwritten.
        const A label_value = label_logit(range, in, label_data[row]);
        team_barrier(team);
        for_each_column(team, range.valid_columns, [=](index_t j) {
          in[j] = static_cast<T>(vector_exp(static_cast<A>(in[j]) - largest) * factor);
        });
        T* const padding = in + range.valid_columns;
        for_each_column(team, columns - range.valid_columns,
                        [=](index_t j) { padding[j] = static_cast<T>(A{0}); });
        team_barrier(team);
        if (is_here) {
          for_each_column(team, 1, [=](index_t j) {
            in[label + j] =
                static_cast<T>(vector_exp(label_value - largest) * factor - weight);
          });
        }
      });
}

#define TRIREME_INSTANTIATE(T)                                            \
  template decltype(cross_entropy_row_max<T>) cross_entropy_row_max<T>;   \
  template decltype(cross_entropy_row_sums<T>) cross_entropy_row_sums<T>; \
  template decltype(cross_entropy_row_max_and_sums<T>)                    \
      cross_entropy_row_max_and_sums<T>;                                  \
  template decltype(cross_entropy_backward<T>) cross_entropy_backward<T>; \
  template decltype(cross_entropy_loss<T>) cross_entropy_loss<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
