// The table of a run's products, and who times what.
#include "kernels/gemm_table.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"

namespace trireme::kernels {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const GemmLibrary kLibrary{"cuBLASLt 13.1.0", "NVIDIA H100", "9.0", 132};

ProductShape product(index_t m, index_t n, index_t k) {
  return {.type = DType::bfloat16,
          .type_c = DType::bfloat16,
          .transpose_b = true,
          .m = m,
          .n = n,
          .k = k,
          .lda = k,
          .ldb = k,
          .ldc = n};
}
ProductShape with_gelu(ProductShape shape, index_t ld_kept) {
  shape.has_bias = shape.has_gelu = true;
  shape.ld_kept = ld_kept;
  return shape;
}

TEST(GemmTable, SaysWhatItIsOf) {
  EXPECT_EQ(kLibrary.text(), "cuBLASLt 13.1.0 on NVIDIA H100 (9.0, 132 multiprocessors)");
  EXPECT_FALSE(kLibrary.is_empty());
  EXPECT_TRUE(GemmLibrary().is_empty());
}

TEST(GemmTable, KeepsWhatItHas) {
  GemmTable table{kLibrary, {{product(1, 2, 3), {.proposal = 4, .proposals = 5}}}};
  table.add({kLibrary,
             {{product(1, 2, 3), {.proposal = 2, .proposals = 5}},
              {product(2, 2, 3), {.proposal = 1, .proposals = 5}}}});
  ASSERT_EQ(table.products.size(), 2u);
  EXPECT_EQ(table.products.at(product(1, 2, 3)).proposal, 4);
  EXPECT_TRUE(table.has(product(2, 2, 3)));
  EXPECT_FALSE(table.has(with_gelu(product(2, 2, 3), 0)));
  GemmLibrary other = kLibrary;
  other.name = "cuBLASLt 12.8.4";
  EXPECT_THAT(
      [&] {
        table.add({other, {}});
      },
      ThrowsMessage<Error>(HasSubstr("cannot take those of cuBLASLt 12.8.4")));
}

TEST(GemmTable, WhatIsChosenIsOneWay) {
  GemmChoice one;
  one.algorithm[3] = 7;
  GemmChoice other = one;
  other.seconds = 1.0;  // times are no bits
  EXPECT_TRUE(one.computes_as(other));
  other.algorithm[7] = 1;
  EXPECT_FALSE(one.computes_as(other));
  EXPECT_FALSE(GemmChoice().computes_as({.in_two_passes = true}));
}

// Without a table: the first proposal, and GeLU as a pass of its own.
TEST(GemmTable, WhatIsTakenWithoutTimes) {
  const ProductShape plain = product(64, 48, 32);
  EXPECT_TRUE(is_untimed_choice(plain, {.proposal = 0, .proposals = 2}));
  EXPECT_FALSE(is_untimed_choice(plain, {.proposal = 1, .proposals = 2}));
  ProductShape bias = plain;
  bias.has_bias = true;
  EXPECT_TRUE(is_untimed_choice(bias, {}));
  EXPECT_FALSE(is_untimed_choice(bias, {.in_two_passes = true}));
  EXPECT_FALSE(is_untimed_choice(with_gelu(plain, 48), {}));
  EXPECT_TRUE(is_untimed_choice(with_gelu(plain, 48), {.in_two_passes = true}));
}

// What comes before a GeLU has the bias, and goes to where z is kept, or to y.
TEST(GemmTable, FirstPasses) {
  const ProductShape plain = product(64, 48, 32);
  EXPECT_EQ(first_pass_of(plain), plain);
  ProductShape bias = plain;
  bias.has_bias = true;
  EXPECT_EQ(first_pass_of(bias), plain);
  EXPECT_EQ(first_pass_of(with_gelu(plain, 0)), bias);
  bias.ldc = 56;
  EXPECT_EQ(first_pass_of(with_gelu(plain, 56)), bias);
  ProductShape gelu = with_gelu(plain, 0);
  gelu.has_bias = false;
  EXPECT_EQ(first_pass_of(gelu), plain);
  ProductShape added = plain;
  added.has_bias = true;
  added.ld_residual = 96;
  EXPECT_TRUE(added.has_epilogue());
  EXPECT_EQ(first_pass_of(added), plain);
}

TEST(GemmTable, BytesOfATrial) {
  // (5, 7) (3, 7)^T, with gaps of one element in A.
  ProductShape shape = product(5, 3, 7);
  shape.lda = 8;
  EXPECT_EQ(trial_bytes(shape), 2u * (5 * 8 + 3 * 7 + 5 * 3));
  EXPECT_EQ(trial_bytes(with_gelu(shape, 4)), 2u * (5 * 8 + 3 * 7 + 5 * 3 + 3 + 5 * 4));
  shape.ld_residual = 6;
  EXPECT_EQ(trial_bytes(shape), 2u * (5 * 8 + 3 * 7 + 5 * 3 + 5 * 6));
  // A gradient, (7, 5)^T (7, 3), in float, and what it is added to.
  const ProductShape gradient{.type = DType::bfloat16,
                              .type_c = DType::float32,
                              .transpose_a = true,
                              .m = 5,
                              .n = 3,
                              .k = 7,
                              .lda = 5,
                              .ldb = 3,
                              .ldc = 3};
  EXPECT_EQ(trial_bytes(gradient), 2u * (7 * 5 + 7 * 3) + 2u * 4u * 5 * 3);
}

// Every product is one rank's, behind its first pass, also where nobody asked for that.
TEST(GemmTable, DealsEachProductOnce) {
  std::vector<ProductShape> shapes;
  for (index_t i = 1; i <= 9; ++i) shapes.push_back(product(8 * i, 16, 8));
  shapes.push_back(with_gelu(product(24, 16, 8), 0));
  shapes.push_back(with_gelu(product(24, 16, 8), 16));
  shapes.push_back(with_gelu(product(500, 16, 8), 16));
  for (const int ranks : {1, 2, 3, 40}) {
    const auto dealt = deal_products(shapes, ranks);
    ASSERT_EQ(dealt.size(), static_cast<std::size_t>(ranks));
    std::set<ProductShape> all;
    for (const auto& part : dealt) {
      for (std::size_t i = 0; i < part.size(); ++i) {
        EXPECT_TRUE(all.insert(part[i]).second) << "twice";
        const auto first = std::ranges::find(part, first_pass_of(part[i]));
        EXPECT_LE(first - part.begin(), static_cast<std::ptrdiff_t>(i));
      }
    }
    // One bias for two GeLUs; a bias and a bare product for the third.
    EXPECT_EQ(all.size(), shapes.size() + 3);
    for (const ProductShape& shape : shapes) EXPECT_TRUE(all.count(shape) > 0);
    std::vector<ProductShape> backwards(shapes.rbegin(), shapes.rend());
    EXPECT_EQ(deal_products(backwards, ranks), dealt);
  }
}

// The largest is one rank's, all others together the other's.
TEST(GemmTable, DealsTheLargestFirst) {
  const auto dealt =
      deal_products({product(8, 8, 8), product(8, 8, 16), product(80, 8, 8)}, 2);
  EXPECT_EQ(dealt[0], std::vector{product(80, 8, 8)});
  EXPECT_EQ(dealt[1], (std::vector{product(8, 8, 16), product(8, 8, 8)}));
  EXPECT_EQ(deal_products({}, 2), std::vector<std::vector<ProductShape>>(2));
}

}  // namespace
}  // namespace trireme::kernels
