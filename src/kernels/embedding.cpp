// kernels/embedding.cpp — table look-up and its gradient, a scatter-add in fixed order.
//
// Each element of the table's gradient is summed by one thread in the order of the rows,
// so the result does not depend on the number of threads. On the host threads share out
// the columns; on a GPU, and where a sum is to be rounded once, rows are sorted by id
// (impl/embedding_runs.hpp).
#include "kernels/embedding.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/plural.hpp"
#include "kernels/impl/dropout_rows.hpp"
#include "kernels/impl/embedding_runs.hpp"
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

// Rows sorted by id, those of an id in their order: the row at each place, and its id. An
// id that is in no table stands where there is no row.
struct SortedRows {
  SortedRows(const char* kernel, View1<std::int32_t> scratch, index_t row_count,
             index_t more = 0)
      : rows(row_count), places(scratch.data(), 2, extent(row_count)) {
    TRIREME_REQUIRE(static_cast<index_t>(scratch.extent(0)) >= 2 * rows + more,
                    "kernels::{}: scratch has {}, needs {}", kernel,
                    format_plural(scratch.extent(0), "element"), 2 * rows + more);
  }
  std::int32_t* row() const { return places.data(); }
  std::int32_t* id() const { return places.data() + rows; }

  index_t rows;
  View2<std::int32_t> places;
};

// In no table.
constexpr std::int32_t kNoId = std::numeric_limits<std::int32_t>::min();

// Rows whose places a work item finds.
constexpr int kPlacedRows = 16;

// Ids as they are compared: differences of these have 31 bits. What is outside of all
// tables stays outside.
KOKKOS_FORCEINLINE_FUNCTION std::int32_t comparable(std::int32_t id) {
  constexpr std::int32_t kMost = std::int32_t{1} << 30;
  return id < 0 ? -1 : id > kMost ? kMost : id;
}

// Adds how many of the rows first, first + apart, ... come before each of
// [begin, begin + kPlacedRows): those of smaller ids, and those of the same id before it.
// below[r] is the complement of such a row's id, so that id + below[r] is negative where
// id is not larger; its sign is what is counted, which takes a GPU two instructions.
KOKKOS_FORCEINLINE_FUNCTION void count_rows_before(const std::int32_t* ids, index_t begin,
                                                   index_t end, index_t rows,
                                                   index_t first, index_t apart,
                                                   const std::int32_t* below,
                                                   std::int32_t* places) {
  const auto is_negative = [](std::int32_t value) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(value) >> 31);
  };
  const auto step = static_cast<std::int32_t>(apart);
  for (auto row = static_cast<std::int32_t>(first); row < begin; row += step) {
    const std::int32_t id = comparable(ids[row]);
    for (int r = 0; r < kPlacedRows; ++r) places[r] += is_negative(id + below[r]);
  }
  for (auto row = static_cast<std::int32_t>(end + first); row < rows; row += step) {
    const std::int32_t behind = comparable(ids[row]) + 1;
    for (int r = 0; r < kPlacedRows; ++r) places[r] += is_negative(behind + below[r]);
  }
  for (auto k = static_cast<std::int32_t>(first); begin + k < end; k += step) {
    const std::int32_t id = comparable(ids[begin + k]);
    for (int r = 0; r < kPlacedRows; ++r) {
      places[r] += is_negative(id + (k < r ? 0 : 1) + below[r]);
    }
  }
}

// For rows of a host; builds for GPUs have no use of it.
[[maybe_unused]] KOKKOS_FORCEINLINE_FUNCTION void count_of_team(
    const HostRow&, const std::int32_t* ids, index_t begin, index_t end, index_t rows,
    const std::int32_t* below, std::int32_t* places) {
  count_rows_before(ids, begin, end, rows, 0, 1, below, places);
}
// Each thread looks at some of the rows, for all that are placed.
KOKKOS_FORCEINLINE_FUNCTION void count_of_team(const TeamRow& team,
                                               const std::int32_t* ids, index_t begin,
                                               index_t end, index_t rows,
                                               const std::int32_t* below,
                                               std::int32_t* places) {
  count_rows_before(ids, begin, end, rows, team.rank, team.size, below, places);
  constexpr int kTogether = 4;
  for (int r = 0; r < kPlacedRows; r += kTogether) {
    detail::Sums<std::int32_t, kTogether> counts;
    for (int k = 0; k < kTogether; ++k) counts.of[k] = places[r + k];
    counts = detail::reduce_in_turn(team, counts, r / kTogether % 2);
    for (int k = 0; k < kTogether; ++k) places[r + k] = counts.of[k];
  }
}

