// kernels/activation.cpp — activations and their gradients, each in one pass.
//
// The gradient is summed over rows in the same pass, since the gradient of the bias is
// that sum. A thread of a GPU has the same eight columns of many rows and, because it
// computes for as long as it waits, the next two rows under way. A host goes through a
// block twice: the loop that computes has longer vectors without the sum, which then
// finds its numbers in cache. A gated pair has no such sums: models that gate have no
// biases.
#include "kernels/activation.hpp"

#include "base/error.hpp"
#include "kernels/impl/activation.hpp"
#include "kernels/impl/column_sums.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/reductions.hpp"

namespace trireme::kernels {
namespace {

[[noreturn]] void refuse(const char* kernel) {
  throw Error(fmt::format("kernels::{}: there is none of this activation", kernel));
}

template <Activation kActivation, class T>
void launch_activation(const Exec& exec, const Kernel& kernel, View2<const T> z,
                       View2<T> y) {
  using A = Accumulator<T>;
  const auto f = static_cast<index_t>(z.extent(1));
  const T* const z_data = z.data();
  T* const y_data = y.data();
  launch_rows(
      exec, kernel, static_cast<index_t>(z.extent(0)), ColumnsOfRows(f, z_data, y_data),
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const in = z_data + row * f;
        T* const out = y_data + row * f;
        for_each_lanes(team, f, [=](auto j) {
          write(out, j, mapped(read_streamed<A>(in, j), Activated<kActivation, T>()));
        });
      });
}

}  // namespace

template <class T>
void activation_forward(const Exec& exec, Activation activation, View2<const T> z,
                        View2<T> y) {
  require_extents("activation_forward", "y", y, static_cast<index_t>(z.extent(0)),
                  static_cast<index_t>(z.extent(1)));
  const Cost cost{.bytes = bytes_of(z, y)};
  switch (activation) {
    case Activation::gelu_tanh:
      return launch_activation<Activation::gelu_tanh>(
          exec, {"trireme::kernels::gelu_forward", cost}, z, y);
    case Activation::gelu_erf:
      return launch_activation<Activation::gelu_erf>(
          exec, {"trireme::kernels::gelu_erf_forward", cost}, z, y);
    case Activation::relu:
      return launch_activation<Activation::relu>(
          exec, {"trireme::kernels::relu_forward", cost}, z, y);
    case Activation::tanh:
      return launch_activation<Activation::tanh>(
          exec, {"trireme::kernels::tanh_forward", cost}, z, y);
    case Activation::none:
      break;
  }
  refuse("activation_forward");
}

namespace {

// What a thread of a GPU reads of a row.
template <class T>
struct LoadedSlope {
  StoredEight<T> d_y, z;
};

// The gradient of a thread's piece of every row of a block, and its sum over them: two
// rows are under way while one is worked on. Rows lie f apart.
template <Activation kActivation, class T>
KOKKOS_FORCEINLINE_FUNCTION void backward_in_registers(
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
        mapped(numbers_of<A>(now.z), ActivationSlope<kActivation, T>());
    sum = sum + written<A>(d_z, row * f + in_row, numbers_of<A>(now.d_y) * slope);
  }
  if (block.to[0] != nullptr) write(block.to[0], in_row, sum);
}

// d_z of some columns of a block of rows, which lie f apart, and its sums over them, if
// there is a place for them.
template <Activation kActivation, class T>
KOKKOS_FORCEINLINE_FUNCTION void backward_of_block(
    const TeamRow& team, const BlockOfRows<Accumulator<T>, 1>& block, const T* d_y,
    const T* z, T* d_z, index_t f) {
  using A = Accumulator<T>;
  if (holds_one_piece(team, block.h)) {
    const PieceAt in_row{index_t{kPieceColumns} * team.rank};
    if (in_row.j < block.h) {
      backward_in_registers<kActivation, T>(block, in_row, d_y, z, d_z, f);
    }
    return;
  }
  const auto row_of = [=](const TeamRow&, index_t row) {
    const T* const d_out = d_y + row * f;
    const T* const in = z + row * f;
    T* const d_in = d_z + row * f;
    return [=](auto j, const auto&) {
      const auto slope = mapped(read<A>(in, j), ActivationSlope<kActivation, T>());
      return terms_of(written<A>(d_in, j, read<A>(d_out, j) * slope));
    };
  };
  if (block.to[0] != nullptr) {
    write_and_sum_rows(team, block, row_of);
    return;
  }
  for (index_t row = block.rows.begin; row < block.rows.end; row += block.rows.step) {
    const auto at = row_of(team, row);
    for_each_lanes(team, block.h, [&](auto j) { at(j, Keeping{}); });
  }
}

