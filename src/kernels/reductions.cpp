// kernels/reductions.cpp — sums whose order is a function of the shape alone.
//
// Rows (or elements) are cut in blocks; each block's sum goes to scratch, and a second
// launch adds the blocks in order.
#include "kernels/reductions.hpp"

#include "base/plural.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels {
namespace {

index_t flat_blocks(index_t n) {
  return (n + kFlatBlock - 1) / kFlatBlock;
}

}  // namespace

index_t sum_rows_scratch_elements(index_t columns) {
  return RowBlocks::kMaxBlocks * columns;
}

index_t partial_count(index_t rows) {
  return RowBlocks(rows).count;
}

template <class A, class G>
void add_partials(const Exec& exec, View2<const A> partials, Accumulate accumulate,
                  View1<G> sums) {
  const auto blocks = static_cast<index_t>(partials.extent(0));
  const auto columns = static_cast<index_t>(partials.extent(1));
  require_extent("add_partials", "sums", sums, columns);
  const A* const partial = partials.data();
  G* const sums_data = sums.data();
  const bool adds = accumulate == Accumulate::yes;
  launch_rows(
      exec,
      {"trireme::kernels::add_partials",
       {.bytes = bytes_of(partials, sums) + (adds ? bytes_of(sums) : 0)}},
      tiles_of(columns, kCombineTile), KOKKOS_LAMBDA(const RowTeam& team, index_t tile) {
        const index_t column = tile * kCombineTile;
        combine_rows(team, adds, blocks, column,
                     tile_width(columns, column, kCombineTile), sums_data + column,
                     [=](index_t block) {
                       const A* const row = partial + block * columns;
                       return [=](index_t j) { return row[j]; };
                     });
      });
}

template <class T, class G>
void sum_rows(const Exec& exec, View2<const T> x, View1<Accumulator<T>> scratch,
              Accumulate accumulate, View1<G> sums) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto columns = static_cast<index_t>(x.extent(1));
  require_extent("sum_rows", "sums", sums, columns);
  TRIREME_REQUIRE(
      static_cast<index_t>(scratch.extent(0)) >= sum_rows_scratch_elements(columns),
      "kernels::sum_rows: scratch has {}, needs {}",
      format_plural(scratch.extent(0), "element"), sum_rows_scratch_elements(columns));

  const T* const x_data = x.data();
  const RowBlocks blocks(rows);
  const View2<A> of_blocks(scratch.data(), extent(blocks.count), extent(columns));
  A* const partial = of_blocks.data();
  const index_t tiles = tiles_of(columns, kColumnTile);
  launch_rows(
      exec, {"trireme::kernels::sum_rows[blocks]", {.bytes = bytes_of(x, of_blocks)}},
      blocks.count * tiles, KOKKOS_LAMBDA(const RowTeam& team, index_t item) {
        const index_t block = item / tiles;
        const index_t column = item % tiles * kColumnTile;
        const index_t width =
            columns - column < kColumnTile ? columns - column : kColumnTile;
        sum_block(team, blocks.begin(block), blocks.begin(block + 1), column, width,
                  partial + block * columns + column, [=](index_t row) {
                    const T* const in = x_data + row * columns;
                    return [=](index_t j) { return static_cast<A>(in[j]); };
                  });
      });
  add_partials<A, G>(exec, of_blocks, accumulate, sums);
}

template <class T>
void count_non_finite(const Exec& exec, View1<const T> x, View0<std::int64_t> count) {
  using A = Accumulator<T>;
  const auto n = static_cast<index_t>(x.extent(0));
  const T* const x_data = x.data();
  std::int64_t* const count_data = count.data();
  launch_rows(
      exec, {"trireme::kernels::count_non_finite", {.bytes = bytes_of(x, count, count)}},
      flat_blocks(n), KOKKOS_LAMBDA(const RowTeam& team, index_t block) {
        const T* const in = x_data + block * kFlatBlock;
        const index_t left = n - block * kFlatBlock;
        const auto found = sum_columns<std::int32_t>(
            team, left < kFlatBlock ? left : kFlatBlock, [=](index_t j) {
              const auto value = static_cast<A>(in[j]);
              return static_cast<std::int32_t>(!(value - value == A{0}));  // inf and NaN
            });
        // Integer additions: any order gives the same count.
        if (found > 0) {
          for_each_column(team, 1, [=](index_t j) {
            Kokkos::atomic_add(count_data + j, static_cast<std::int64_t>(found));
          });
        }
      });
}

#define TRIREME_INSTANTIATE(T) template decltype(count_non_finite<T>) count_non_finite<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE
#define TRIREME_INSTANTIATE(T, G) template decltype(sum_rows<T, G>) sum_rows<T, G>;
TRIREME_FOR_EACH_GRADIENT(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE
template decltype(add_partials<float, float>) add_partials<float, float>;
template decltype(add_partials<double, double>) add_partials<double, double>;
template decltype(add_partials<float, bf16>) add_partials<float, bf16>;

}  // namespace trireme::kernels