// Whether this thread writes what all of the team know of row r.
[[maybe_unused]] KOKKOS_FORCEINLINE_FUNCTION bool is_turn_of(const HostRow&, int) {
  return true;
}
KOKKOS_FORCEINLINE_FUNCTION bool is_turn_of(const TeamRow& team, int r) {
  return r % team.size == team.rank;
}

KOKKOS_FORCEINLINE_FUNCTION void place_rows(const RowTeam& team, const std::int32_t* ids,
                                            index_t begin, index_t rows,
                                            std::int32_t* row_at, std::int32_t* id_at) {
  const index_t end = rows - begin < kPlacedRows ? rows : begin + kPlacedRows;
  std::int32_t below[kPlacedRows], places[kPlacedRows];
  for (int r = 0; r < kPlacedRows; ++r) {
    below[r] = ~comparable(begin + r < end ? ids[begin + r] : 0);
    places[r] = 0;
  }
  count_of_team(team, ids, begin, end, rows, below, places);
  for (int r = 0; r < kPlacedRows; ++r) {
    if (begin + r >= end || !is_turn_of(team, r)) continue;
    row_at[places[r]] = static_cast<std::int32_t>(begin + r);
    id_at[places[r]] = ~below[r];
  }
}

// Behind the last place of the id that `place` has: by steps that double, since most ids
// have few rows, and then by halves.
KOKKOS_FORCEINLINE_FUNCTION index_t end_of_run(const std::int32_t* ids, index_t place,
                                               index_t rows) {
  const std::int32_t id = ids[place];
  index_t apart = 1;
  for (; place + apart < rows && ids[place + apart] == id; apart *= 2) place += apart;
  for (apart /= 2; apart > 0; apart /= 2) {
    if (place + apart < rows && ids[place + apart] == id) place += apart;
  }
  return place + 1;
}

// sum + the rows' numbers at columns j, in order.
template <class T, class Value, class J>
KOKKOS_FORCEINLINE_FUNCTION Value add_run(Value sum, const T* d_y, index_t h,
                                          const std::int32_t* rows, index_t count, J j) {
  for (index_t i = 0; i < count; ++i) {
    sum = sum + read<Accumulator<T>>(d_y + rows[i] * h, j);
  }
  return sum;
}
// A thread of a GPU reads several rows at a time: a frequent word has hundreds, for each
// of which it would wait.
template <class T, class Value, int kCount>
KOKKOS_FORCEINLINE_FUNCTION Value add_run(Value sum, const T* d_y, index_t h,
                                          const std::int32_t* rows, index_t count,
                                          PieceOf<kCount> at) {
  constexpr int kAtOnce = 32 / sizeof(T);
  const auto each = std::make_integer_sequence<int, kAtOnce>();
  for (index_t begin = 0; begin < count; begin += kAtOnce) {
    Stored<T, kCount> loaded[kAtOnce] = {};
    detail::unrolled(each, [&](auto i) {
      constexpr int kI = decltype(i)::value;
      if (begin + kI >= count) return;
      loaded[kI] = load_stored(d_y, rows[begin + kI] * h + at);
    });
    detail::unrolled(each, [&](auto i) {
      constexpr int kI = decltype(i)::value;
      if (begin + kI < count) sum = sum + numbers_of<Accumulator<T>>(loaded[kI]);
    });
  }
  return sum;
}