// Two loops; the second finds its numbers in cache. What is summed is the gradient as it
// is stored, which the weight gradient reads, too.
template <Activation kActivation, class T>
KOKKOS_FORCEINLINE_FUNCTION void backward_of_block(
    const HostRow& team, const BlockOfRows<Accumulator<T>, 1>& block, const T* d_y,
    const T* z, T* d_z, index_t f) {
  using A = Accumulator<T>;
  for (index_t row = block.rows.begin; row < block.rows.end; ++row) {
    const T* const d_out = d_y + row * f;
    const T* const in = z + row * f;
    T* const d_in = d_z + row * f;
    for_each_lanes(team, block.h, [=](auto j) {
      const auto slope =
          mapped(read_streamed<A>(in, j), ActivationSlope<kActivation, T>());
      write(d_in, j, read_streamed<A>(d_out, j) * slope);
    });
  }
  if (block.to[0] == nullptr) return;
  sum_block(team, block.rows, 0, block.h, block.to[0], [=](index_t row) {
    const T* const d_in = d_z + row * f;
    return [=](auto j) { return read<A>(d_in, j); };
  });
}

template <Activation kActivation, class T>
void launch_activation_backward(const Exec& exec, const Kernel& kernel,
                                View2<const T> d_y, View2<const T> z, View2<T> d_z,
                                View2<Accumulator<T>> partials) {
  using A = Accumulator<T>;
  const auto f = static_cast<index_t>(z.extent(1));
  const RowBlocks blocks(static_cast<index_t>(z.extent(0)), RowBlocks::most_tiled(f));
  const T* const d_y_data = d_y.data();
  const T* const z_data = z.data();
  T* const d_z_data = d_z.data();
  A* const sums = partials.data();
  const index_t tile = column_tile(f), tiles = tiles_of(f, tile);
  launch_held_blocks<T, kThreadsOfTiles>(
      exec, kernel, blocks.count * tiles,
      ColumnsOfRows(f, d_y_data, z_data, d_z_data, sums).in_tiles(tile),
      KOKKOS_LAMBDA(const RowTeam& team, index_t item) {
        const index_t block = item / tiles;
        const index_t column = item % tiles * tile;
        const index_t width = tile_width(f, column, tile);
        A* const to_sums = sums == nullptr ? nullptr : sums + block * f + column;
        const BlockOfRows<A, 1> to{blocks.of(block), width, {to_sums}};
        backward_of_block<kActivation, T>(team, to, d_y_data + column, z_data + column,
                                          d_z_data + column, f);
      });
}

}  // namespace

template <class T>
void activation_backward(const Exec& exec, Activation activation, View2<const T> d_y,
                         View2<const T> z, View2<T> d_z, View2<Accumulator<T>> partials) {
  constexpr const char* kName = "activation_backward";
  const auto rows = static_cast<index_t>(z.extent(0));
  const auto f = static_cast<index_t>(z.extent(1));
  require_extents(kName, "d_y", d_y, rows, f);
  require_extents(kName, "d_z", d_z, rows, f);
  if (partials.extent(0) != 0) {
    require_extents(kName, "partials", partials, tiled_partial_count(rows, f), f);
  }
  const Cost cost{.bytes = bytes_of(d_y, z, d_z, partials)};
  switch (activation) {
    case Activation::gelu_tanh:
      return launch_activation_backward<Activation::gelu_tanh>(
          exec, {"trireme::kernels::gelu_backward", cost}, d_y, z, d_z, partials);
    case Activation::gelu_erf:
      return launch_activation_backward<Activation::gelu_erf>(
          exec, {"trireme::kernels::gelu_erf_backward", cost}, d_y, z, d_z, partials);
    case Activation::relu:
      return launch_activation_backward<Activation::relu>(
          exec, {"trireme::kernels::relu_backward", cost}, d_y, z, d_z, partials);
    case Activation::tanh:
      return launch_activation_backward<Activation::tanh>(
          exec, {"trireme::kernels::tanh_backward", cost}, d_y, z, d_z, partials);
    case Activation::none:
      break;
  }
  refuse(kName);
}

