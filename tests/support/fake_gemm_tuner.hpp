// tests/support/fake_gemm_tuner.hpp — a library of products and its device that exist
// nowhere: what ranks and runs do with a choice of algorithms, on a machine that has
// none.
#ifndef TRIREME_TESTS_SUPPORT_FAKE_GEMM_TUNER_HPP_
#define TRIREME_TESTS_SUPPORT_FAKE_GEMM_TUNER_HPP_

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "kernels/gemm_tuner.hpp"

namespace trireme::test {

inline kernels::GemmLibrary fake_library() {
  return {.name = "fakeBLAS 1.2.3",
          .device = "Fake H100",
          .capability = "9.0",
          .multiprocessors = 7};
}

// (m, 48) = (m, 32) (48, 32)^T in bf16, and what may come to it.
enum class FakeEpilogue { none, bias, gelu };
inline ProductShape fake_product(index_t m, FakeEpilogue epilogue = FakeEpilogue::none) {
  ProductShape shape{.type = DType::bfloat16,
                     .type_c = DType::bfloat16,
                     .transpose_b = true,
                     .m = m,
                     .n = 48,
                     .k = 32,
                     .lda = 32,
                     .ldb = 32,
                     .ldc = 48};
  shape.has_bias = epilogue != FakeEpilogue::none;
  shape.has_gelu = epilogue == FakeEpilogue::gelu;
  if (shape.has_gelu) shape.ld_kept = 48;
  return shape;
}

class FakeGemmTuner final : public kernels::GemmTuner {
 public:
  explicit FakeGemmTuner(std::uint64_t word = 1) : word_(word) {}

  kernels::GemmLibrary library() const override { return device; }
  bool can_run(const ProductShape& shape, const kernels::GemmChoice&) override {
    return refused.count(shape) == 0;
  }
  // Chooses the third proposal for all, whose first word tells who has chosen it, but two
  // passes for a GeLU, as without times.
  kernels::GemmTable time(const std::vector<ProductShape>& shapes,
                          const kernels::GemmTable& known) override {
    kernels::GemmTable table{device, {}};
    for (const ProductShape& shape : shapes) {
      if (known.has(shape)) continue;
      const ProductShape first = kernels::first_pass_of(shape);
      EXPECT_TRUE(shape == first || known.has(first) || table.has(first));
      timed.push_back(shape);
      kernels::GemmChoice choice{.in_two_passes = shape.has_gelu,
                                 .proposals = 5,
                                 .seconds = 1e-5,
                                 .untimed_seconds = 2e-5};
      if (!choice.in_two_passes) {
        choice.algorithm = {word_, ~std::uint64_t{0}};
        choice.workspace_bytes = 4096;
        choice.proposal = 2;
        choice.about = "algorithm 66";
      }
      table.products.emplace(shape, choice);
    }
    return table;
  }

  kernels::GemmLibrary device = fake_library();
  std::set<ProductShape> refused;   // what can_run() says no to
  std::vector<ProductShape> timed;  // so far

 private:
  std::uint64_t word_;
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_FAKE_GEMM_TUNER_HPP_
