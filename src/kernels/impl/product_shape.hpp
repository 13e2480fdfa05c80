// kernels/impl/product_shape.hpp — what a library is asked for by the Views of a product.
//
// The shape must be the same whether the Views have memory or not: products are known,
// and their algorithms chosen, from a pass on shapes alone. What has no memory yet is
// taken to begin at a multiple of 16 bytes, as arenas and parameters do.
#ifndef TRIREME_KERNELS_IMPL_PRODUCT_SHAPE_HPP_
#define TRIREME_KERNELS_IMPL_PRODUCT_SHAPE_HPP_

#include <cstdint>

#include "base/exec.hpp"
#include "base/product_shape.hpp"
#include "kernels/gemm.hpp"
#include "kernels/gemm_reference.hpp"

namespace trireme::kernels::impl {

// The largest power of two, of 16 at most, that divides the addresses and the distances
// between rows, in bytes, of all these Views; those without elements do not count.
template <class... Views>
index_t alignment_of(const Views&... views) {
  std::uintptr_t bits = 16;
  const auto add = [&](const auto& view) {
    if (view.extent(0) == 0) return;
    bits |= reinterpret_cast<std::uintptr_t>(view.data());
    if (view.rank() > 1) bits |= view.stride(0) * sizeof(*view.data());
  };
  (add(views), ...);
  return static_cast<index_t>(bits & (~bits + 1));
}

template <class View>
index_t leading_of(const View& view) {
  return static_cast<index_t>(view.stride(0));
}

template <class T, class To>
ProductShape product_shape(Transpose transpose_a, Transpose transpose_b,
                           const GemmShape& shape, const View2<const T>& a,
                           const View2<const T>& b, const View2<To>& c) {
  return {.type = dtype_of<T>,
          .type_c = dtype_of<To>,
          .transpose_a = transpose_a == Transpose::yes,
          .transpose_b = transpose_b == Transpose::yes,
          .m = shape.m,
          .n = shape.n,
          .k = shape.k,
          .lda = leading_of(a),
          .ldb = leading_of(b),
          .ldc = leading_of(c),
          .alignment = alignment_of(a, b, c)};
}

// Of y = x W^T with all that the epilogue does.
template <class T>
ProductShape forward_shape(const GemmShape& shape, const View2<const T>& x,
                           const View2<const T>& weight, const Epilogue<T>& epilogue,
                           const View2<T>& y) {
  ProductShape product =
      product_shape(Transpose::no, Transpose::yes, shape, x, weight, y);
  product.has_bias = epilogue.bias.extent(0) > 0;
  // Other activations are no library's.
  product.has_gelu = epilogue.activation == Activation::gelu_tanh;
  if (product.has_gelu && epilogue.pre_activation.extent(0) > 0) {
    product.ld_kept = leading_of(epilogue.pre_activation);
  }
  if (epilogue.residual.extent(0) > 0) {
    product.ld_residual = leading_of(epilogue.residual);
  }
  product.alignment = alignment_of(x, weight, y, epilogue.bias, epilogue.pre_activation,
                                   epilogue.residual);
  return product;
}

// Counts a product that a library may be asked for, on an Exec that only counts; a sum of
// no products is no library's.
inline void count_product(const Exec& exec, const ProductShape& shape) {
  if (exec.tally() != nullptr && shape.m > 0 && shape.n > 0 && shape.k > 0) {
    exec.tally()->add(ProductTally{shape, 1});
  }
}

// True where this product is not to run, but counts: as a call of the kernel, and as a
// product.
inline bool only_counts_product(const Exec& exec, const Kernel& kernel,
                                const ProductShape& shape) {
  if (!exec.only_counts(kernel)) return false;
  count_product(exec, shape);
  return true;
}

// True where gemm() has nothing to compute: no elements, or an Exec that only counts.
inline bool skips_gemm(const Exec& exec, const Kernel& kernel,
                       const ProductShape& shape) {
  return shape.m == 0 || shape.n == 0 || only_counts_product(exec, kernel, shape);
}

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_PRODUCT_SHAPE_HPP_