// Adds to the table what the rows of each id sum up to.
template <class T, class G>
void add_runs(const Exec& exec, View1<const std::int32_t> ids, View2<const T> d_y,
              index_t row_begin, const SortedRows& sorted, View2<G> d_table) {
  using A = Accumulator<T>;
  const index_t rows = sorted.rows;
  const auto table_rows = static_cast<index_t>(d_table.extent(0));
  const auto h = static_cast<index_t>(d_table.extent(1));
  const View2<G> used = rows_used(d_table, rows);
  const std::int32_t* const row_at = sorted.row();
  const std::int32_t* const id_at = sorted.id();
  const T* const d_y_data = d_y.data();
  G* const table_data = d_table.data();
  launch_rows(
      exec,
      {"trireme::kernels::embedding_backward[sum]",
       {.bytes = bytes_of(ids, sorted.places, d_y, used, used)}},
      rows, ColumnsOfRows(h, d_y_data, table_data),
      KOKKOS_LAMBDA(const RowTeam& team, index_t place) {
        const index_t entry = static_cast<index_t>(id_at[place]) - row_begin;
        if (entry < 0 || entry >= table_rows) return;
        if (place > 0 && id_at[place - 1] == id_at[place]) return;
        const index_t count = end_of_run(id_at, place, rows) - place;
        G* const sums = table_data + entry * h;
        for_each_lanes(team, h, [=](auto j) {
          write(sums, j,
                add_run(read<A>(sums, j), d_y_data, h, row_at + place, count, j));
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
void embedding_backward_runs(const Exec& exec, View1<const std::int32_t> ids,
                             View2<const T> d_y, index_t row_begin,
                             View1<std::int32_t> scratch, Accumulate accumulate,
                             View2<G> d_table) {
  const auto rows = static_cast<index_t>(ids.extent(0));
  const auto table_rows = static_cast<index_t>(d_table.extent(0));
  const auto h = static_cast<index_t>(d_table.extent(1));
  require_extents("embedding_backward", "d_y", d_y, rows, h);
  const SortedRows sorted("embedding_backward", scratch, rows);

  const std::int32_t* const id_data = ids.data();
  std::int32_t* const row_at = sorted.row();
  std::int32_t* const id_at = sorted.id();
  G* const table_data = d_table.data();
  const index_t zeroed = accumulate == Accumulate::yes ? 0 : table_rows * h;
  const index_t items =
      std::max<index_t>(tiles_of(rows, kPlacedRows), zeroed > 0 ? 1 : 0);
  // Every row is compared with every other one: two instructions a pair, of which a GPU
  // has done those of 16,384 rows in the time that the launches of a sort take.
  launch_rows(
      exec,
      {"trireme::kernels::embedding_backward[order]",
       {.bytes = bytes_of(ids, sorted.places) + (zeroed > 0 ? bytes_of(d_table) : 0)}},
      items, ColumnsOfRows(), KOKKOS_LAMBDA(const RowTeam& team, index_t item) {
        G* const zeros = table_data + item * zeroed / items;
        for_each_column(team, (item + 1) * zeroed / items - item * zeroed / items,
                        [=](index_t i) { zeros[i] = static_cast<G>(Accumulator<T>{0}); });
        place_rows(team, id_data, item * kPlacedRows, rows, row_at, id_at);
      });
  add_runs<T, G>(exec, ids, d_y, row_begin, sorted, d_table);
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
  const SortedRows sorted("embedding_backward", scratch, rows, table_rows);

  if (accumulate == Accumulate::no) {
    fill(exec, View1<G>(d_table.data(), extent(table_rows * h)),
         static_cast<G>(Accumulator<T>{0}));
  }
  const std::int32_t* const id_data = ids.data();
  std::int32_t* const row_at = sorted.row();
  std::int32_t* const id_at = sorted.id();
  const View1<std::int32_t> places(scratch.data() + 2 * rows, extent(table_rows));
  std::int32_t* const place_of = places.data();
  launch(
      exec,
      {"trireme::kernels::embedding_backward[counting_sort]",
       {.bytes = bytes_of(ids, sorted.places, places)}},
      1, KOKKOS_LAMBDA(index_t) {
        const auto is_held = [=](index_t entry) {
          return entry >= 0 && entry < table_rows;
        };
        for (index_t entry = 0; entry < table_rows; ++entry) place_of[entry] = 0;
        for (index_t row = 0; row < rows; ++row) {
          const index_t entry = static_cast<index_t>(id_data[row]) - row_begin;
          if (is_held(entry)) ++place_of[entry];
          id_at[row] = kNoId;
        }
        std::int32_t begin = 0;
        for (index_t entry = 0; entry < table_rows; ++entry) {
          const std::int32_t count = place_of[entry];
          place_of[entry] = begin;
          begin += count;
        }
        for (index_t row = 0; row < rows; ++row) {
          const index_t entry = static_cast<index_t>(id_data[row]) - row_begin;
          if (!is_held(entry)) continue;
          const std::int32_t place = place_of[entry]++;
          row_at[place] = static_cast<std::int32_t>(row);
          id_at[place] = id_data[row];
        }
      });
  add_runs<T, G>(exec, ids, d_y, row_begin, sorted, d_table);
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
    embedding_backward_runs<T, G>(exec, ids, d_y, row_begin, scratch, accumulate,
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
#define TRIREME_INSTANTIATE(T, G)                                                 \
  template index_t embedding_scratch_elements<T, G>(index_t, index_t);            \
  template decltype(embedding_backward<T, G>) embedding_backward<T, G>;           \
  template decltype(embedding_backward_runs<T, G>) embedding_backward_runs<T, G>; \
  template decltype(embedding_backward_in_order<T, G>) embedding_backward_in_order<T, G>;
TRIREME_FOR_EACH_GRADIENT(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
