// kernels/embedding.cpp — table look-up and its gradient, a scatter-add in fixed order.
//
// Each element of the table's gradient is summed by one thread in the order of the rows,
// so the result does not depend on the number of threads. On the host threads share out
// the columns; on a GPU, and where a sum is to be rounded once, chains of equal ids
// (impl/embedding_chains.hpp).
#include "kernels/embedding.hpp"

#include <algorithm>
#include <type_traits>

#include "base/plural.hpp"
#include "kernels/impl/dropout_rows.hpp"
#include "kernels/impl/embedding_chains.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/impl/thread_count.hpp"
#include "kernels/initialize.hpp"

namespace trireme::kernels {

namespace {

// How many rows of the table the ids can ask for, to count their bytes: which rows these
// are is not known beforehand, nor how many ids are the same.
template <class T>
View2<T> rows_used(View2<T> table, index_t rows) {
  const index_t all = static_cast<index_t>(table.extent(0));
  return View2<T>(table.data(), extent(std::min(rows, all)), table.extent(1));
}

// A table, and the ids that rows of the output ask for. Without ids each has a row of its
// own.
template <class T>
struct LookUp {
  const std::int32_t* ids;
  const T* table;
  index_t rows, h;

  // Null where it is not there.
  KOKKOS_FORCEINLINE_FUNCTION const T* row(index_t r) const {
    const index_t id = ids != nullptr ? static_cast<index_t>(ids[r]) : r;
    return id >= 0 && id < rows ? table + id * h : nullptr;
  }
};
template <class T>
LookUp<T> look_up(View1<const std::int32_t> ids, View2<const T> table) {
  return {ids.extent(0) != 0 ? ids.data() : nullptr, table.data(),
          static_cast<index_t>(table.extent(0)), static_cast<index_t>(table.extent(1))};
}

}  // namespace

template <class T>
void embedding_forward(const Exec& exec, View1<const std::int32_t> ids,
                       View2<const T> table, index_t row_begin, Write how, View2<T> y) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(ids.extent(0));
  const auto table_rows = static_cast<index_t>(table.extent(0));
  const auto h = static_cast<index_t>(table.extent(1));
  require_extents("embedding_forward", "y", y, rows, h);

  const std::int32_t* const id_data = ids.data();
  const T* const table_data = table.data();
  T* const y_data = y.data();
  const bool adds = how == Write::add;
  const View2<const T> used = rows_used(table, rows);
  launch_rows(
      exec,
      {"trireme::kernels::embedding_forward",
       {.bytes = bytes_of(ids, used, y) + (adds ? bytes_of(y) : 0)}},
      rows, ColumnsOfRows(h, table_data, y_data),
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const index_t entry = static_cast<index_t>(id_data[row]) - row_begin;
        const bool is_here = entry >= 0 && entry < table_rows;
        const T* const in = table_data + (is_here ? entry : 0) * h;
        T* const out = y_data + row * h;
        if (is_here && adds) {
          for_each_lanes(
              team, h, [=](auto j) { write(out, j, read<A>(out, j) + read<A>(in, j)); });
        } else if (is_here) {
          for_each_lanes(team, h, [=](auto j) { write(out, j, read<A>(in, j)); });
        } else if (!adds) {
          for_each_column(team, h, [=](index_t j) { out[j] = static_cast<T>(A{0}); });
        }
      });
}

