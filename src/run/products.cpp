// run/products.cpp — see products.hpp.
#include "run/products.hpp"

#include <fmt/format.h>

namespace trireme::run {

using kernels::NarrowProducts;

namespace {
constexpr char kKey[] = "native_products";
}  // namespace

std::string adopt_products(ckpt::TrainingState& state, DType type,
                           NarrowProducts products) {
  const auto found = state.numbers.find(kKey);
  const bool is_known = found != state.numbers.end();
  const auto before =
      is_known && found->second != 0.0 ? NarrowProducts::native : NarrowProducts::widened;
  if (!kernels::has_product_ways(type)) {
    state.numbers.erase(kKey);
    return {};
  }
  state.numbers[kKey] = products == NarrowProducts::native ? 1.0 : 0.0;
  if (!is_known || before == products) return {};
  return fmt::format(
      "products of {} are {} from step {} on, and were {} before: rounding differs from "
      "what the earlier start would have computed (precision.gemm: {} keeps to its way "
      "where this machine has it)",
      trireme::name_of(type), kernels::name_of(products), state.step + 1,
      kernels::name_of(before), kernels::name_of(before));
}

std::string say_products(DType type, NarrowProducts products) {
  if (!kernels::has_product_ways(type) || products == NarrowProducts::native) return {};
  return fmt::format(
      "products of {} are computed by widening their operands to float "
      "(precision.gemm; memory and messages are those of {})",
      trireme::name_of(type), trireme::name_of(type));
}

}  // namespace trireme::run
