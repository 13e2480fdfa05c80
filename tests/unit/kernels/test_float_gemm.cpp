// How threads share products of float: every element of C is in one part, parts begin at
// tiles, are as square as they come, and small products stay whole.
#include "kernels/impl/float_gemm.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace trireme::kernels::impl {
namespace {

Product product_of(index_t m, index_t n) {
  return {Transpose::no, Transpose::yes, Accumulate::no, m, n, 8, 8, 8, n};
}

TEST(FloatGemm, PartsCoverC) {
  for (const auto& [m, n] : {std::pair<index_t, index_t>{1, 1},
                             {4, 50000},
                             {50000, 4},
                             {301, 517},
                             {1024, 3072},
                             {4099, 2051}}) {
    for (const index_t threads : {1, 2, 3, 6, 7, 64, 96}) {
      SCOPED_TRACE(::testing::Message() << m << " x " << n << ", " << threads);
      index_t elements = 0;
      const auto parts = float_parts(product_of(m, n), threads);
      EXPECT_TRUE(parts.size() == 1 || std::ssize(parts) == threads);
      for (const PartOfC& part : parts) {
        EXPECT_LT(part.row, part.row_end);
        EXPECT_LT(part.column, part.column_end);
        EXPECT_EQ(part.row % kFloatTileRows, 0);
        EXPECT_EQ(part.column % kFloatTileColumns, 0);
        elements += part.rows() * part.columns();
      }
      EXPECT_EQ(elements, m * n);
    }
  }
}

TEST(FloatGemm, PartsAreNearToSquares) {
  const auto of_rows = float_parts(product_of(4096, 512), 2);
  ASSERT_EQ(of_rows.size(), 2u);
  EXPECT_EQ(of_rows[0].rows(), 2048);
  EXPECT_EQ(of_rows[0].columns(), 512);
  const auto of_columns = float_parts(product_of(512, 2016), 2);
  ASSERT_EQ(of_columns.size(), 2u);
  EXPECT_EQ(of_columns[0].rows(), 512);
  EXPECT_EQ(of_columns[0].columns(), 1008);
  const auto both_ways = float_parts(product_of(2048, 1920), 4);
  ASSERT_EQ(both_ways.size(), 4u);
  EXPECT_EQ(both_ways[0].rows(), 1024);
  EXPECT_EQ(both_ways[0].columns(), 960);
}

TEST(FloatGemm, SmallProductsAreTheLibrarysToCut) {
  EXPECT_EQ(float_parts(product_of(128, 128), 2).size(), 1u);
  EXPECT_EQ(float_parts(product_of(40, 50304), 2).size(), 1u);
  EXPECT_EQ(float_parts(product_of(1024, 768), 64).size(), 1u);
  EXPECT_EQ(float_parts(product_of(4096, 3072), 1).size(), 1u);
}

}  // namespace
}  // namespace trireme::kernels::impl
