// What a plan takes the products of this build's kernels to cost: each of them is
// computed once, however many ways a pass on shapes counts.
#include <gtest/gtest.h>

#include "kernels/gemm.hpp"
#include "plan/kernel_model.hpp"

namespace trireme::plan {
namespace {

Machine machine_of_products() {
  Machine machine;
  machine.device = {.name = "round",
                    .memory = 1e11,
                    .multiprocessors = 100,
                    .nominal_peak = {.bf16 = 1e14},
                    .gemm_peak = {.bf16 = 1e14},
                    .tiles = {{.rows = 128, .columns = 128, .share = 1.0}},
                    .bandwidth = 1e12};
  return machine;
}

// Where times decide by which of two products a GeLU is computed, the shapes of both are
// counted, and their FLOPs once.
TEST(PlannedProducts, WithAGeluAreComputedOnce) {
  constexpr index_t kRows = 1536, kOut = 1280, kIn = 640;
  const auto matrix = [](index_t rows, index_t columns) {
    return View2<bf16>(nullptr, extent(rows), extent(columns));
  };
  Tally tally;
  kernels::linear_forward<bf16>(
      Exec::shape_only(tally), matrix(kRows, kIn),
      kernels::WeightOperand<bf16>(View2<const bf16>(matrix(kOut, kIn))),
      {.bias = View1<const bf16>(nullptr, extent(kOut)),
       .activation = kernels::Activation::gelu_tanh,
       .pre_activation = matrix(kRows, kOut)},
      matrix(kRows, kOut));
  const Machine machine = machine_of_products();
  const ProductShape once{.type = DType::bfloat16,
                          .type_c = DType::bfloat16,
                          .m = kRows,
                          .n = kOut,
                          .k = kIn};
  EXPECT_EQ(tally.total().cost.flops, once.flops());
  EXPECT_DOUBLE_EQ(tally_seconds(machine, {}, {.type = DType::bfloat16}, tally).products,
                   product_seconds(machine.device, once));
}

}  // namespace
}  // namespace trireme::plan
