// Products of 16-bit elements: which way a CPU is given, and both ways against the plain
// loop on sums that nothing rounds.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/gemm_reference.hpp"
#include "kernels/impl/amx_gemm.hpp"
#include "kernels/impl/narrow_gemm.hpp"
#include "kernels/impl/vector_gemm.hpp"
#include "kernels/narrow_gemm.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

// What a thread of a product works in. Nothing may depend on what was there.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes) : memory_("workspace", bytes + impl::kLine) {
    std::memset(memory_.data(), 0xff, memory_.span());  // often megabytes
  }
  std::byte* data() const { return impl::first_line(memory_.data()); }

 private:
  DeviceArray<std::byte> memory_;
};

TEST(NarrowGemm, TableGoesByMeasuredModelsAndNotByFlags) {
  const impl::CpuModel sapphire_rapids{"GenuineIntel", 6, 143, true};
  EXPECT_EQ(impl::fastest_products(DType::bfloat16, sapphire_rapids),
            NarrowProducts::native);
  EXPECT_EQ(impl::fastest_products(DType::float16, sapphire_rapids),
            NarrowProducts::widened);
  const impl::CpuModel masked{"GenuineIntel", 6, 167, true};
  EXPECT_EQ(impl::fastest_products(DType::bfloat16, masked), NarrowProducts::native);
  const impl::CpuModel turin{"AuthenticAMD", 26, 2, false, true};
  EXPECT_EQ(impl::fastest_products(DType::bfloat16, turin), NarrowProducts::native);
  EXPECT_EQ(impl::fastest_products(DType::float16, turin), NarrowProducts::widened);
  const impl::CpuModel genoa{"AuthenticAMD", 25, 17, false, true};
  EXPECT_EQ(impl::fastest_products(DType::bfloat16, genoa), NarrowProducts::native);
  const impl::CpuModel others[] = {
      {"GenuineIntel", 6, 143, false, true}, {"AuthenticAMD", 26, 2, false, false},
      {"AuthenticAMD", 26, 99, false, true}, {"AuthenticAMD", 25, 17, false, false},
      {"GenuineIntel", 6, 143, false},       {"GenuineIntel", 6, 167, false},
      {"GenuineIntel", 6, 999, true},        {"GenuineIntel", 6, 106, false},
      {"AuthenticAMD", 25, 1, false},        {}};
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

// On Intel's matrix tiles (AMX), which few CPUs have: under a label of their own, `amx`.
class NarrowGemmAmx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!impl::may_use_amx()) GTEST_SKIP() << "this process has no matrix tiles (AMX)";
  }
};

TEST_F(NarrowGemmAmx, IsWhatNativeProductsAre) {
  const Exec exec;
  set_narrow_products(exec, DType::bfloat16, NarrowProducts::native);
  EXPECT_EQ(product_instructions(exec, DType::bfloat16), "AMX tiles");
  expect_exact<bf16, bf16>(exec);
  expect_exact<bf16, float>(exec);
}

// However C is cut, for however many threads: the same bits, and the plain loop's sums.
TEST_F(NarrowGemmAmx, PartsOfAProductDoNotShowInIt) {
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
        const std::vector<impl::PartOfC> parts = impl::amx_parts(product, threads);
        EXPECT_GE(parts.size(), std::min<std::size_t>(extent(threads), 8));
        const Array<float> c(m * n, NAN);
        const Workspace workspace(impl::kAmxWorkspaceBytes);
        for (const impl::PartOfC& part : parts) {
          impl::amx_part({.product = product,
                          .a = a.cvector().data(),
                          .b = b.cvector().data(),
                          .c = c.vector().data(),
                          .is_c_float = true},
                         part, workspace.data());
        }
        if (first.empty()) first = c.bytes();
        EXPECT_EQ(c.bytes(), first) << threads << " threads";
        if (threads == 1) test::expect_close(c.values(), plain.values(), 5e-3, 1, "c");
      }
    }
  }
}

// What one product on vectors is asked for: everything that can follow it, or nothing.
template <class T>
struct OnVectors {
  index_t m, n, k;
  Transpose ta, tb;
  Accumulate accumulate;
  bool has_epilogue;
  Array<T> a, b, bias, residual, c;
  Array<float> sums;

