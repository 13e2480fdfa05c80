// kernels/gemm_reference.cpp — see gemm_reference.hpp.
#include "kernels/gemm_reference.hpp"

#include "base/error.hpp"

namespace trireme::kernels {

template <class T, class To>
GemmShape gemm_shape(Transpose transpose_a, Transpose transpose_b,
                     const View2<const T>& a, const View2<const T>& b,
                     const View2<To>& c) {
  const auto rows = [](const auto& view, Transpose transpose) {
    return static_cast<index_t>(view.extent(transpose == Transpose::yes ? 1 : 0));
  };
  const auto columns = [](const auto& view, Transpose transpose) {
    return static_cast<index_t>(view.extent(transpose == Transpose::yes ? 0 : 1));
  };
  const GemmShape shape{rows(a, transpose_a), columns(b, transpose_b),
                        columns(a, transpose_a)};
  TRIREME_REQUIRE(rows(b, transpose_b) == shape.k &&
                      static_cast<index_t>(c.extent(0)) == shape.m &&
                      static_cast<index_t>(c.extent(1)) == shape.n,
                  "gemm: op(A) is ({}, {}), op(B) ({}, {}), C ({}, {})", shape.m, shape.k,
                  rows(b, transpose_b), shape.n, c.extent(0), c.extent(1));
  return shape;
}

template <class T, class To>
void gemm_reference(const Exec& exec, Transpose transpose_a, Transpose transpose_b,
                    Accumulate accumulate, View2<const T> a, View2<const T> b,
                    View2<To> c) {
  using Acc = Accumulator<T>;
  const GemmShape shape = gemm_shape(transpose_a, transpose_b, a, b, c);
  const bool a_transposed = transpose_a == Transpose::yes;
  const bool b_transposed = transpose_b == Transpose::yes;
  const bool add = accumulate == Accumulate::yes;
  const Cost cost = gemm_cost(shape, accumulate, a, b, c);
  launch(
      exec, {"trireme::kernels::gemm_reference", cost}, shape.m * shape.n,
      KOKKOS_LAMBDA(const index_t index) {
        const index_t i = index / shape.n;
        const index_t j = index % shape.n;
        Acc sum = 0;
        for (index_t p = 0; p < shape.k; ++p) {
          const Acc left = static_cast<Acc>(a_transposed ? a(p, i) : a(i, p));
          const Acc right = static_cast<Acc>(b_transposed ? b(j, p) : b(p, j));
          sum += left * right;
        }
        if (add) sum += static_cast<Acc>(c(i, j));
        c(i, j) = static_cast<To>(sum);
      });
}

#define TRIREME_INSTANTIATE(T, To)                        \
  template decltype(gemm_shape<T, To>) gemm_shape<T, To>; \
  template decltype(gemm_reference<T, To>) gemm_reference<T, To>;
TRIREME_FOR_EACH_GEMM(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
