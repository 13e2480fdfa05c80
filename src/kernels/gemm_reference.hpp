// kernels/gemm_reference.hpp — the plain triple loop, in Kokkos: the oracle of the tests,
// and what runs where the
// library refuses.
#ifndef TRIREME_KERNELS_GEMM_REFERENCE_HPP_
#define TRIREME_KERNELS_GEMM_REFERENCE_HPP_

#include "base/exec.hpp"
#include "kernels/gemm.hpp"

namespace trireme::kernels {

// Same meaning as gemm(); sums in Accumulator<T>, in the order of k.
template <class T, class To>
void gemm_reference(const Exec& exec, Transpose transpose_a, Transpose transpose_b,
                    Accumulate accumulate, View2<const T> a, View2<const T> b,
                    View2<To> c);

// Checks that op(A), op(B) and C fit together; throws Error with the shapes.
struct GemmShape {
  index_t m, n, k;
};
template <class T, class To>
GemmShape gemm_shape(Transpose transpose_a, Transpose transpose_b,
                     const View2<const T>& a, const View2<const T>& b,
                     const View2<To>& c);

// What one product costs, whoever computes it: C is read too where it is added to.
template <class T, class To>
Cost gemm_cost(const GemmShape& shape, Accumulate accumulate, const View2<const T>& a,
               const View2<const T>& b, const View2<To>& c) {
  return {.flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                   static_cast<double>(shape.k),
          .bytes = bytes_of(a, b, c) + (accumulate == Accumulate::yes ? bytes_of(c) : 0)};
}
// What gemm() is called in tallies and profiles.
template <class T, class To>
Kernel gemm_kernel(const GemmShape& shape, Accumulate accumulate, const View2<const T>& a,
                   const View2<const T>& b, const View2<To>& c) {
  return {"trireme::kernels::gemm", gemm_cost(shape, accumulate, a, b, c)};
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_GEMM_REFERENCE_HPP_