  OnVectors(index_t m_, index_t n_, index_t k_, Transpose ta_, Transpose tb_,
            Accumulate add, bool epilogue)
      : m(m_),
        n(n_),
        k(k_),
        ta(ta_),
        tb(tb_),
        accumulate(add),
        has_epilogue(epilogue),
        a(test::uniform(extent(m * k), 1)),
        b(test::uniform(extent(k * n), 2)),
        bias(test::uniform(extent(n), 3)),
        residual(test::uniform(extent(m * n), 4)),
        c(add == Accumulate::yes ? test::uniform(extent(m * n), 5)
                                 : std::vector<double>(extent(m * n), NAN)),
        sums(c.values()) {}

  // The same operands, which nothing writes, and a C of its own.
  OnVectors with_fresh_c() const {
    OnVectors fresh = *this;
    fresh.c = Array<T>(c.values());
    fresh.sums = Array<float>(c.values());
    return fresh;
  }
  impl::FusedProduct<T> task(bool to_float) const {
    impl::FusedProduct<T> task{
        .product = {ta, tb, accumulate, m, n, k, ta == Transpose::yes ? m : k,
                    tb == Transpose::yes ? k : n, n},
        .a = a.cvector().data(),
        .b = b.cvector().data(),
        .c = to_float ? static_cast<void*>(sums.vector().data()) : c.vector().data(),
        .is_c_float = to_float};
    if (has_epilogue) {
      task.bias = bias.cvector().data();
      task.residual = residual.cvector().data();
      task.ld_residual = n;
    }
    return task;
  }
  // The bytes of C, computed by `set` in parts for `threads`.
  std::vector<unsigned char> run(const impl::VectorSet& set, index_t threads,
                                 bool to_float) const {
    const OnVectors fresh = with_fresh_c();
    const auto task = fresh.task(to_float);
    const Workspace workspace(set.workspace_bytes);
    for (const impl::PartOfC& part : impl::vector_parts(task.product, set, threads)) {
      set.part_of<T>()(task, part, workspace.data());
    }
    return to_float ? fresh.sums.bytes() : fresh.c.bytes();
  }
  // By the plain loop.
  std::vector<double> wanted() const {
    std::vector<double> want(extent(m * n));
    const auto left = a.values(), right = b.values(), before = c.values();
    const auto biases = bias.values(), residuals = residual.values();
    for (index_t i = 0; i < m; ++i) {
      for (index_t j = 0; j < n; ++j) {
        double sum = accumulate == Accumulate::yes ? before[extent(i * n + j)] : 0;
        if (has_epilogue) {
          sum += biases[extent(j)] + residuals[extent(i * n + j)];
        }
        for (index_t p = 0; p < k; ++p) {
          sum += left[extent(ta == Transpose::yes ? p * m + i : i * k + p)] *
                 right[extent(tb == Transpose::yes ? j * k + p : p * n + j)];
        }
        want[extent(i * n + j)] = sum;
      }
    }
    return want;
  }
  void expect_right(const impl::VectorSet& set, const std::vector<double>& want,
                    bool to_float) const {
    const OnVectors fresh = with_fresh_c();
    const auto task = fresh.task(to_float);
    const Workspace workspace(set.workspace_bytes);
    set.part_of<T>()(task, {0, m, 0, n}, workspace.data());
    const auto got = to_float ? fresh.sums.values() : fresh.c.values();
    const double tolerance =
        1e-6 * static_cast<double>(k + 4) + (to_float ? 0 : test::rounding<T>());
    test::expect_close(got, want, tolerance, 1, std::string(set.name).c_str());
  }
};

template <class T>
class NarrowGemmOnVectors : public ::testing::Test {};
using NarrowTypes = ::testing::Types<bf16, fp16>;
TYPED_TEST_SUITE(NarrowGemmOnVectors, NarrowTypes);

// Sizes around tiles and strips of every set, and around its chunks of k.
TYPED_TEST(NarrowGemmOnVectors, HaveTheSumsOfThePlainLoop) {
  constexpr index_t kSizes[][3] = {{1, 1, 1},     {31, 33, 1},   {33, 31, 257},
                                   {12, 32, 384}, {13, 17, 385}, {7, 257, 33},
                                   {257, 9, 800}, {60, 16, 40}};
  for (const auto& [m, n, k] : kSizes) {
    for (const Transpose ta : {Transpose::no, Transpose::yes}) {
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        for (const Accumulate add : {Accumulate::no, Accumulate::yes}) {
          const OnVectors<TypeParam> plain(m, n, k, ta, tb, add, false);
          const OnVectors<TypeParam> followed(m, n, k, ta, tb, add, true);
          const auto sums = plain.wanted(), results = followed.wanted();
          for (const impl::VectorSet* set : impl::vector_sets()) {
            SCOPED_TRACE(fmt::format("{}: {} x {} x {}, {}{}{}", set->name, m, n, k,
                                     ta == Transpose::yes, tb == Transpose::yes,
                                     add == Accumulate::yes));
            plain.expect_right(*set, sums, true);
            plain.expect_right(*set, sums, false);
            followed.expect_right(*set, results, false);
          }
        }
      }
    }
  }
}

