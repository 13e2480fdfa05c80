// Products of 16-bit elements: which way a CPU is given, and both ways against the plain
// loop on sums that nothing rounds.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "kernels/gemm_reference.hpp"
#include "kernels/impl/amx_gemm.hpp"
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
  const impl::CpuModel masked{"GenuineIntel", 6, 167, true};
  EXPECT_EQ(impl::fastest_products(DType::bfloat16, masked), NarrowProducts::native);
  const impl::CpuModel others[] = {
      {"GenuineIntel", 6, 143, false}, {"GenuineIntel", 6, 167, false},
      {"GenuineIntel", 6, 999, true},  {"GenuineIntel", 6, 106, false},
      {"AuthenticAMD", 25, 1, false},  {}};
  for (const auto& cpu : others) {
    EXPECT_EQ(impl::fastest_products(DType::bfloat16, cpu), NarrowProducts::widened)
        << cpu.vendor << " " << cpu.model;
  }
}

// Whole numbers: products of 3 x 3 at most, whose sums float has.
template <class T, class To>
void expect_exact(const Exec& exec, index_t m, index_t n, index_t k) {
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

// Below the size from which matrix tiles are used, and above it.
template <class T, class To>
void expect_exact(const Exec& exec) {
  expect_exact<T, To>(exec, 33, 31, 15);
  expect_exact<T, To>(exec, 65, 70, 45);
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
    EXPECT_EQ(product_instructions(exec, DType::bfloat16) == "widened",
              way == NarrowProducts::widened);
    expect_exact<bf16, bf16>(exec);
    expect_exact<bf16, float>(exec);
  }
  expect_exact<fp16, fp16>(Exec());
  expect_exact<fp16, float>(Exec());
  EXPECT_THROW(set_narrow_products(Exec(), DType::float16, NarrowProducts::native),
               InputError);
  EXPECT_EQ(narrow_products(Exec(), DType::float32), NarrowProducts::native);
  EXPECT_EQ(product_instructions(Exec(), DType::float32), "native");
  EXPECT_EQ(product_instructions(Exec(), DType::float16), "widened");
}

// Gradients of weights in bf16: what is there and the product are added in float and
// rounded once, in either way and on tiles or not. Rounding the product, too, shows: 255
// + 259 is 514, halfway to 516, and 512 in bf16; 255 + bf16(259) is 515, and 516.
TEST(NarrowGemm, WeightGradientsInBf16AreRoundedOnce) {
  for (const NarrowProducts way : {NarrowProducts::widened, NarrowProducts::native}) {
    const Exec exec;
    try {
      set_narrow_products(exec, DType::bfloat16, way);
    } catch (const InputError&) {  // of a CPU without AVX-512
      continue;
    }
    for (const index_t edge : {7, 40}) {
      const index_t rows = 37;  // 37 x 7 = 259
      const Array<bf16> d_y(extent(rows * edge), 1.0), x(extent(rows * edge), 7.0);
      const Array<bf16> added(extent(edge * edge), 255.0), over(extent(edge * edge), NAN);
      linear_backward_weight<bf16, bf16>(exec, d_y.cmatrix(rows, edge),
                                         x.cmatrix(rows, edge), Accumulate::yes,
                                         added.matrix(edge, edge));
      linear_backward_weight<bf16, bf16>(exec, d_y.cmatrix(rows, edge),
                                         x.cmatrix(rows, edge), Accumulate::no,
                                         over.matrix(edge, edge));
      EXPECT_EQ(added.values(), std::vector<double>(extent(edge * edge), 512.0));
      EXPECT_EQ(over.values(), std::vector<double>(extent(edge * edge), 260.0));
    }
  }
}

// What a plan says that products keep is what they come to keep.
TEST(NarrowGemm, KeepsWhatIsPlanned) {
  for (const NarrowProducts way : {NarrowProducts::widened, NarrowProducts::native}) {
    const Exec exec;
    if (!has_narrow_products(exec, DType::bfloat16, way)) continue;
    set_narrow_products(exec, DType::bfloat16, way);
    const std::size_t planned = product_workspace_bytes(exec, DType::bfloat16);
    EXPECT_EQ(kept_by_products(exec), 0u);
    const index_t edge = 64;
    const Array<bf16> x(extent(edge * edge), 1.0), y(extent(edge * edge), NAN);
    gemm<bf16, bf16>(exec, Transpose::no, Transpose::yes, Accumulate::no,
                     x.cmatrix(edge, edge), x.cmatrix(edge, edge), y.matrix(edge, edge));
    EXPECT_EQ(kept_by_products(exec), planned) << name_of(way);
    const bool is_library = product_instructions(exec, DType::bfloat16) != "widened" &&
                            product_instructions(exec, DType::bfloat16) != "AMX tiles";
    EXPECT_EQ(planned == 0, is_library) << name_of(way);
  }
  EXPECT_EQ(product_workspace_bytes(Exec(), DType::float32), 0u);
}

// However C is cut, for however many threads: the same bits, and the plain loop's sums.
TEST(NarrowGemm, PartsOfAProductOnTilesDoNotShowInIt) {
  if (!impl::may_use_amx()) return;
  const index_t m = 401, n = 803, k = 2090;
  const Array<bf16> a(test::uniform(m * k, 1)), b(test::uniform(k * n, 2));
  for (const Transpose ta : {Transpose::no, Transpose::yes}) {
    for (const Transpose tb : {Transpose::no, Transpose::yes}) {
      const impl::Product product{ta,
                                  tb,
                                  Accumulate::no,
                                  m,
                                  n,
                                  k,
                                  ta == Transpose::yes ? m : k,
                                  tb == Transpose::yes ? k : n,
                                  n};
      // A sum of 2090 terms below 1, in any order.
      const Array<float> plain(m * n);
      gemm_reference<bf16, float>(
          Exec(), ta, tb, Accumulate::no,
          ta == Transpose::yes ? a.cmatrix(k, m) : a.cmatrix(m, k),
          tb == Transpose::yes ? b.cmatrix(n, k) : b.cmatrix(k, n), plain.matrix(m, n));
      std::vector<unsigned char> first;
      for (const int threads : {1, 2, 5, 64}) {
        const impl::AmxCut cut = impl::amx_cut(product, threads);
        EXPECT_GE(cut.parts(), std::min(threads, 8));
        const Array<float> c(m * n, NAN);
        const DeviceArray<std::byte> memory("workspace", impl::kAmxWorkspaceBytes + 64);
        const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
        for (index_t part = 0; part < cut.parts(); ++part) {
          impl::amx_part({.product = product,
                          .a = a.cvector().data(),
                          .b = b.cvector().data(),
                          .c = c.vector().data(),
                          .is_c_float = true},
                         cut, part, memory.data() + (64 - address % 64) % 64);
        }
        if (first.empty()) first = c.bytes();
        EXPECT_EQ(c.bytes(), first) << threads << " threads";
        if (threads == 1) test::expect_close(c.values(), plain.values(), 5e-3, 1, "c");
      }
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