template <class T>
void embedding_dropout_forward(const Exec& exec, const DropoutDesc& desc,
                               StepStateView step, View1<const std::int32_t> ids,
                               View2<const T> words, View1<const std::int32_t> positions,
                               View2<const T> places, View2<T> y,
                               const TokenTypes<T>& types) {
  using A = Accumulator<T>;
  constexpr const char* kName = "embedding_dropout_forward";
  const auto rows = static_cast<index_t>(y.extent(0));
  const auto h = static_cast<index_t>(y.extent(1));
  const auto rows_in = [](View2<const T> table) {
    return static_cast<index_t>(table.extent(0));
  };
  const bool looks_up = ids.extent(0) != 0, has_types = types.ids.extent(0) != 0;
  const DropoutMask<A> mask(desc, rows, h, kName);
  if (looks_up) require_extent(kName, "ids", ids, rows);
  require_extents(kName, "words", words, looks_up ? rows_in(words) : rows, h);
  require_extent(kName, "positions", positions, rows);
  require_extents(kName, "places", places, rows_in(places), h);
  require_extent(kName, "the types' ids", types.ids, has_types ? rows : 0);
  require_extents(kName, "the types", types.table, rows_in(types.table),
                  has_types ? h : 0);

  const LookUp<T> of_words = look_up(ids, words), of_places = look_up(positions, places),
                  of_types = look_up(types.ids, types.table);
  T* const y_data = y.data();
  const StepState* const state = step.data();
  const index_t bytes =
      bytes_of(ids, rows_used(words, rows), positions,
               rows_used(places, rows / desc.batch), types.ids, types.table, y);
  launch_rows(
      exec, {"trireme::kernels::embedding_dropout_forward", {.bytes = bytes}}, rows,
      ColumnsOfRows(h, of_words.table, of_places.table, of_types.table, y_data),
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const word = of_words.row(row);
        const T* const place = of_places.row(row);
        const T* const type = of_types.row(row);
        T* const out = y_data + row * h;
        // Those that are there come first.
        const T* const first = word != nullptr ? word : place != nullptr ? place : type;
        const T* const second = word != nullptr ? place : nullptr;
        const T* const third = first != type ? type : nullptr;
        if (first == nullptr) {
          for_each_column(team, h, [=](index_t j) { out[j] = static_cast<T>(A{0}); });
          return;
        }
        // The word of the next row lies anywhere and comes while this one is written.
        const T* const next =
            looks_up && row + 1 < rows ? of_words.row(row + 1) : nullptr;
        const T* const next_word = next != nullptr ? next : of_words.table;
        for_each_masked(team, mask, state, row, h, [=](auto j, const auto& dropped) {
          ask_for(next_word, j);
          auto value = read<A>(first, j);
          value = second != nullptr ? value + read<A>(second, j) : value + A{0};
          if (third != nullptr) value = value + read<A>(third, j);
          write(out, j, dropped(value));
        });
      });
}

namespace {

// Rows with the same id, in order: the next one or `rows`, and whether it is the first.
struct Chains {
  Chains(const char* kernel, View1<std::int32_t> scratch, index_t row_count,
         index_t more = 0)
      : rows(row_count), links(scratch.data(), 2, extent(row_count)) {
    TRIREME_REQUIRE(static_cast<index_t>(scratch.extent(0)) >= 2 * rows + more,
                    "kernels::{}: scratch has {}, needs {}", kernel,
                    format_plural(scratch.extent(0), "element"), 2 * rows + more);
  }
  std::int32_t* next() const { return links.data(); }
  std::int32_t* is_first() const { return links.data() + rows; }

