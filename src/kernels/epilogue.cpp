// kernels/epilogue.cpp — bias, activation and residual of a product, in one pass over it.
//
// A host goes over a row once for each of them, since compilers make no vectors of a loop
// that decides; the row is in the nearest cache. A GPU's thread does all to a piece at
// once. The activation is known to the compiler: one that is not asked for would take the
// registers of all.
#include "kernels/epilogue.hpp"

#include "base/error.hpp"
#include "kernels/gemm_reference.hpp"
#include "kernels/impl/activation.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels {
namespace {

// A matrix whose rows lie apart as they are stored; null: there is none.
template <class T>
struct RowsOf {
  T* data = nullptr;
  index_t leading = 0;

  template <class View>
  explicit RowsOf(const View& view)
      : data(view.extent(0) == 0 ? nullptr : view.data()),
        leading(static_cast<index_t>(view.stride(0))) {}
  bool goes_on_in_pieces() const {
    return data == nullptr || leading % kPieceColumns == 0;
  }
  KOKKOS_FORCEINLINE_FUNCTION T* row(index_t i) const {
    return data == nullptr ? nullptr : data + i * leading;
  }
};

// A row's epilogue: `to` from `from`, with what is kept of it in z, if anything. A sum
// with the bias is rounded as it is stored before it goes on.
template <Activation kActivation, class T>
KOKKOS_FORCEINLINE_FUNCTION void epilogue_of_row(const HostRow& team, index_t f,
                                                 const T* bias, const T* add,
                                                 const T* from, T* z, T* to) {
  using A = Accumulator<T>;
  if (bias != nullptr) {
    T* const sum = z != nullptr ? z : to;
    for_each_lanes(team, f,
                   [=](auto j) { write(sum, j, read<A>(from, j) + read<A>(bias, j)); });
    from = sum;
  } else if (z != nullptr && z != from) {
    for_each_lanes(team, f, [=](auto j) { write(z, j, read<A>(from, j)); });
  }
  if constexpr (kActivation != Activation::none) {
    for_each_lanes(team, f, [=](auto j) {
      write(to, j, mapped(read<A>(from, j), Activated<kActivation, T>()));
    });
  } else if (add != nullptr) {
    for_each_lanes(team, f,
                   [=](auto j) { write(to, j, read<A>(from, j) + read<A>(add, j)); });
  } else if (from != to) {
    for_each_lanes(team, f, [=](auto j) { write(to, j, read<A>(from, j)); });
  }
}

// In one loop: threads have no vectors that a branch would spoil.
template <Activation kActivation, class T>
KOKKOS_FORCEINLINE_FUNCTION void epilogue_of_row(const TeamRow& team, index_t f,
                                                 const T* bias, const T* add,
                                                 const T* from, T* z, T* to) {
  using A = Accumulator<T>;
  const bool has_z = bias == nullptr && z == from;
  for_each_lanes(team, f, [=](auto j) {
    auto value = read<A>(from, j);
    if (bias != nullptr) {
      value = mapped(value + read<A>(bias, j),
                     [](A sum) { return static_cast<A>(static_cast<T>(sum)); });
    }
    if (z != nullptr && !has_z) write(z, j, value);
    if constexpr (kActivation != Activation::none) {
      value = mapped(value, Activated<kActivation, T>());
    } else if (add != nullptr) {
      value = value + read<A>(add, j);
    }
    write(to, j, value);
  });
}

template <Activation kActivation, class T>
void launch_epilogue(const Exec& exec, View2<const T> product,
                     const Epilogue<T>& epilogue, View2<T> y, PassOf pass) {
  const auto f = static_cast<index_t>(y.extent(1));
  const RowsOf<const T> in(product), residual(epilogue.residual);
  const RowsOf<T> kept(epilogue.pre_activation), out(y);
  const T* const bias = epilogue.bias.extent(0) == 0 ? nullptr : epilogue.bias.data();
  ColumnsOfRows columns(f, in.data, residual.data, kept.data, out.data, bias);
  columns.has_pieces = columns.has_pieces && in.goes_on_in_pieces() &&
                       residual.goes_on_in_pieces() && kept.goes_on_in_pieces() &&
                       out.goes_on_in_pieces();
  const index_t bytes = pass == PassOf::product
                            ? 0
                            : bytes_of(product, epilogue.bias, epilogue.residual,
                                       epilogue.pre_activation, y);
  launch_rows(
      exec, {"trireme::kernels::apply_epilogue", {.bytes = bytes}},
      static_cast<index_t>(y.extent(0)), columns,
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        epilogue_of_row<kActivation, T>(team, f, bias, residual.row(row), in.row(row),
                                        kept.row(row), out.row(row));
      });
}

}  // namespace

template <class T>
void require_epilogue(const Epilogue<T>& epilogue, const View2<T>& y) {
  const auto rows = static_cast<index_t>(y.extent(0));
  const auto f = static_cast<index_t>(y.extent(1));
  const bool has_activation = epilogue.activation != Activation::none;
  if (epilogue.bias.extent(0) > 0) require_extent("epilogue", "bias", epilogue.bias, f);
  if (epilogue.residual.extent(0) > 0) {
    require_extents("epilogue", "residual", epilogue.residual, rows, f);
    TRIREME_REQUIRE(!has_activation,
                    "kernels::epilogue: a residual and an activation in one");
  }
  if (epilogue.pre_activation.extent(0) > 0) {
    require_extents("epilogue", "pre_activation", epilogue.pre_activation, rows, f);
    TRIREME_REQUIRE(has_activation,
                    "kernels::epilogue: a pre-activation without an activation");
  }
}

template <class T>
void apply_epilogue(const Exec& exec, View2<const T> product, const Epilogue<T>& epilogue,
                    View2<T> y, PassOf pass) {
  const auto rows = static_cast<index_t>(y.extent(0));
  const auto f = static_cast<index_t>(y.extent(1));
  require_extents("apply_epilogue", "product", product, rows, f);
  require_epilogue(epilogue, y);

  with_activation(epilogue.activation, [&](auto activation) {
    launch_epilogue<decltype(activation)::value>(exec, product, epilogue, y, pass);
  });
}

template <class T>
void linear_forward_reference(const Exec& exec, View2<const T> x,
                              const WeightOperand<T>& weight, const Epilogue<T>& epilogue,
                              View2<T> y) {
  forward_in_two_passes<T>(exec, epilogue, y,
                           [&](Accumulate accumulate, const View2<T>& product) {
                             gemm_reference<T, T>(exec, Transpose::no, Transpose::yes,
                                                  accumulate, x, weight.rows, product);
                           });
}

#define TRIREME_INSTANTIATE(T)                                \
  template decltype(require_epilogue<T>) require_epilogue<T>; \
  template decltype(apply_epilogue<T>) apply_epilogue<T>;     \
  template decltype(linear_forward_reference<T>) linear_forward_reference<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
