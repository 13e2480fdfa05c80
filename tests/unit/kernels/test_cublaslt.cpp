// The sources that call cuBLASLt, against a cuBLASLt that is made for this test
// (tests/support/fake_cublaslt.hpp): what they ask of it, by which algorithm they
// compute, and how they choose one.
#include <gmock/gmock.h>

#include <cmath>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/activation.hpp"
#include "kernels/epilogue.hpp"
#include "kernels/gemm_reference.hpp"
#include "kernels/gemm_tuner.hpp"
#include "kernels/load_products.hpp"
#include "kernels/narrow_gemm.hpp"
#include "support/arrays.hpp"
#include "support/fake_cublaslt.hpp"

namespace trireme::kernels {
namespace {

using test::Array;
using test::fake_cublaslt;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr index_t kRows = 24, kIn = 40, kOut = 16;

// y (rows, out) = x (rows, in) W^T.
ProductShape forward_product() {
  return {.type = DType::bfloat16,
          .type_c = DType::bfloat16,
          .transpose_b = true,
          .m = kRows,
          .n = kOut,
          .k = kIn,
          .lda = kIn,
          .ldb = kIn,
          .ldc = kOut};
}
ProductShape with_bias() {
  ProductShape shape = forward_product();
  shape.has_bias = true;
  return shape;
}
ProductShape with_gelu() {
  ProductShape shape = with_bias();
  shape.has_gelu = true;
  shape.ld_kept = kOut;
  return shape;
}

// A linear layer with bias and GeLU.
struct Layer {
  Array<bf16> x{test::uniform(kRows * kIn, 1, -1, 1)};
  Array<bf16> w{test::uniform(kOut * kIn, 2, -1, 1)};
  Array<bf16> bias{test::uniform(kOut, 3, -1, 1)};
  Array<bf16> y = Array<bf16>(kRows * kOut, 0.0), z = Array<bf16>(kRows * kOut, 0.0);

  void forward(const Exec& exec) const {
    linear_forward<bf16>(exec, x.cmatrix(kRows, kIn), weight(), epilogue(),
                         y.matrix(kRows, kOut));
  }
  void reference() const {
    linear_forward_reference<bf16>(Exec(), x.cmatrix(kRows, kIn), weight(), epilogue(),
                                   y.matrix(kRows, kOut));
  }
  void product(const Exec& exec) const {
    gemm<bf16, bf16>(exec, Transpose::no, Transpose::yes, Accumulate::no,
                     x.cmatrix(kRows, kIn), weight().rows, y.matrix(kRows, kOut));
  }
  // Sums in the order of k with the bias behind them.
  std::vector<double> z_rounded_once() const {
    const std::vector<double> xs = x.values(), ws = w.values(), biases = bias.values();
    std::vector<double> all;
    for (index_t i = 0; i < kRows; ++i) {
      for (index_t j = 0; j < kOut; ++j) {
        float sum = 0.0f;
        for (index_t p = 0; p < kIn; ++p) {
          sum += static_cast<float>(xs[extent(i * kIn + p)] * ws[extent(j * kIn + p)]);
        }
        all.push_back(
            static_cast<float>(bf16(sum + static_cast<float>(biases[extent(j)]))));
      }
    }
    return all;
  }
  // GeLU of z as it is stored.
  std::vector<unsigned char> made_again() const {
    const Array<bf16> again(kRows * kOut, 0.0);
    activation_forward<bf16>(Exec(), Activation::gelu_tanh, z.cmatrix(kRows, kOut),
                             again.matrix(kRows, kOut));
    return again.bytes();
  }

 private:
  WeightOperand<bf16> weight() const { return WeightOperand<bf16>(w.cmatrix(kOut, kIn)); }
  Epilogue<bf16> epilogue() const {
    return {.bias = bias.cvector(),
            .activation = Activation::gelu_tanh,
            .pre_activation = z.matrix(kRows, kOut)};
  }
};

// Descriptors and counts are looked at from the beginning of each test.
class Cublaslt : public ::testing::Test {
 protected:
  Cublaslt() {
    fake_cublaslt() = {.descriptors = fake_cublaslt().descriptors};
    before_ = fake_cublaslt().descriptors;
  }
  ~Cublaslt() override { EXPECT_EQ(fake_cublaslt().descriptors, before_) << "lost"; }

  // All but these take so long that times decide.
  static void make_fast(std::initializer_list<int> algorithms) {
    fake_cublaslt().milliseconds.fill(3);
    for (const int one : algorithms) fake_cublaslt().milliseconds.at(extent(one)) = 0;
  }
  static GemmTable time(const Exec& exec, const std::vector<ProductShape>& shapes) {
    const auto tuner = make_gemm_tuner(exec);
    return tuner->time(shapes, {tuner->library(), {}});
  }
  // The number in the first of an algorithm's words.
  static int number_of(const GemmChoice& choice) {
    return static_cast<int>(choice.algorithm[0] & 0xff);
  }