  index_t rows;
  View2<std::int32_t> links;
};

// Ids that a thread of a GPU reads at a time: one after the other it would wait for each.
constexpr index_t kIdsAtOnce = 8;

KOKKOS_FORCEINLINE_FUNCTION bool is_among(std::int32_t id, const std::int32_t* ids) {
  bool is_found = false;
  for (index_t i = 0; i < kIdsAtOnce; ++i) is_found = is_found | (ids[i] == id);
  return is_found;
}
// The first place from `begin` on that has the id, or `end`.
KOKKOS_FORCEINLINE_FUNCTION index_t first_place_of(std::int32_t id,
                                                   const std::int32_t* ids, index_t begin,
                                                   index_t end) {
  index_t at = begin;
  while (at + kIdsAtOnce <= end && !is_among(id, ids + at)) at += kIdsAtOnce;
  while (at < end && ids[at] != id) ++at;
  return at;
}
// The last place before `end` that has it, or -1.
KOKKOS_FORCEINLINE_FUNCTION index_t last_place_of(std::int32_t id,
                                                  const std::int32_t* ids, index_t end) {
  index_t at = end;
  while (at >= kIdsAtOnce && !is_among(id, ids + at - kIdsAtOnce)) at -= kIdsAtOnce;
  while (at > 0 && ids[at - 1] != id) --at;
  return at - 1;
}

// Links of the rows [begin, begin + kChainRows) of the chains.
constexpr index_t kChainRows = kRowsByTeams ? kRowThreads / 2 : 128;

// For rows of a host; builds for GPUs have no use of it.
[[maybe_unused]] KOKKOS_FORCEINLINE_FUNCTION void link_rows(const HostRow&,
                                                            const std::int32_t* ids,
                                                            index_t begin, index_t rows,
                                                            std::int32_t* next,
                                                            std::int32_t* is_first) {
  for (index_t row = begin; row < rows && row < begin + kChainRows; ++row) {
    next[row] = static_cast<std::int32_t>(first_place_of(ids[row], ids, row + 1, rows));
    is_first[row] = last_place_of(ids[row], ids, row) < 0 ? 1 : 0;
  }
}

// Ids that lie in a team's scratch memory at a time, on either side of its rows.
constexpr index_t kIdTile = 1024;
constexpr std::size_t kChainScratch =
    kRowsByTeams ? (2 * kIdTile + kRowThreads) * sizeof(std::int32_t) : 0;

// Two threads of a team have a row: one goes through the ids behind it, the other
// through those before it, a tile at a time, both from the row on outwards.
KOKKOS_FORCEINLINE_FUNCTION void link_rows(const TeamRow& team, const std::int32_t* ids,
                                           index_t begin, index_t rows,
                                           std::int32_t* next, std::int32_t* is_first) {
  auto* const behind = static_cast<std::int32_t*>(
      team.member.team_scratch(scratch_level(kChainScratch))
          .get_shmem_aligned(static_cast<int>(kChainScratch), 4));
  std::int32_t* const before = behind + kIdTile;
  // Of row begin + i: [i] behind it, [kChainRows + i] before it; -1: none so far.
  std::int32_t* const found = before + kIdTile;
  const index_t own_end = begin + kChainRows < rows ? begin + kChainRows : rows;
  for_each_column(team, kRowThreads, [=](index_t i) { found[i] = -1; });
  for (index_t far = 0; begin + far < rows || far < own_end; far += kIdTile) {
    const index_t behind_begin = begin + far < rows ? begin + far : rows;
    const index_t behind_count = tile_width(rows, behind_begin, kIdTile);
    const index_t before_end = far < own_end ? own_end - far : 0;
    const index_t before_begin = before_end > kIdTile ? before_end - kIdTile : 0;
    const index_t before_count = before_end - before_begin;
    team_barrier(team);
    for_each_column(team, behind_count,
                    [=](index_t j) { behind[j] = ids[behind_begin + j]; });
    for_each_column(team, before_count,
                    [=](index_t j) { before[j] = ids[before_begin + j]; });
    team_barrier(team);
    for_each_column(team, kRowThreads, [=](index_t i) {
      const index_t row = begin + i % kChainRows;
      if (row >= rows || found[i] >= 0) return;
      if (i < kChainRows) {
        const index_t from = row >= behind_begin ? row + 1 - behind_begin : 0;
        const index_t at = first_place_of(ids[row], behind, from, behind_count);
        if (at < behind_count) found[i] = static_cast<std::int32_t>(behind_begin + at);
      } else {
        const index_t end = row < before_end ? row - before_begin : before_count;
        const index_t at = last_place_of(ids[row], before, end);
        if (at >= 0) found[i] = static_cast<std::int32_t>(before_begin + at);
      }
    });
  }
  team_barrier(team);
  for_each_column(team, own_end - begin, [=](index_t i) {
    next[begin + i] = found[i] >= 0 ? found[i] : static_cast<std::int32_t>(rows);
    is_first[begin + i] = found[kChainRows + i] < 0 ? 1 : 0;
  });
}

// Adds to the table what each chain sums up to.
template <class T, class G>
void add_chains(const Exec& exec, View1<const std::int32_t> ids, View2<const T> d_y,
                index_t row_begin, const Chains& chains, View2<G> d_table) {
  using A = Accumulator<T>;
  const index_t rows = chains.rows;
  const auto table_rows = static_cast<index_t>(d_table.extent(0));
  const auto h = static_cast<index_t>(d_table.extent(1));
  const View2<G> used = rows_used(d_table, rows);
  const std::int32_t* const id_data = ids.data();
  const std::int32_t* const next = chains.next();
  const std::int32_t* const is_first = chains.is_first();
  const T* const d_y_data = d_y.data();
  G* const table_data = d_table.data();
  launch_rows(
      exec,
      {"trireme::kernels::embedding_backward[sum]",
       {.bytes = bytes_of(ids, chains.links, d_y, used, used)}},
      rows, ColumnsOfRows(h, d_y_data, table_data),
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const index_t entry = static_cast<index_t>(id_data[row]) - row_begin;
        if (is_first[row] == 0 || entry < 0 || entry >= table_rows) return;
        G* const sums = table_data + entry * h;
        for_each_lanes(team, h, [=](auto j) {
          auto sum = read<A>(sums, j);
          for (index_t r = row; r < rows; r = next[r]) {
            sum = sum + read<A>(d_y_data + r * h, j);
          }
          write(sums, j, sum);
        });
      });
}

}  // namespace

template <class T, class G>
index_t embedding_scratch_elements(index_t rows, index_t table_rows) {
  if (kRowsByTeams) return 2 * rows;
  return std::is_same_v<G, Accumulator<T>> ? 0 : 2 * rows + table_rows;
}

