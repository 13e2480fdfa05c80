// Products of 16-bit elements: which way a CPU is given, and both ways against the plain
// loop on sums that nothing rounds.
#include <gmock/gmock.h>

#include <cmath>

#include "base/error.hpp"
#include "kernels/gemm_reference.hpp"
#include "kernels/impl/narrow_gemm.hpp"
#include "kernels/narrow_gemm.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

TEST(NarrowGemm, TableGoesByMeasuredModelsAndNotByFlags) {
  const impl::CpuModel sapphire_rapids{"GenuineIntel", 6, 143, true};
  EXPECT_EQ(impl::fastest_products(DType::bfloat16, sapphire_rapids),
            NarrowProducts::native);
  EXPECT_EQ(impl::fastest_products(DType::float16, sapphire_rapids),
            NarrowProducts::widened);
  const impl::CpuModel others[] = {{"GenuineIntel", 6, 143, false},
                                   {"GenuineIntel", 6, 999, true},
                                   {"GenuineIntel", 6, 106, false},
                                   {"AuthenticAMD", 25, 1, false},
                                   {}};
  for (const auto& cpu : others) {
    EXPECT_EQ(impl::fastest_products(DType::bfloat16, cpu), NarrowProducts::widened)
        << cpu.vendor << " " << cpu.model;
  }
}

// Whole numbers: products of 3 x 3 at most, whose sums bf16 has.
template <class T, class To>
void expect_exact(const Exec& exec) {
  const index_t m = 33, n = 31, k = 15;
  const auto whole = [](index_t count, unsigned seed) {
    auto values = test::uniform(count, seed, -3, 4);
    for (double& x : values) x = std::floor(x);
    return values;
  };
  const Array<T> a(whole(m * k, 1)), b(whole(k * n, 2));
  for (const Transpose ta : {Transpose::no, Transpose::yes}) {
    for (const Transpose tb : {Transpose::no, Transpose::yes}) {
      for (const Accumulate add : {Accumulate::no, Accumulate::yes}) {
        const View2<const T> left =
            ta == Transpose::yes ? a.cmatrix(k, m) : a.cmatrix(m, k);
        const View2<const T> right =
            tb == Transpose::yes ? b.cmatrix(n, k) : b.cmatrix(k, n);
        const Array<To> got(m * n, 2.0), want(m * n, 2.0);
        gemm<T, To>(exec, ta, tb, add, left, right, got.matrix(m, n));
        gemm_reference<T, To>(exec, ta, tb, add, left, right, want.matrix(m, n));
        EXPECT_EQ(got.values(), want.values());
      }
    }
  }
}

TEST(NarrowGemm, EitherWayHasTheSameSums) {
  for (const NarrowProducts way : {NarrowProducts::widened, NarrowProducts::native}) {
    const Exec exec;
    try {
      set_narrow_products(exec, DType::bfloat16, way);
    } catch (const InputError& error) {  // of a CPU without AVX-512
      ASSERT_EQ(way, NarrowProducts::native);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("precision.gemm: widened"));
      continue;
    }
    EXPECT_EQ(narrow_products(exec, DType::bfloat16), way);
    expect_exact<bf16, bf16>(exec);
    expect_exact<bf16, float>(exec);
  }
  expect_exact<fp16, fp16>(Exec());
  expect_exact<fp16, float>(Exec());
  EXPECT_THROW(set_narrow_products(Exec(), DType::float16, NarrowProducts::native),
               InputError);
  EXPECT_EQ(narrow_products(Exec(), DType::float32), NarrowProducts::native);
}

}  // namespace
}  // namespace trireme::kernels
