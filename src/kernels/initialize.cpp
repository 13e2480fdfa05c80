// kernels/initialize.cpp — constants, conversions and initial weights.
//
// A normal number is a function of the generator and of its place in the *global* matrix:
// a shard draws exactly its part of the numbers the whole matrix would get.
#include "kernels/initialize.hpp"

#include "kernels/impl/normal.hpp"
#include "kernels/impl/philox_lanes.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels {
namespace {

// Numbers 4 first .. 4 first + count - 1 of a generator's sequence go to store(i,
// number), i from 0.
template <class Store>
KOKKOS_FORCEINLINE_FUNCTION void draw_normals(const HostRow&,
                                              const random::Generator& generator,
                                              std::uint64_t first, index_t count,
                                              const Store& store) {
  constexpr int kGroups = 8;
  constexpr index_t kChunk = kGroups * kPhiloxWords;
  std::uint32_t words[kChunk];
  double normals[kChunk];
  for (index_t begin = 0; begin < count; begin += kChunk) {
    philox_lanes<10, WordOrder::by_call>(
        generator, first + static_cast<std::uint64_t>(begin / 4), kGroups, words);
    for (index_t i = 0; i < kChunk; i += 2) {
      box_muller(words[i], words[i + 1], normals[i], normals[i + 1]);
    }
    const index_t left = count - begin < kChunk ? count - begin : kChunk;
    for (index_t i = 0; i < left; ++i) store(begin + i, normals[i]);
  }
}

template <class Store>
KOKKOS_FORCEINLINE_FUNCTION void draw_normals(const TeamRow& team,
                                              const random::Generator& generator,
                                              std::uint64_t first, index_t count,
                                              const Store& store) {
  for_each_column(team, (count + 3) / 4, [&](index_t q) {
    const random::Words words = generator.block(first + static_cast<std::uint64_t>(q));
    double normals[4];
    box_muller(words.word[0], words.word[1], normals[0], normals[1]);
    box_muller(words.word[2], words.word[3], normals[2], normals[3]);
    for (int k = 0; k < 4 && 4 * q + k < count; ++k) store(4 * q + k, normals[k]);
  });
}

}  // namespace

template <class T>
void fill(const Exec& exec, View1<T> values, T value) {
  T* const data = values.data();
  const auto n = static_cast<index_t>(values.extent(0));
  launch_rows(
      exec, {"trireme::kernels::fill", {.bytes = bytes_of(values)}},
      (n + kFlatBlock - 1) / kFlatBlock,
      KOKKOS_LAMBDA(const RowTeam& team, index_t block) {
        T* const out = data + block * kFlatBlock;
        const index_t left = n - block * kFlatBlock;
        for_each_column(team, left < kFlatBlock ? left : kFlatBlock,
                        [=](index_t j) { out[j] = value; });
      });
}

template <class T>
void zero_runs(const Exec& exec, const Runs& runs, View1<T> values) {
  T* const data = values.data();
  index_t elements = 0;
  for (int i = 0; i < runs.size; ++i) {
    const Runs::Run& run = runs.runs[i];
    TRIREME_REQUIRE(run.begin >= 0 && run.count >= 0 &&
                        run.begin + run.count <= static_cast<index_t>(values.extent(0)),
                    "kernels::zero_runs: [{}, +{}) of {}", run.begin, run.count,
                    values.extent(0));
    elements += run.count;
  }
  launch_rows(
      exec,
      {"trireme::kernels::zero_runs",
       {.bytes = static_cast<index_t>(sizeof(T)) * elements}},
      runs.size, KOKKOS_LAMBDA(const RowTeam& team, index_t i) {
        T* const out = data + runs.runs[i].begin;
        for_each_column(team, runs.runs[i].count,
                        [=](index_t j) { out[j] = static_cast<T>(0.0F); });
      });
}

template <class From, class To>
void convert(const Exec& exec, View1<const From> from, View1<To> to) {
  const auto n = static_cast<index_t>(from.extent(0));
  require_extent("convert", "to", to, n);
  const From* const from_data = from.data();
  To* const to_data = to.data();
  launch_rows(
      exec, {"trireme::kernels::convert", {.bytes = bytes_of(from, to)}},
      (n + kFlatBlock - 1) / kFlatBlock,
      KOKKOS_LAMBDA(const RowTeam& team, index_t block) {
        const From* const in = from_data + block * kFlatBlock;
        To* const out = to_data + block * kFlatBlock;
        const index_t left = n - block * kFlatBlock;
        for_each_column(team, left < kFlatBlock ? left : kFlatBlock, [=](index_t j) {
          out[j] = static_cast<To>(
              static_cast<Accumulator<To>>(static_cast<Accumulator<From>>(in[j])));
        });
      });
}

template <class T>
void fill_normal(const Exec& exec, const random::Generator& generator, double std,
                 const MatrixWindow& window, View1<T> local) {
  TRIREME_REQUIRE(window.rows >= 0 && window.columns >= 0 && window.global_row >= 0 &&
                      window.global_column >= 0 &&
                      window.global_column + window.columns <= window.global_columns &&
                      window.local_row >= 0 && window.local_column >= 0 &&
                      window.local_column + window.columns <= window.local_columns,
                  "kernels::fill_normal: columns [{}, +{}) of {} to [{}, +{}) of {}",
                  window.global_column, window.columns, window.global_columns,
                  window.local_column, window.columns, window.local_columns);
  const index_t rows_end = (window.local_row + window.rows) * window.local_columns;
  const index_t begin = window.begin;
  const index_t end = window.end == 0 ? rows_end : window.end;
  TRIREME_REQUIRE(begin >= 0 && end - begin <= static_cast<index_t>(local.extent(0)),
                  "kernels::fill_normal: elements {} to {} do not fit in {}", begin, end,
                  local.extent(0));
  T* const data = local.data();
  launch_rows(
      exec, "trireme::kernels::fill_normal", window.rows,
      KOKKOS_LAMBDA(const RowTeam& team, index_t i) {
        // Columns of the window that `local` has of this row.
        const index_t row =
            (window.local_row + i) * window.local_columns + window.local_column;
        const index_t first = row < begin ? begin - row : 0;
        const index_t last = end - row < window.columns ? end - row : window.columns;
        if (first >= last) return;
        T* const out = data + (row + first - begin);
        const index_t column = window.global_column + first;
        const index_t skip = column % 4;
        const std::uint64_t first_block =
            static_cast<std::uint64_t>(window.global_row + i) *
                random::blocks_per_row(
                    static_cast<std::uint64_t>(window.global_columns)) +
            static_cast<std::uint64_t>(column / 4);
        draw_normals(team, generator, first_block, skip + last - first,
                     [=](index_t j, double normal) {
                       if (j >= skip) {
                         out[j - skip] =
                             static_cast<T>(static_cast<Accumulator<T>>(std * normal));
                       }
                     });
      });
}

#define TRIREME_INSTANTIATE(T)                                                  \
  template void fill<T>(const Exec&, View1<T>, T);                              \
  template decltype(zero_runs<T>) zero_runs<T>;                                 \
  template void convert<T, float>(const Exec&, View1<const T>, View1<float>);   \
  template void convert<T, double>(const Exec&, View1<const T>, View1<double>); \
  template void convert<T, bf16>(const Exec&, View1<const T>, View1<bf16>);     \
  template void convert<T, fp16>(const Exec&, View1<const T>, View1<fp16>);     \
  template decltype(fill_normal<T>) fill_normal<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE
template void fill<std::int64_t>(const Exec&, View1<std::int64_t>, std::int64_t);

}  // namespace trireme::kernels
