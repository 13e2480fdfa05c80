// kernels/gemm.hpp — dense matrix products, the one interface in front of vendor
// libraries.
//
//   C = op(A) op(B)   or   C += op(A) op(B);   all row-major.
// op(A) is (m, k), op(B) is (k, n), C is (m, n); a leading dimension is the distance in
// elements between rows as stored. Implementations: gemm_host.cpp (oneDNN for float,
// Kokkos Kernels for double; 16-bit types by narrow_gemm_host.cpp), gemm_cuda.cpp
// (cuBLASLt).
#ifndef TRIREME_KERNELS_GEMM_HPP_
#define TRIREME_KERNELS_GEMM_HPP_

#include <cstddef>

#include "base/exec.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/activation.hpp"
#include "kernels/few_rows.hpp"

namespace trireme::kernels {

enum class Transpose { no, yes };

// T: type of A and B; C has type To (T, or Accumulator<T> for weight gradients). Sums are
// taken in Accumulator<T>, what C has included, and rounded once where To is narrower.
template <class T, class To>
void gemm(const Exec& exec, Transpose transpose_a, Transpose transpose_b,
          Accumulate accumulate, View2<const T> a, View2<const T> b, View2<To> c);

// X(T, To) for every pair of types that gemm() is instantiated for.
#define TRIREME_FOR_EACH_GEMM(X)      \
  X(float, float)                     \
  X(double, double)                   \
  X(::trireme::bf16, ::trireme::bf16) \
  X(::trireme::bf16, float)           \
  X(::trireme::fp16, ::trireme::fp16) \
  X(::trireme::fp16, float)

// A weight matrix W (out, in) as the products below take it: its plain rows. What a
// library wants beside them (a packed copy, scales of a narrower type) becomes a member
// here, and layers, which only hand the operand on, stay as they are.
template <class T>
struct WeightOperand {
  explicit WeightOperand(View2<const T> plain_rows) : rows(plain_rows) {}
  WeightOperand first_rows(std::size_t count) const {
    return WeightOperand({rows.data(), count, rows.extent(1)});
  }

  View2<const T> rows;
};

// y (rows, out) = x (rows, in) W^T.
template <class T>
void linear_forward(const Exec& exec, View2<const T> x, const WeightOperand<T>& weight,
                    View2<T> y) {
  if constexpr (kHostExecution) {
    if (static_cast<index_t>(x.extent(0)) <= kFewRows) {
      few_rows_product<T>(exec, x, weight.rows, y);
      return;
    }
  }
  gemm<T, T>(exec, Transpose::no, Transpose::yes, Accumulate::no, x, weight.rows, y);
}

// What else is done with x W^T before y is stored. Views without elements are left out.
template <class T>
struct Epilogue {
  View1<const T> bias{};      // (out)
  View2<const T> residual{};  // (rows, out), with Activation::none; may be y itself
  Activation activation = Activation::none;
  View2<T> pre_activation{};  // (rows, out): keeps z, with an activation
};

// y = activation(z) + residual, z = x W^T + bias: in one go where the library can, else
// the product and then kernels/epilogue.hpp. Where T has 16 bits the activation takes z
// as it is stored, rounded; not so on a GPU where the run's table of products
// (gemm_table.hpp) gives it to the library.
template <class T>
void linear_forward(const Exec& exec, View2<const T> x, const WeightOperand<T>& weight,
                    const Epilogue<T>& epilogue, View2<T> y);

// d_x (rows, in) = d_y (rows, out) W.
template <class T>
void linear_backward_input(const Exec& exec, View2<const T> d_y,
                           const WeightOperand<T>& weight, View2<T> d_x) {
  gemm<T, T>(exec, Transpose::no, Transpose::no, Accumulate::no, d_y, weight.rows, d_x);
}

// d_W (out, in) = or += d_y^T x.
template <class T, class G = Accumulator<T>>
void linear_backward_weight(const Exec& exec, View2<const T> d_y, View2<const T> x,
                            Accumulate accumulate, View2<G> d_weight) {
  gemm<T, G>(exec, Transpose::yes, Transpose::no, accumulate, d_y, x, d_weight);
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_GEMM_HPP_