 private:
  int before_;
};

// Every type and transposition, rows with gaps, addresses of every alignment, written and
// added to: small whole numbers have one answer.
TEST_F(Cublaslt, ComputesEveryProduct) {
  const Exec exec;
  const auto check = [&]<class T, class To>(T, To) {
    for (const Transpose ta : {Transpose::no, Transpose::yes}) {
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        for (const Accumulate add : {Accumulate::no, Accumulate::yes}) {
          for (const std::size_t gap : {0u, 3u, 8u}) {
            const std::size_t m = 8, n = 24, k = 16;
            const auto whole = [](std::size_t count, unsigned seed) {
              std::vector<double> values = test::uniform(count, seed, -2, 3);
              for (double& x : values) x = std::floor(x);
              return values;
            };
            const Array<T> a(whole(16 * (16 + gap) + gap, 1)),
                b(whole(24 * (24 + gap) + gap, 2));
            const Array<To> c(whole(m * (n + gap), 3)), want(c.values());
            const auto part = [&](auto* data, std::size_t rows, std::size_t columns) {
              using Element = std::remove_pointer_t<decltype(data)>;
              return View2<Element>(
                  Kokkos::subview(View2<Element>(data, rows, columns + gap), Kokkos::ALL,
                                  std::pair<std::size_t, std::size_t>(0, columns)));
            };
            const bool is_a = ta == Transpose::yes, is_b = tb == Transpose::yes;
            const View2<const T> left =
                part(a.cvector().data() + gap, is_a ? k : m, is_a ? m : k);
            const View2<const T> right =
                part(b.cvector().data() + gap, is_b ? n : k, is_b ? k : n);
            gemm<T, To>(exec, ta, tb, add, left, right, part(c.vector().data(), m, n));
            gemm_reference<T, To>(exec, ta, tb, add, left, right,
                                  part(want.vector().data(), m, n));
            EXPECT_EQ(c.values(), want.values());
          }
        }
      }
    }
  };
  check(float{}, float{});
  check(double{}, double{});
  check(bf16{}, bf16{});
  check(bf16{}, float{});
  check(fp16{}, fp16{});
  check(fp16{}, float{});
}

// Only sums of a fixed order that are rounded once, and only what its workspace and its
// operands' alignment suffice for.
TEST_F(Cublaslt, TakesNoOtherSums) {
  make_fast({2, 3, 4});
  const GemmChoice choice = time(Exec(), {forward_product()}).products.begin()->second;
  EXPECT_EQ(choice.proposals, 5);
  EXPECT_EQ(fake_cublaslt().products_of[2], 0);
  EXPECT_EQ(fake_cublaslt().products_of[3], 0);
  EXPECT_EQ(fake_cublaslt().products_of[4], 0);
  ProductShape odd = forward_product();
  odd.lda = kIn + 1;
  odd.alignment = 2;
  EXPECT_EQ(time(Exec(), {odd}).products.begin()->second.proposals, 2);
  // Nor from a table.
  const Exec exec;
  const auto tuner = make_gemm_tuner(exec);
  EXPECT_TRUE(tuner->can_run(forward_product(), choice));
  GemmChoice wrong = choice;
  wrong.algorithm = {0xfab1a50000000003, 0x0303030303030303, 0, 0, 0, 0, 0, ~3ull};
  EXPECT_FALSE(tuner->can_run(forward_product(), wrong));
  wrong.algorithm[7] = 0;
  EXPECT_FALSE(tuner->can_run(forward_product(), wrong)) << "no algorithm at all";
}

TEST_F(Cublaslt, UntimedIsTheFirstProposalAndAPassOfGelu) {
  const Exec exec;
  Layer layer;
  layer.forward(exec);
  EXPECT_EQ(fake_cublaslt().products_of[0], 1);
  EXPECT_EQ(layer.made_again(), layer.y.bytes()) << "made again it has the same bits";
  const int asked = fake_cublaslt().proposals;
  layer.forward(exec);
  EXPECT_EQ(fake_cublaslt().proposals, asked) << "once for each product";
  EXPECT_EQ(fake_cublaslt().products, 2);
  EXPECT_EQ(layer.z.values(), layer.z_rounded_once());
}

TEST_F(Cublaslt, TakesTheFastestFromThenOn) {
  make_fast({5});
  const Exec exec;
  const auto tuner = make_gemm_tuner(exec);
  EXPECT_EQ(tuner->library().text(),
            "cuBLASLt 13.1.0 on Fake GPU (9.0, 7 multiprocessors)");
  const GemmTable table = time(exec, {forward_product(), with_bias()});
  for (const auto& [shape, choice] : table.products) {
    EXPECT_EQ(number_of(choice), 5);
    EXPECT_EQ(choice.proposal, 2);  // behind 0 and 1
    EXPECT_EQ(choice.workspace_bytes, 4096u);
    EXPECT_GT(choice.untimed_seconds, 2 * choice.seconds);
    EXPECT_THAT(choice.about, HasSubstr("algorithm 5, tile 0, stages 0, splits 3, "
                                        "reduction 2,"));
    EXPECT_TRUE(tuner->can_run(shape, choice));
  }
  Layer layer;
  layer.product(exec);
  EXPECT_GT(fake_cublaslt().products_of[0], 0);
  use_gemm_table(exec, table);
  EXPECT_EQ(gemm_table(exec).products.size(), 2u);
  const int before = fake_cublaslt().products_of[5], checks = fake_cublaslt().checks;
  layer.product(exec);
  layer.product(exec);
  EXPECT_EQ(fake_cublaslt().products_of[5], before + 2);
  EXPECT_EQ(fake_cublaslt().checks, checks + 1) << "the library looks at it once";
}

TEST_F(Cublaslt, FailuresAndOtherBitsAreNotChosen) {
  make_fast({0, 1, 5});
  fake_cublaslt().refused = 0;
  fake_cublaslt().unsteady = 1;
  const GemmTable table = time(Exec(), {forward_product()});
  EXPECT_EQ(number_of(table.products.at(forward_product())), 5);
}

// GeLU in one with the product, where that is clearly faster than a pass of its own.
TEST_F(Cublaslt, GeluIsTheProductsWhereTimesSaySo) {
  const Exec exec;
  const auto tuner = make_gemm_tuner(exec);
  GemmTable table{tuner->library(), {}};
  make_fast({5});
  table.add(tuner->time({forward_product(), with_bias()}, table));
  // Its first pass becomes slow, and so the way in two passes.
  make_fast({6});
  table.add(tuner->time({with_gelu()}, table));
  const GemmChoice& gelu = table.products.at(with_gelu());
  EXPECT_FALSE(gelu.in_two_passes);
  EXPECT_EQ(number_of(gelu), 6);
  EXPECT_FALSE(is_untimed_choice(with_gelu(), gelu));
  use_gemm_table(exec, table);
  const int before = fake_cublaslt().products;
  Layer layer;
  layer.forward(exec);
  EXPECT_EQ(fake_cublaslt().products, before + 1);
  EXPECT_NE(layer.made_again(), layer.y.bytes()) << "taken before z is rounded";
}

// The table says so, also where the library could do it.
TEST_F(Cublaslt, WhatTheLibraryHasNotIsAPass) {
  make_fast({0});
  fake_cublaslt().has_epilogues = false;
  const Exec exec;
  const GemmTable table = time(exec, {forward_product(), with_bias(), with_gelu()});
  EXPECT_TRUE(table.products.at(with_gelu()).in_two_passes);
  EXPECT_TRUE(table.products.at(with_bias()).in_two_passes);
  EXPECT_EQ(number_of(table.products.at(forward_product())), 0);
  use_gemm_table(exec, table);
  fake_cublaslt().has_epilogues = true;
  Layer layer, plain;
  layer.forward(exec);
  plain.reference();
  EXPECT_EQ(layer.z.bytes(), plain.z.bytes());
  EXPECT_EQ(layer.y.bytes(), plain.y.bytes());
}

TEST_F(Cublaslt, ATableOfAnotherLibraryIsRefused) {
  const Exec exec;
  GemmTable table = time(exec, {forward_product()});
  table.library.device = "Other GPU";
  EXPECT_THAT([&] { use_gemm_table(exec, table); },
              ThrowsMessage<Error>(HasSubstr("cannot multiply by the algorithms of "
                                             "cuBLASLt 13.1.0 on Other GPU")));
  // One that was changed is not computed by.
  table.library.device = "Fake GPU";
  table.products.begin()->second.algorithm[7] = 5;
  use_gemm_table(exec, table);
  Layer layer;
  EXPECT_THAT([&] { layer.product(exec); },
              ThrowsMessage<Error>(HasSubstr("cuBLASLt refuses what the run's table")));
}

// The workspace is planned, and all that is kept.
TEST_F(Cublaslt, WorkspaceIsPlanned) {
  EXPECT_GE(product_workspace_bytes(Exec(), DType::bfloat16), std::size_t{32} << 20);
  EXPECT_EQ(product_workspace_bytes(Exec(), DType::bfloat16), kept_by_products(Exec()));
}

// Before anybody asks how much memory is free: the library's kernels are there then.
TEST_F(Cublaslt, IsLoadedByOneProduct) {
  for (const DType type : {DType::bfloat16, DType::float32}) {
    const int before = fake_cublaslt().products;
    load_products(Exec(), type);
    EXPECT_EQ(fake_cublaslt().products, before + 1);
  }
}

}  // namespace
}  // namespace trireme::kernels
