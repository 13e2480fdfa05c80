// kernels/gelu.cpp — GeLU and its gradient, each in one pass over the activation.
//
// The gradient is summed over rows in the same pass, since the gradient of the bias is
// that sum. A thread of a GPU has the same eight columns of many rows and, because it
// computes for as long as it waits, the next two rows under way. A host goes through a
// block twice: the loop that computes has longer vectors without the sum, which then
// finds its numbers in cache.
#include "kernels/gelu.hpp"

#include "kernels/impl/column_sums.hpp"
#include "kernels/impl/gelu.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/reductions.hpp"

namespace trireme::kernels {

template <class T>
void gelu_forward(const Exec& exec, View2<const T> z, View2<T> y) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(z.extent(0));
  const auto f = static_cast<index_t>(z.extent(1));
  require_extents("gelu_forward", "y", y, rows, f);

  const T* const z_data = z.data();
  T* const y_data = y.data();
  launch_rows(
      exec, {"trireme::kernels::gelu_forward", {.bytes = bytes_of(z, y)}}, rows,
      ColumnsOfRows(f, z_data, y_data), KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const in = z_data + row * f;
        T* const out = y_data + row * f;
        for_each_lanes(team, f, [=](auto j) {
          write(out, j, mapped(read_streamed<A>(in, j), [](A z) { return gelu<T>(z); }));
        });
      });
}

namespace {

// What a thread of a GPU reads of a row.
template <class T>
struct LoadedSlope {
  StoredEight<T> d_y, z;
};

// The gradient of a thread's piece of every row of a block, and its sum over them: two
// rows are under way while one is worked on. Rows lie f apart.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void gelu_backward_in_registers(
    const BlockOfRows<Accumulator<T>, 1>& block, PieceAt in_row, const T* d_y, const T* z,
    T* d_z, index_t f) {
  using A = Accumulator<T>;
  Eight<A> sum(A{0});
  LoadedSlope<T> next{}, after{};
  const index_t begin = block.rows.begin, end = block.rows.end, step = block.rows.step;
  const auto load = [&](index_t row, LoadedSlope<T>& to) {
    if (row >= end) return;
    const PieceAt at = row * f + in_row;
    to = {load_stored(d_y, at), load_stored(z, at)};
  };
  load(begin, next);
  load(begin + step, after);
  for (index_t row = begin; row < end; row += step) {
    const LoadedSlope<T> now = next;
    next = after;
    load(row + 2 * step, after);
    const Eight<A> slope =
        mapped(numbers_of<A>(now.z), [](A value) { return gelu_slope<T>(value); });
    sum = sum + written<A>(d_z, row * f + in_row, numbers_of<A>(now.d_y) * slope);
  }
  write(block.to[0], in_row, sum);
}

// d_z of some columns of a block of rows, which lie f apart, and its sums over them.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void gelu_backward_of_block(
    const TeamRow& team, const BlockOfRows<Accumulator<T>, 1>& block, const T* d_y,
    const T* z, T* d_z, index_t f) {
  using A = Accumulator<T>;
  if (holds_one_piece(team, block.h)) {
    const PieceAt in_row{index_t{kPieceColumns} * team.rank};
    if (in_row.j < block.h) {
      gelu_backward_in_registers<T>(block, in_row, d_y, z, d_z, f);
    }
    return;
  }
  write_and_sum_rows(team, block, [=](const TeamRow&, index_t row) {
    const T* const d_out = d_y + row * f;
    const T* const in = z + row * f;
    T* const d_in = d_z + row * f;
    return [=](auto j, const auto&) {
      const auto slope =
          mapped(read<A>(in, j), [](A value) { return gelu_slope<T>(value); });
      return terms_of(written<A>(d_in, j, read<A>(d_out, j) * slope));
    };
  });
}

// Two loops; the second finds its numbers in cache. What is summed is the gradient as it
// is stored, which the weight gradient reads, too.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void gelu_backward_of_block(
    const HostRow& team, const BlockOfRows<Accumulator<T>, 1>& block, const T* d_y,
    const T* z, T* d_z, index_t f) {
  using A = Accumulator<T>;
  for (index_t row = block.rows.begin; row < block.rows.end; ++row) {
    const T* const d_out = d_y + row * f;
    const T* const in = z + row * f;
    T* const d_in = d_z + row * f;
    for_each_lanes(team, block.h, [=](auto j) {
      const auto slope =
          mapped(read_streamed<A>(in, j), [](A value) { return gelu_slope<T>(value); });
      write(d_in, j, read_streamed<A>(d_out, j) * slope);
    });
  }
  sum_block(team, block.rows, 0, block.h, block.to[0], [=](index_t row) {
    const T* const d_in = d_z + row * f;
    return [=](auto j) { return read<A>(d_in, j); };
  });
}

}  // namespace

template <class T>
void gelu_backward(const Exec& exec, View2<const T> d_y, View2<const T> z, View2<T> d_z,
                   View2<Accumulator<T>> partials) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(z.extent(0));
  const auto f = static_cast<index_t>(z.extent(1));
  const RowBlocks blocks(rows, RowBlocks::most_tiled(f));
  require_extents("gelu_backward", "d_y", d_y, rows, f);
  require_extents("gelu_backward", "d_z", d_z, rows, f);
  require_extents("gelu_backward", "partials", partials, blocks.count, f);

  const T* const d_y_data = d_y.data();
  const T* const z_data = z.data();
  T* const d_z_data = d_z.data();
  A* const sums = partials.data();
  const index_t tile = column_tile(f), tiles = tiles_of(f, tile);
  launch_held_blocks<T, kThreadsOfTiles>(
      exec,
      {"trireme::kernels::gelu_backward", {.bytes = bytes_of(d_y, z, d_z, partials)}},
      blocks.count * tiles,
      ColumnsOfRows(f, d_y_data, z_data, d_z_data, sums).in_tiles(tile),
      KOKKOS_LAMBDA(const RowTeam& team, index_t item) {
        const index_t block = item / tiles;
        const index_t column = item % tiles * tile;
        const index_t width = tile_width(f, column, tile);
        const BlockOfRows<A, 1> to{blocks.of(block), width, {sums + block * f + column}};
        gelu_backward_of_block<T>(team, to, d_y_data + column, z_data + column,
                                  d_z_data + column, f);
      });
}

#define TRIREME_INSTANTIATE(T)                        \
  template decltype(gelu_forward<T>) gelu_forward<T>; \
  template decltype(gelu_backward<T>) gelu_backward<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