// Every value of the type, times some that take it to infinity, below the normal numbers
// and between its neighbours: rounded as the type rounds.
TYPED_TEST(NarrowGemmOnVectors, RoundAsTheTypeDoes) {
  using T = TypeParam;
  constexpr index_t kValues = 65536;
  const auto value = [](index_t bits) {
    T x;
    x.bits = static_cast<std::uint16_t>(bits);
    return x;
  };
  const Kokkos::View<T*, Kokkos::HostSpace> all("all", kValues), c("c", kValues),
      factor("factor", 1);
  for (index_t i = 0; i < kValues; ++i) all(i) = value(i);
  for (const impl::VectorSet* set : impl::vector_sets()) {
    const Workspace workspace(set->workspace_bytes);
    for (const float by : {1.0f, 1.0078125f, 1.75f, 0.001f, 4096.0f, -3e4f}) {
      factor(0) = static_cast<T>(by);
      const impl::FusedProduct<T> task{
          .product = {Transpose::no, Transpose::no, Accumulate::no, 1, kValues, 1, 1,
                      kValues, kValues},
          .a = factor.data(),
          .b = all.data(),
          .c = c.data()};
      set->part_of<T>()(task, {0, 1, 0, kValues}, workspace.data());
      for (index_t i = 0; i < kValues; ++i) {
        const float exact =
            0.0f + static_cast<float>(factor(0)) * static_cast<float>(all(i));
        const T want = static_cast<T>(exact);
        if (std::isnan(exact)) {
          ASSERT_TRUE(std::isnan(static_cast<float>(c(i)))) << set->name << ", " << i;
        } else {
          ASSERT_EQ(c(i).bits, want.bits) << set->name << ", " << i << " by " << by;
        }
      }
    }
  }
}

// However C is cut, for however many threads, and on whichever vectors: the same bits.
template <class T>
void expect_bits_of_its_own(const OnVectors<T>& product, bool to_float) {
  std::vector<unsigned char> first;
  for (const impl::VectorSet* set : impl::vector_sets()) {
#if !defined(__FMA__)
    if (set == &impl::kPlainVectors) continue;  // rounds products, too
#endif
    for (const index_t threads : {1, 2, 7}) {
      const auto bytes = product.run(*set, threads, to_float);
      if (first.empty()) first = bytes;
      EXPECT_TRUE(bytes == first) << set->name << ", " << threads << " threads";
    }
  }
}
TYPED_TEST(NarrowGemmOnVectors, HaveBitsOfTheirOwn) {
  for (const Transpose ta : {Transpose::no, Transpose::yes}) {
    for (const Transpose tb : {Transpose::no, Transpose::yes}) {
      for (const bool to_float : {false, true}) {
        // More rows, and more columns, than go at a time; two and three chunks of k.
        using Product = OnVectors<TypeParam>;
        expect_bits_of_its_own(Product(1101, 40, 401, ta, tb, Accumulate::yes, false),
                               to_float);
        expect_bits_of_its_own(Product(61, 601, 803, ta, tb, Accumulate::no, false),
                               to_float);
      }
    }
  }
}

// Parts are C, each element once, and cut at tiles.
TEST(NarrowGemm, PartsOnVectorsCoverC) {
  for (const impl::VectorSet* set : impl::vector_sets()) {
    for (const auto& [m, n] : {std::pair<index_t, index_t>{1, 1},
                               {5, 4000},
                               {4000, 5},
                               {1024, 3072},
                               {100, 100}}) {
      for (const index_t threads : {1, 2, 6, 64}) {
        const impl::Product product{
            Transpose::no, Transpose::no, Accumulate::no, m, n, 8, 8, n, n};
        index_t elements = 0;
        const auto parts = impl::vector_parts(product, *set, threads);
        EXPECT_LE(std::ssize(parts), threads);
        for (const impl::PartOfC& part : parts) {
          EXPECT_LT(part.row, part.row_end);
          EXPECT_LT(part.column, part.column_end);
          EXPECT_EQ(part.row % set->tile_rows, 0);
          EXPECT_EQ(part.column % set->tile_columns, 0);
          elements += (part.row_end - part.row) * (part.column_end - part.column);
        }
        EXPECT_EQ(elements, m * n);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