namespace {

template <Activation kActivation, class T>
void launch_gated(const Exec& exec, const Kernel& kernel, View2<const T> z, View2<T> y) {
  using A = Accumulator<T>;
  const auto f = static_cast<index_t>(y.extent(1));
  const T* const z_data = z.data();
  T* const y_data = y.data();
  launch_rows(
      exec, kernel, static_cast<index_t>(y.extent(0)), ColumnsOfRows(f, z_data, y_data),
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const gate = z_data + row * 2 * f;
        const T* const up = gate + f;
        T* const out = y_data + row * f;
        for_each_lanes(team, f, [=](auto j) {
          write(out, j,
                mapped(read_streamed<A>(gate, j), Activated<kActivation, T>()) *
                    read_streamed<A>(up, j));
        });
      });
}

template <Activation kActivation, class T>
void launch_gated_backward(const Exec& exec, const Kernel& kernel, View2<const T> d_y,
                           View2<const T> z, View2<T> d_z) {
  using A = Accumulator<T>;
  const auto f = static_cast<index_t>(d_y.extent(1));
  const T* const d_y_data = d_y.data();
  const T* const z_data = z.data();
  T* const d_z_data = d_z.data();
  launch_rows(
      exec, kernel, static_cast<index_t>(d_y.extent(0)),
      ColumnsOfRows(f, d_y_data, z_data, d_z_data),
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const d_out = d_y_data + row * f;
        const T* const gate = z_data + row * 2 * f;
        const T* const up = gate + f;
        T* const d_gate = d_z_data + row * 2 * f;
        T* const d_up = d_gate + f;
        for_each_lanes(team, f, [=](auto j) {
          const auto d = read_streamed<A>(d_out, j);
          const auto of_gate = read_streamed<A>(gate, j);
          const auto slope = mapped(of_gate, ActivationSlope<kActivation, T>());
          write(d_gate, j, d * read_streamed<A>(up, j) * slope);
          write(d_up, j, d * mapped(of_gate, Activated<kActivation, T>()));
        });
      });
}

}  // namespace

template <class T>
void gated_forward(const Exec& exec, Activation activation, View2<const T> z,
                   View2<T> y) {
  require_extents("gated_forward", "z", z, static_cast<index_t>(y.extent(0)),
                  2 * static_cast<index_t>(y.extent(1)));
  const Cost cost{.bytes = bytes_of(z, y)};
  switch (activation) {
    case Activation::gelu_tanh:
      return launch_gated<Activation::gelu_tanh>(
          exec, {"trireme::kernels::gated_forward[gelu]", cost}, z, y);
    case Activation::gelu_erf:
      return launch_gated<Activation::gelu_erf>(
          exec, {"trireme::kernels::gated_forward[gelu_erf]", cost}, z, y);
    case Activation::relu:
      return launch_gated<Activation::relu>(
          exec, {"trireme::kernels::gated_forward[relu]", cost}, z, y);
    default:
      refuse("gated_forward");
  }
}

template <class T>
void gated_backward(const Exec& exec, Activation activation, View2<const T> d_y,
                    View2<const T> z, View2<T> d_z) {
  constexpr const char* kName = "gated_backward";
  const auto rows = static_cast<index_t>(d_y.extent(0));
  const auto f = static_cast<index_t>(d_y.extent(1));
  require_extents(kName, "z", z, rows, 2 * f);
  require_extents(kName, "d_z", d_z, rows, 2 * f);
  const Cost cost{.bytes = bytes_of(d_y, z, d_z)};
  switch (activation) {
    case Activation::gelu_tanh:
      return launch_gated_backward<Activation::gelu_tanh>(
          exec, {"trireme::kernels::gated_backward[gelu]", cost}, d_y, z, d_z);
    case Activation::gelu_erf:
      return launch_gated_backward<Activation::gelu_erf>(
          exec, {"trireme::kernels::gated_backward[gelu_erf]", cost}, d_y, z, d_z);
    case Activation::relu:
      return launch_gated_backward<Activation::relu>(
          exec, {"trireme::kernels::gated_backward[relu]", cost}, d_y, z, d_z);
    default:
      refuse(kName);
  }
}

#define TRIREME_INSTANTIATE(T)                                      \
  template decltype(activation_forward<T>) activation_forward<T>;   \
  template decltype(activation_backward<T>) activation_backward<T>; \
  template decltype(gated_forward<T>) gated_forward<T>;             \
  template decltype(gated_backward<T>) gated_backward<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
