// kernels/gelu.cpp — GeLU and its gradient, each in one pass over the activation.
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

// d_z of some columns of a block of rows, which lie f apart, and its sums over them.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void gelu_backward_of_block(
    const TeamRow& team, const BlockOfRows<Accumulator<T>, 1>& block, const T* d_y,
    const T* z, T* d_z, index_t f) {
  using A = Accumulator<T>;
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
  for (index_t row = block.begin; row < block.end; ++row) {
    const T* const d_out = d_y + row * f;
    const T* const in = z + row * f;
    T* const d_in = d_z + row * f;
    for_each_lanes(team, block.h, [=](auto j) {
      const auto slope =
          mapped(read_streamed<A>(in, j), [](A value) { return gelu_slope<T>(value); });
      write(d_in, j, read_streamed<A>(d_out, j) * slope);
    });
  }
  sum_block(team, block.begin, block.end, 0, block.h, block.to[0], [=](index_t row) {
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
  const RowBlocks blocks(rows);
  require_extents("gelu_backward", "d_y", d_y, rows, f);
  require_extents("gelu_backward", "d_z", d_z, rows, f);
  require_extents("gelu_backward", "partials", partials, blocks.count, f);

  const T* const d_y_data = d_y.data();
  const T* const z_data = z.data();
  T* const d_z_data = d_z.data();
  A* const sums = partials.data();
  const index_t tile = column_tile(f), tiles = tiles_of(f, tile);
  launch_rows(
      exec,
      {"trireme::kernels::gelu_backward", {.bytes = bytes_of(d_y, z, d_z, partials)}},
      blocks.count * tiles,
      ColumnsOfRows(f, d_y_data, z_data, d_z_data, sums).in_tiles(tile),
      KOKKOS_LAMBDA(const RowTeam& team, index_t item) {
        const index_t block = item / tiles;
        const index_t column = item % tiles * tile;
        const index_t width = tile_width(f, column, tile);
        const BlockOfRows<A, 1> to{blocks.begin(block),
                                   blocks.begin(block + 1),
                                   width,
                                   {sums + block * f + column}};
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