template <class T, class G>
void embedding_backward_chains(const Exec& exec, View1<const std::int32_t> ids,
                               View2<const T> d_y, index_t row_begin,
                               View1<std::int32_t> scratch, Accumulate accumulate,
                               View2<G> d_table) {
  const auto rows = static_cast<index_t>(ids.extent(0));
  const auto table_rows = static_cast<index_t>(d_table.extent(0));
  const auto h = static_cast<index_t>(d_table.extent(1));
  require_extents("embedding_backward", "d_y", d_y, rows, h);
  const Chains chains("embedding_backward", scratch, rows);

  const std::int32_t* const id_data = ids.data();
  std::int32_t* const next = chains.next();
  std::int32_t* const is_first = chains.is_first();
  G* const table_data = d_table.data();
  const index_t zeroed = accumulate == Accumulate::yes ? 0 : table_rows * h;
  const index_t items = std::max<index_t>(tiles_of(rows, kChainRows), zeroed > 0 ? 1 : 0);
  // The search is quadratic, but all threads of a team read the same ids, so that it
  // costs less than a sort would.
  launch_rows(
      exec,
      {"trireme::kernels::embedding_backward[chains]",
       {.bytes = bytes_of(ids, chains.links) + (zeroed > 0 ? bytes_of(d_table) : 0)}},
      items, ColumnsOfRows(),
      KOKKOS_LAMBDA(const RowTeam& team, index_t item) {
        G* const zeros = table_data + item * zeroed / items;
        for_each_column(team, (item + 1) * zeroed / items - item * zeroed / items,
                        [=](index_t i) { zeros[i] = static_cast<G>(Accumulator<T>{0}); });
        link_rows(team, id_data, item * kChainRows, rows, next, is_first);
      },
      kChainScratch);
  add_chains<T, G>(exec, ids, d_y, row_begin, chains, d_table);
}

template <class T, class G>
void embedding_backward_in_order(const Exec& exec, View1<const std::int32_t> ids,
                                 View2<const T> d_y, index_t row_begin,
                                 View1<std::int32_t> scratch, Accumulate accumulate,
                                 View2<G> d_table) {
  const auto rows = static_cast<index_t>(ids.extent(0));
  const auto table_rows = static_cast<index_t>(d_table.extent(0));
  const auto h = static_cast<index_t>(d_table.extent(1));
  require_extents("embedding_backward", "d_y", d_y, rows, h);
  const Chains chains("embedding_backward", scratch, rows, table_rows);

  if (accumulate == Accumulate::no) {
    fill(exec, View1<G>(d_table.data(), extent(table_rows * h)),
         static_cast<G>(Accumulator<T>{0}));
  }
  const std::int32_t* const id_data = ids.data();
  std::int32_t* const next = chains.next();
  std::int32_t* const is_first = chains.is_first();
  const View1<std::int32_t> newest(scratch.data() + 2 * rows, extent(table_rows));
  std::int32_t* const last = newest.data();
  launch(
      exec,
      {"trireme::kernels::embedding_backward[links]",
       {.bytes = bytes_of(ids, chains.links, newest)}},
      1, KOKKOS_LAMBDA(index_t) {
        for (index_t entry = 0; entry < table_rows; ++entry) last[entry] = -1;
        for (index_t row = 0; row < rows; ++row) {
          const index_t entry = static_cast<index_t>(id_data[row]) - row_begin;
          next[row] = static_cast<std::int32_t>(rows);
          is_first[row] = 0;
          if (entry < 0 || entry >= table_rows) continue;
          const std::int32_t before = last[entry];
          if (before >= 0) next[before] = static_cast<std::int32_t>(row);
          is_first[row] = before < 0 ? 1 : 0;
          last[entry] = static_cast<std::int32_t>(row);
        }
      });
  add_chains<T, G>(exec, ids, d_y, row_begin, chains, d_table);
}

namespace {

// Threads share out the columns.
template <class T>
void embedding_backward_columns(const Exec& exec, View1<const std::int32_t> ids,
                                View2<const T> d_y, index_t row_begin,
                                Accumulate accumulate, View2<Accumulator<T>> d_table) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(ids.extent(0));
  const auto table_rows = static_cast<index_t>(d_table.extent(0));
  const auto h = static_cast<index_t>(d_table.extent(1));
  require_extents("embedding_backward", "d_y", d_y, rows, h);

