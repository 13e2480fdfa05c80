// What a library is asked for: known from Views without memory, and the same from those
// that a step has.
#include "kernels/impl/product_shape.hpp"

#include <gtest/gtest.h>

#include "kernels/gemm.hpp"
#include "kernels/narrow_gemm.hpp"

namespace trireme::kernels::impl {
namespace {

constexpr auto kNo = Transpose::no, kYes = Transpose::yes;

template <class T>
View2<T> matrix(index_t rows, index_t columns, T* data = nullptr) {
  return View2<T>(data, extent(rows), extent(columns));
}

ProductShape only_product(const Tally& tally) {
  EXPECT_EQ(tally.products().size(), 1u);
  return tally.products().empty() ? ProductShape() : tally.products().front().shape;
}

TEST(ProductShape, OfAPassOnShapes) {
  Tally tally;
  const Exec exec = Exec::shape_only(tally);
  linear_backward_weight<bf16>(exec, matrix<const bf16>(70, 30),
                               matrix<const bf16>(70, 50), Accumulate::yes,
                               matrix<float>(30, 50));
  const ProductShape gradient{.type = DType::bfloat16,
                              .type_c = DType::float32,
                              .transpose_a = true,
                              .m = 30,
                              .n = 50,
                              .k = 70,
                              .lda = 30,
                              .ldb = 50,
                              .ldc = 50,
                              .alignment = 4};  // rows of 60, 100 and 200 bytes
  EXPECT_EQ(only_product(tally), gradient);
  // Written or added to, it is the same product.
  linear_backward_weight<bf16>(exec, matrix<const bf16>(70, 30),
                               matrix<const bf16>(70, 50), Accumulate::no,
                               matrix<float>(30, 50));
  EXPECT_EQ(only_product(tally), gradient);
  EXPECT_EQ(tally.products().front().calls, 2);
  tally = {};
  gemm<float, float>(exec, kNo, kNo, Accumulate::yes, matrix<const float>(3, 0),
                     matrix<const float>(0, 5), matrix<float>(3, 5));
  gemm<float, float>(exec, kNo, kNo, Accumulate::no, matrix<const float>(0, 3),
                     matrix<const float>(3, 5), matrix<float>(0, 5));
  EXPECT_TRUE(tally.products().empty()) << "no library is asked for these";
}

// All in one, where a host's products do so. A GPU's plan asks for both of the ways that
// there are: all in one, and the product with its bias.
TEST(ProductShape, OfALinearLayerWithItsEpilogue) {
  Tally tally;
  const Exec exec = Exec::shape_only(tally);
  if (kHostExecution) {
    set_narrow_products(exec, DType::bfloat16, NarrowProducts::widened);
  }
  linear_forward<bf16>(exec, matrix<const bf16>(96, 64),
                       WeightOperand<bf16>(matrix<const bf16>(256, 64)),
                       {.bias = View1<const bf16>(nullptr, 256),
                        .activation = Activation::gelu_tanh,
                        .pre_activation = matrix<bf16>(96, 256)},
                       matrix<bf16>(96, 256));
  ProductShape expected{.type = DType::bfloat16,
                        .type_c = DType::bfloat16,
                        .transpose_b = true,
                        .m = 96,
                        .n = 256,
                        .k = 64,
                        .lda = 64,
                        .ldb = 64,
                        .ldc = 256};
  expected.has_bias = expected.has_gelu = true;
  expected.ld_kept = 256;
  ASSERT_EQ(tally.products().size(), kHostExecution ? 1u : 2u);
  EXPECT_EQ(tally.products().front().shape, expected);
  if (kHostExecution) return;
  expected.has_gelu = false;
  expected.ld_kept = 0;
  EXPECT_EQ(tally.products().back().shape, expected);
}

// Parts of larger matrices: the pointer of a part of rows is as aligned as the rows are,
// so that a View without memory says the same.
TEST(ProductShape, AlignmentIsThatOfTheRows) {
  alignas(256) static bf16 memory[4096];
  for (const index_t columns : {8, 12, 33, 64}) {
    for (const index_t first_row : {0, 1, 2, 5}) {
      const auto part = matrix<bf16>(4, columns, memory + first_row * columns);
      EXPECT_EQ(alignment_of(part), alignment_of(matrix<bf16>(4, columns))) << columns;
    }
  }
  EXPECT_EQ(alignment_of(matrix<bf16>(4, 12)), 8);
  EXPECT_EQ(alignment_of(matrix<bf16>(4, 33)), 2);
  EXPECT_EQ(alignment_of(matrix<float>(4, 33)), 4);
  EXPECT_EQ(alignment_of(matrix<float>(4, 64)), 16);
  // A column's begin, and a vector's.
  EXPECT_EQ(alignment_of(matrix<bf16>(4, 64, memory + 2)), 4);
  EXPECT_EQ(alignment_of(View1<bf16>(memory + 1, 5)), 2);
  EXPECT_EQ(alignment_of(View1<bf16>(nullptr, 5)), 16);
  // Operands that are not there do not count.
  EXPECT_EQ(alignment_of(View1<bf16>(memory + 1, 0), matrix<bf16>(0, 33)), 16);
}

}  // namespace
}  // namespace trireme::kernels::impl
