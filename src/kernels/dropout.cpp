// kernels/dropout.cpp — masks drawn where they are used, by counter.
//
// How a row's words are drawn: impl/dropout_rows.hpp. Derivation: docs/math/dropout.md
#include "kernels/dropout.hpp"

#include "kernels/impl/column_sums.hpp"
#include "kernels/impl/dropout_rows.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/reductions.hpp"

namespace trireme::kernels {

template <class T>
void bias_dropout_add_forward(const Exec& exec, const DropoutDesc& desc,
                              StepStateView step, View2<const T> x, View1<const T> bias,
                              View2<const T> residual, View2<T> y) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto h = static_cast<index_t>(x.extent(1));
  const auto mask =
      DropoutMask<A>::with_factor(desc, rows, h, "bias_dropout_add_forward");
  require_extents("bias_dropout_add_forward", "y", y, rows, h);
  if (bias.extent(0) != 0) require_extent("bias_dropout_add_forward", "bias", bias, h);
  if (residual.extent(0) != 0) {
    require_extents("bias_dropout_add_forward", "residual", residual, rows, h);
  }

  const T* const x_data = x.data();
  const T* const bias_data = bias.data();
  const T* const residual_data = residual.data();
  T* const y_data = y.data();
  const StepState* const state = step.data();
  launch_rows(
      exec,
      {"trireme::kernels::bias_dropout_add_forward",
       {.bytes = bytes_of(x, bias, residual, y)}},
      rows, ColumnsOfRows(h, x_data, bias_data, residual_data, y_data),
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        bias_dropout_add_row<T>(team, mask, state, row, h, x_data, bias_data,
                                residual_data, y_data);
      });
}

template <class T>
void dropout_backward(const Exec& exec, const DropoutDesc& desc, StepStateView step,
                      View2<const T> d_y, View2<T> d_x) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(d_y.extent(0));
  const auto h = static_cast<index_t>(d_y.extent(1));
  const auto mask = DropoutMask<A>::with_factor(desc, rows, h, "dropout_backward");
  require_extents("dropout_backward", "d_x", d_x, rows, h);

  const T* const d_y_data = d_y.data();
  T* const d_x_data = d_x.data();
  // Views of a pass on shapes have no memory that could be the same.
  const bool in_place = d_y_data == d_x_data && d_y_data != nullptr;
  if (mask.changes_nothing() && in_place) return;
  const StepState* const state = step.data();
  launch_rows(
      exec, {"trireme::kernels::dropout_backward", {.bytes = bytes_of(d_y, d_x)}}, rows,
      ColumnsOfRows(h, d_y_data, d_x_data),
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const d_out = d_y_data + row * h;
        T* const d_in = d_x_data + row * h;
        for_each_masked(team, mask, state, row, h, [=](auto j, const auto& dropped) {
          write(d_in, j, dropped(read_streamed<A>(d_out, j)));
        });
      });
}

namespace {

template <bool kMasked, bool kWrites, class T>
void launch_bias_dropout_add_backward(const Exec& exec, const Kernel& kernel,
                                      const DropoutMask<Accumulator<T>>& mask,
                                      const StepState* state, View2<const T> d_y,
                                      T* d_x_data, Accumulator<T>* partial) {
  using A = Accumulator<T>;
  const auto h = static_cast<index_t>(d_y.extent(1));
  const RowBlocks blocks(static_cast<index_t>(d_y.extent(0)), RowBlocks::most_whole(h));
  const T* const d_y_data = d_y.data();
  launch_rows(
      exec, kernel, blocks.count, ColumnsOfRows(h, d_y_data, d_x_data, partial),
      KOKKOS_LAMBDA(const RowTeam& team, index_t block) {
        const BlockOfRows<A, 1> sums{blocks.of(block), h, {partial + block * h}};
        const auto row_of = [=](const RowTeam&, index_t row) {
          const T* const d_out = d_y_data + row * h;
          T* const d_in = kWrites ? d_x_data + row * h : nullptr;
          return [=](auto j, const auto& dropped) {
            // The host takes four rows at a time; the next four come meanwhile.
            ask_for(d_out + 4 * h, j);
            if constexpr (kMasked) ask_to_write(d_in + 4 * h, j);
            auto value = dropped(read<A>(d_out, j));
            if constexpr (kWrites) value = written<A>(d_in, j, value);
            return terms_of(value);
          };
        };
        write_and_sum_rows<kMasked>(team, mask, state, sums, row_of);
      });
}

}  // namespace

template <class T>
void bias_dropout_add_backward(const Exec& exec, const DropoutDesc& desc,
                               StepStateView step, View2<const T> d_y, View2<T> d_x,
                               View2<Accumulator<T>> bias_partials) {
  using A = Accumulator<T>;
  constexpr const char* kName = "bias_dropout_add_backward";
  const auto rows = static_cast<index_t>(d_y.extent(0));
  const auto h = static_cast<index_t>(d_y.extent(1));
  const DropoutMask<A> mask(desc, rows, h, kName);
  const bool drops = mask.threshold != 0;
  const bool writes = drops || d_x.extent(0) != 0;
  if (writes) require_extents(kName, "d_x", d_x, rows, h);
  require_extents(kName, "the bias's partials", bias_partials, partial_count(rows, h), h);

  const Kernel kernel{"trireme::kernels::bias_dropout_add_backward",
                      {.bytes = bytes_of(d_y, d_x, bias_partials)}};
  const auto with = [&](auto launch_it) {
    launch_it(exec, kernel, mask, step.data(), d_y, d_x.data(), bias_partials.data());
  };
  if (drops) {
    with(launch_bias_dropout_add_backward<true, true, T>);
  } else if (writes) {
    with(launch_bias_dropout_add_backward<false, true, T>);
  } else {
    with(launch_bias_dropout_add_backward<false, false, T>);
  }
}

#define TRIREME_INSTANTIATE(T)                                                  \
  template decltype(bias_dropout_add_forward<T>) bias_dropout_add_forward<T>;   \
  template decltype(bias_dropout_add_backward<T>) bias_dropout_add_backward<T>; \
  template decltype(dropout_backward<T>) dropout_backward<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
