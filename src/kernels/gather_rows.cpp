// kernels/gather_rows.cpp — see gather_rows.hpp.
//
// The gradient goes through all rows of d_x, since those that were not picked are zeroed,
// and each looks for itself among the picked positions of its sample: these are some
// dozens, so that comparing costs little beside writing a row, and no row has two
// writers. Positions that are picked twice need no rule of their own then. Means are for
// embeddings of texts, once a text: nothing is made of their order but that it is fixed.
#include "kernels/gather_rows.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels {

namespace {

void check_picked(const char* kernel, const PickedPositions& picked, index_t rows,
                  index_t picked_rows) {
  TRIREME_REQUIRE(
      picked.batch > 0 && rows % picked.batch == 0 && picked_rows % picked.batch == 0,
      "kernels::{}: {}, of which {} are picked, are no multiples of the batch {}", kernel,
      format_plural(rows, "row"), picked_rows, picked.batch);
  require_extent(kernel, "positions", picked.positions, picked_rows);
}

}  // namespace

template <class T>
void gather_rows_forward(const Exec& exec, const PickedPositions& picked,
                         View2<const T> x, View2<T> y) {
  using A = Accumulator<T>;
  constexpr const char* kName = "gather_rows_forward";
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto picked_rows = static_cast<index_t>(y.extent(0));
  const auto h = static_cast<index_t>(x.extent(1));
  check_picked(kName, picked, rows, picked_rows);
  require_extents(kName, "y", y, picked_rows, h);

  const std::int32_t* const positions = picked.positions.data();
  const index_t batch = picked.batch, begin = picked.begin, count = rows / batch;
  const T* const x_data = x.data();
  T* const y_data = y.data();
  launch_rows(
      exec,
      {"trireme::kernels::gather_rows_forward",
       {.bytes = bytes_of(picked.positions, y) + bytes_of(y)}},
      picked_rows, ColumnsOfRows(h, x_data, y_data),
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const index_t at = positions[row] - begin;
        const bool is_here = positions[row] >= 0 && at >= 0 && at < count;
        const T* const in = x_data + (is_here ? at * batch + row % batch : 0) * h;
        T* const out = y_data + row * h;
        if (is_here) {
          for_each_lanes(team, h, [=](auto j) { write(out, j, read<A>(in, j)); });
        } else {
          for_each_column(team, h, [=](index_t j) { out[j] = static_cast<T>(A{0}); });
        }
      });
}

template <class T>
void gather_rows_backward(const Exec& exec, const PickedPositions& picked,
                          View2<const T> d_y, Accumulate accumulate, View2<T> d_x) {
  using A = Accumulator<T>;
  constexpr const char* kName = "gather_rows_backward";
  const auto rows = static_cast<index_t>(d_x.extent(0));
  const auto picked_rows = static_cast<index_t>(d_y.extent(0));
  const auto h = static_cast<index_t>(d_x.extent(1));
  check_picked(kName, picked, rows, picked_rows);
  require_extents(kName, "d_y", d_y, picked_rows, h);

  const std::int32_t* const positions = picked.positions.data();
  const index_t batch = picked.batch, begin = picked.begin;
  const T* const d_y_data = d_y.data();
  T* const d_x_data = d_x.data();
  const bool adds = accumulate == Accumulate::yes;
  const index_t touched = adds ? 2 * bytes_of(d_y) : bytes_of(d_x);
  launch_rows(
      exec,
      {"trireme::kernels::gather_rows_backward",
       {.bytes = bytes_of(picked.positions, d_y) + touched}},
      rows, ColumnsOfRows(h, d_y_data, d_x_data),
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const index_t position = begin + row / batch;
        T* const out = d_x_data + row * h;
        bool is_written = adds;
        for (index_t r = row % batch; r < picked_rows; r += batch) {
          if (positions[r] != position) continue;
          const T* const in = d_y_data + r * h;
          // A thread has the same columns each time, so that it reads what it wrote.
          if (is_written) {
            for_each_lanes(team, h, [=](auto j) {
              write(out, j, read<A>(out, j) + read<A>(in, j));
            });
          } else {
            for_each_lanes(team, h, [=](auto j) { write(out, j, read<A>(in, j)); });
          }
          is_written = true;
        }
        if (!is_written) {
          for_each_column(team, h, [=](index_t j) { out[j] = static_cast<T>(A{0}); });
        }
      });
}

template <class T>
void mean_rows(const Exec& exec, View1<const std::int32_t> lengths, View2<const T> x,
               View2<T> y) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto h = static_cast<index_t>(x.extent(1));
  const auto batch = static_cast<index_t>(y.extent(0));
  TRIREME_REQUIRE(batch > 0 && rows % batch == 0,
                  "kernels::mean_rows: {} are no multiple of the batch {}",
                  format_plural(rows, "row"), batch);
  require_extents("mean_rows", "y", y, batch, h);
  const bool has_lengths = lengths.extent(0) != 0;
  if (has_lengths) require_extent("mean_rows", "lengths", lengths, batch);

  const index_t all = rows / batch;
  const std::int32_t* const length_data = lengths.data();
  const T* const x_data = x.data();
  T* const y_data = y.data();
  launch_rows(
      exec, {"trireme::kernels::mean_rows", {.bytes = bytes_of(lengths, x, y)}}, batch,
      ColumnsOfRows(h, x_data, y_data),
      KOKKOS_LAMBDA(const RowTeam& team, index_t sample) {
        const index_t wanted = has_lengths ? length_data[sample] : all;
        const index_t length = wanted < all ? wanted : all;
        const A share = length > 0 ? A{1} / static_cast<A>(length) : A{0};
        T* const out = y_data + sample * h;
        for_each_column(team, h, [=](index_t j) {
          A sum{0};
          for (index_t position = 0; position < length; ++position) {
            sum += static_cast<A>(x_data[(position * batch + sample) * h + j]);
          }
          out[j] = static_cast<T>(sum * share);
        });
      });
}

template <class T>
void copy_rows_as_float(const Exec& exec, View2<const T> x, View2<float> y) {
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto columns = static_cast<index_t>(x.extent(1));
  require_extents("copy_rows_as_float", "y", y, rows, columns);
  launch(
      exec, {"trireme::kernels::copy_rows_as_float", {.bytes = bytes_of(x, y)}},
      rows * columns, KOKKOS_LAMBDA(const index_t i) {
        y(i / columns, i % columns) = static_cast<float>(x(i / columns, i % columns));
      });
}

#define TRIREME_INSTANTIATE(T)                                        \
  template decltype(gather_rows_forward<T>) gather_rows_forward<T>;   \
  template decltype(gather_rows_backward<T>) gather_rows_backward<T>; \
  template decltype(mean_rows<T>) mean_rows<T>;                       \
  template decltype(copy_rows_as_float<T>) copy_rows_as_float<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
