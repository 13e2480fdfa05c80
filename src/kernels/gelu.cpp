// kernels/gelu.cpp — bias and GeLU in one pass over the activation.
//
// z/2 (1 + tanh u) is computed as z s with s = 1 / (1 + exp(-2 u)): one exponential, and
// no cancellation in 1 + tanh u for negative z. Derivation: docs/math/gelu.md
#include "kernels/gelu.hpp"

#include "kernels/impl/rows.hpp"
#include "kernels/impl/vector_math.hpp"

namespace trireme::kernels {
namespace {

template <class A>
inline constexpr A kLinear = static_cast<A>(1.5957691216057307);  // 2 sqrt(2 / pi)
template <class A>
inline constexpr A kCubic = static_cast<A>(1.5957691216057307 * 0.044715);

// exp(-2 u)
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A exp_minus_2u(A z) {
  return vector_exp(-z * multiply_add(kCubic<A>, z * z, kLinear<A>));
}

template <class A>
KOKKOS_FORCEINLINE_FUNCTION A gelu(A z) {
  return z / (A{1} + exp_minus_2u(z));
}

// d(z s)/dz = s + z s (1 - s) d(2 u)/dz
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A gelu_slope(A z) {
  // Beyond +-10 the slope is 1 or 0 to the last digit; within, nothing overflows.
  z = z > A{10} ? A{10} : z;
  z = z < A{-10} ? A{-10} : z;
  const A e = exp_minus_2u(z);
  const A s = A{1} / (A{1} + e);
  const A rest = e * s;  // 1 - s, without cancellation
  return multiply_add(z * multiply_add(A{3} * kCubic<A>, z * z, kLinear<A>), s * rest, s);
}

}  // namespace

template <class T>
void bias_gelu_forward(const Exec& exec, View2<const T> x, View1<const T> bias,
                       View2<T> y) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto f = static_cast<index_t>(x.extent(1));
  require_extents("bias_gelu_forward", "y", y, rows, f);
  require_extent("bias_gelu_forward", "bias", bias, f);

  const T* const x_data = x.data();
  const T* const bias_data = bias.data();
  T* const y_data = y.data();
  launch_rows(
      exec, {"trireme::kernels::bias_gelu_forward", {.bytes = bytes_of(x, bias, y)}},
      rows, KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const in = x_data + row * f;
        T* const out = y_data + row * f;
        for_each_column(team, f, [=](index_t j) {
          const A z = static_cast<A>(in[j]) + static_cast<A>(bias_data[j]);
          out[j] = static_cast<T>(gelu(z));
        });
      });
}

template <class T>
void bias_gelu_backward(const Exec& exec, View2<const T> d_y, View2<const T> x,
                        View1<const T> bias, View2<T> d_x) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto f = static_cast<index_t>(x.extent(1));
  require_extents("bias_gelu_backward", "d_y", d_y, rows, f);
  require_extents("bias_gelu_backward", "d_x", d_x, rows, f);
  require_extent("bias_gelu_backward", "bias", bias, f);

  const T* const d_y_data = d_y.data();
  const T* const x_data = x.data();
  const T* const bias_data = bias.data();
  T* const d_x_data = d_x.data();
  launch_rows(
      exec,
      {"trireme::kernels::bias_gelu_backward", {.bytes = bytes_of(d_y, x, bias, d_x)}},
      rows, KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const in = x_data + row * f;
        const T* const d_out = d_y_data + row * f;
        T* const d_in = d_x_data + row * f;
        for_each_column(team, f, [=](index_t j) {
          const A z = static_cast<A>(in[j]) + static_cast<A>(bias_data[j]);
          d_in[j] = static_cast<T>(static_cast<A>(d_out[j]) * gelu_slope(z));
        });
      });
}

#define TRIREME_INSTANTIATE(T)                                  \
  template decltype(bias_gelu_forward<T>) bias_gelu_forward<T>; \
  template decltype(bias_gelu_backward<T>) bias_gelu_backward<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
