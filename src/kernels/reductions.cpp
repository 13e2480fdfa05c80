// kernels/reductions.cpp — sums whose order is a function of the shape alone.
//
// Rows (or elements) are cut in blocks; each block's sum goes to memory, and a second
// launch adds the blocks in order. That launch is small, and a layer has eight such sums,
// so that one launch makes several: its closure has a table, in which a work item looks
// for the sum that it belongs to. Example: sums of 768 and of 2304 columns, in a host's
// tiles of 256, have 3 and 9 items, and item 4 is the second tile of the second sum.
#include "kernels/reductions.hpp"

#include "base/plural.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels {
namespace {

index_t flat_blocks(index_t n) {
  return (n + kFlatBlock - 1) / kFlatBlock;
}

// What add_partials() has in its closure: few numbers for each of the sums, as closures
// are small.
template <class A, class G>
struct PartialTable {
  struct Entry {
    const A* partials;
    G* sums;
    std::int32_t blocks, columns;
    std::int32_t end;  // work items of this sum and of those before it
    bool adds;
  };
  Entry entries[kMostPartialSums];
};

}  // namespace

index_t sum_rows_scratch_elements(index_t columns) {
  return RowBlocks::most_tiled(columns) * columns;
}

index_t partial_count(index_t rows, index_t columns) {
  return RowBlocks(rows, RowBlocks::most_whole(columns)).count;
}
index_t tiled_partial_count(index_t rows, index_t columns) {
  return RowBlocks(rows, RowBlocks::most_tiled(columns)).count;
}

template <class A, class G>
void add_partials(const Exec& exec, std::span<const PartialSum<A, G>> all) {
  TRIREME_REQUIRE(all.size() <= kMostPartialSums, "add_partials: {}, {} in one launch",
                  format_plural(all.size(), "sum"), kMostPartialSums);
  PartialTable<A, G> table{};
  index_t bytes = 0, end = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const PartialSum<A, G>& one = all[i];
    const auto columns = static_cast<index_t>(one.partials.extent(1));
    const bool adds = one.accumulate == Accumulate::yes;
    require_extent("add_partials", "sums", one.sums, columns);
    bytes += bytes_of(one.partials, one.sums) + (adds ? bytes_of(one.sums) : 0);
    end += tiles_of(columns, kCombineTile);
    table.entries[i] = {one.partials.data(),
                        one.sums.data(),
                        static_cast<std::int32_t>(one.partials.extent(0)),
                        static_cast<std::int32_t>(columns),
                        static_cast<std::int32_t>(end),
                        adds};
  }
  launch_rows(
      exec, {"trireme::kernels::add_partials", {.bytes = bytes}}, end, ColumnsOfRows(),
      KOKKOS_LAMBDA(const RowTeam& team, index_t item) {
        int number = 0;
        while (item >= table.entries[number].end) ++number;
        const index_t first = number > 0 ? table.entries[number - 1].end : 0;
        const auto& entry = table.entries[number];
        const A* const partials = entry.partials;
        const index_t columns = entry.columns;
        const index_t column = (item - first) * kCombineTile;
        combine_rows(team, entry.adds, entry.blocks, column,
                     tile_width(columns, column, kCombineTile), entry.sums + column,
                     [=](index_t block) {
                       const A* const row = partials + block * columns;
                       return [=](auto j) { return read<A>(row, j); };
                     });
      },
      kCombineScratch<A>);
}

template <class T>
void sum_row_blocks(const Exec& exec, View2<const T> x, View2<Accumulator<T>> partials) {
  using A = Accumulator<T>;
  const auto columns = static_cast<index_t>(x.extent(1));
  const RowBlocks blocks(static_cast<index_t>(x.extent(0)),
                         RowBlocks::most_tiled(columns));
  require_extents("sum_row_blocks", "partials", partials, blocks.count, columns);
  const T* const x_data = x.data();
  A* const partial = partials.data();
  const index_t tile = column_tile(columns), tiles = tiles_of(columns, tile);
  launch_rows(
      exec, {"trireme::kernels::sum_row_blocks", {.bytes = bytes_of(x, partials)}},
      blocks.count * tiles, ColumnsOfRows(columns, x_data, partial).in_tiles(tile),
      KOKKOS_LAMBDA(const RowTeam& team, index_t item) {
        const index_t block = item / tiles;
        const index_t column = item % tiles * tile;
        const index_t width = tile_width(columns, column, tile);
        sum_block(team, blocks.of(block), column, width,
                  partial + block * columns + column, [=](index_t row) {
                    const T* const in = x_data + row * columns;
                    return [=](auto j) { return read<A>(in, j); };
                  });
      });
}

template <class T, class G>
void sum_rows(const Exec& exec, View2<const T> x, View1<Accumulator<T>> scratch,
              Accumulate accumulate, View1<G> sums) {
  using A = Accumulator<T>;
  const auto columns = static_cast<index_t>(x.extent(1));
  TRIREME_REQUIRE(
      static_cast<index_t>(scratch.extent(0)) >= sum_rows_scratch_elements(columns),
      "kernels::sum_rows: scratch has {}, needs {}",
      format_plural(scratch.extent(0), "element"), sum_rows_scratch_elements(columns));
  const View2<A> partials(
      scratch.data(),
      extent(tiled_partial_count(static_cast<index_t>(x.extent(0)), columns)),
      extent(columns));
  sum_row_blocks<T>(exec, x, partials);
  add_partials<A, G>(exec, partials, accumulate, sums);
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

#define TRIREME_INSTANTIATE(T)                                \
  template decltype(count_non_finite<T>) count_non_finite<T>; \
  template decltype(sum_row_blocks<T>) sum_row_blocks<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE
#define TRIREME_INSTANTIATE(T, G) template decltype(sum_rows<T, G>) sum_rows<T, G>;
TRIREME_FOR_EACH_GRADIENT(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE
#define TRIREME_INSTANTIATE(A, G) \
  template void add_partials<A, G>(const Exec&, std::span<const PartialSum<A, G>>);
TRIREME_INSTANTIATE(float, float)
TRIREME_INSTANTIATE(double, double)
TRIREME_INSTANTIATE(float, bf16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