  const std::int32_t* const id_data = ids.data();
  const T* const d_y_data = d_y.data();
  A* const table_data = d_table.data();
  const View2<A> used = rows_used(d_table, rows);
  const bool zeroes = accumulate == Accumulate::no;
  // There are as many parts as threads, each of whole cache lines. How the columns are
  // shared out changes no sum.
  const index_t threads = impl::thread_count();
  const index_t width =
      std::max<index_t>(16, ((h + threads - 1) / threads + 15) / 16 * 16);
  launch_rows(
      exec,
      {"trireme::kernels::embedding_backward[columns]",
       {.bytes = bytes_of(ids, d_y, used, used) + (zeroes ? bytes_of(d_table) : 0)}},
      (h + width - 1) / width, KOKKOS_LAMBDA(const RowTeam& team, index_t part) {
        const index_t column = part * width;
        const index_t count = h - column < width ? h - column : width;
        for (index_t entry = 0; entry < (zeroes ? table_rows : 0); ++entry) {
          A* const sums = table_data + entry * h + column;
          for_each_column(team, count, [=](index_t j) { sums[j] = A{0}; });
        }
        for (index_t row = 0; row < rows; ++row) {
          const index_t entry = static_cast<index_t>(id_data[row]) - row_begin;
          if (entry < 0 || entry >= table_rows) continue;
          const T* const in = d_y_data + row * h + column;
          A* const sums = table_data + entry * h + column;
          for_each_column(team, count,
                          [=](index_t j) { sums[j] += static_cast<A>(in[j]); });
        }
      });
}

}  // namespace

template <class T, class G>
void embedding_backward(const Exec& exec, View1<const std::int32_t> ids,
                        View2<const T> d_y, index_t row_begin,
                        View1<std::int32_t> scratch, Accumulate accumulate,
                        View2<G> d_table) {
  if constexpr (kRowsByTeams) {
    embedding_backward_chains<T, G>(exec, ids, d_y, row_begin, scratch, accumulate,
                                    d_table);
  } else if constexpr (!std::is_same_v<G, Accumulator<T>>) {
    embedding_backward_in_order<T, G>(exec, ids, d_y, row_begin, scratch, accumulate,
                                      d_table);
  } else {
    embedding_backward_columns<T>(exec, ids, d_y, row_begin, accumulate, d_table);
  }
}

template <class T>
void embedding_backward_types(const Exec& exec, View1<const std::int32_t> ids,
                              View2<const T> d_y, View2<Accumulator<T>> partials) {
  using A = Accumulator<T>;
  constexpr const char* kName = "embedding_backward_types";
  const auto rows = static_cast<index_t>(d_y.extent(0));
  const auto h = static_cast<index_t>(d_y.extent(1));
  const RowBlocks blocks(rows, RowBlocks::most_whole(h));
  const index_t table_rows =
      h > 0 ? static_cast<index_t>(partials.extent(1)) / h : index_t{0};
  require_extent(kName, "ids", ids, rows);
  require_extents(kName, "partials", partials, blocks.count, table_rows * h);

  const std::int32_t* const id_data = ids.data();
  const T* const d_y_data = d_y.data();
  A* const partial = partials.data();
  launch_rows(
      exec,
      {"trireme::kernels::embedding_backward[types]",
       {.bytes = bytes_of(ids, d_y, partials)}},
      blocks.count, ColumnsOfRows(h, d_y_data, partial),
      KOKKOS_LAMBDA(const RowTeam& team, index_t block) {
        A* const sums = partial + block * table_rows * h;
        for_each_column(team, table_rows * h, [=](index_t i) { sums[i] = A{0}; });
        team_barrier(team);
        const RowBlocks::Rows walked = blocks.of(block);
        for (index_t row = walked.begin; row < walked.end; row += walked.step) {
          const auto entry = static_cast<index_t>(id_data[row]);
          if (entry < 0 || entry >= table_rows) continue;
          const T* const in = d_y_data + row * h;
          A* const of_entry = sums + entry * h;
          for_each_lanes(team, h, [=](auto j) {
            write(of_entry, j, read<A>(of_entry, j) + read<A>(in, j));
          });
        }
      });
}

#define TRIREME_INSTANTIATE(T)                                                  \
  template decltype(embedding_forward<T>) embedding_forward<T>;                 \
  template decltype(embedding_dropout_forward<T>) embedding_dropout_forward<T>; \
  template decltype(embedding_backward_types<T>) embedding_backward_types<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE
#define TRIREME_INSTANTIATE(T, G)                                                     \
  template index_t embedding_scratch_elements<T, G>(index_t, index_t);                \
  template decltype(embedding_backward<T, G>) embedding_backward<T, G>;               \
  template decltype(embedding_backward_chains<T, G>) embedding_backward_chains<T, G>; \
  template decltype(embedding_backward_in_order<T, G>) embedding_backward_in_order<T, G>;
TRIREME_FOR_EACH_GRADIENT(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
