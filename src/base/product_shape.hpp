// base/product_shape.hpp — a product of matrices, and what is done to its result, as a
// library is asked for it: all that its choice of an algorithm may depend on.
//
//   z (m, n) = op(A) op(B) + bias;   C = gelu(z), or z + residual;   all row-major.
// Whether C is written or added to is not in it: a library takes the same algorithm for
// both, and so the first micro-batch of a step, which writes gradients, sums in the order
// of those that add to them.
#ifndef TRIREME_BASE_PRODUCT_SHAPE_HPP_
#define TRIREME_BASE_PRODUCT_SHAPE_HPP_

#include <compare>

#include "base/types.hpp"

namespace trireme {

struct ProductShape {
  DType type = DType::float32;    // of A and B
  DType type_c = DType::float32;  // of C
  bool transpose_a = false, transpose_b = false;
  index_t m = 0, n = 0, k = 0;
  index_t lda = 0, ldb = 0, ldc = 0;  // elements from row to row, as stored
  // Every row of every operand begins at a multiple of so many bytes: a power of two, and
  // 16 where it could be more, as no algorithm asks for more.
  index_t alignment = 16;
  // The epilogue.
  bool has_bias = false, has_gelu = false;
  index_t ld_kept = 0;      // from row to row of z where it is kept; 0: it is not
  index_t ld_residual = 0;  // of the residual; 0: there is none

  bool has_epilogue() const { return has_bias || has_gelu || ld_residual > 0; }
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  // A member: of a friend, nvcc 13.0 leaves out the equality that comes with it.
  auto operator<=>(const ProductShape&) const = default;
};

}  // namespace trireme

#endif  // TRIREME_BASE_PRODUCT_SHAPE_HPP_
