// run/products.cpp — see products.hpp.
#include "run/products.hpp"

#include <fmt/format.h>

#include "config/enums.hpp"
#include "step/deck_model.hpp"

namespace trireme::run {

using kernels::NarrowProducts;

namespace {
constexpr char kKey[] = "native_products";

bool has_ways(const config::Deck& deck) {
  return kernels::has_product_ways(step::compute_type(deck));
}
}  // namespace

std::string adopt_products(ckpt::TrainingState& state, const config::Deck& deck,
                           NarrowProducts products) {
  const auto found = state.numbers.find(kKey);
  const bool is_known = found != state.numbers.end();
  const auto before =
      is_known && found->second != 0.0 ? NarrowProducts::native : NarrowProducts::widened;
  if (!has_ways(deck)) {
    state.numbers.erase(kKey);
    return {};
  }
  state.numbers[kKey] = products == NarrowProducts::native ? 1.0 : 0.0;
  if (!is_known || before == products) return {};
  return fmt::format(
      "products of {} are {} from step {} on, and were {} before: rounding differs from "
      "what the earlier start would have computed (precision.gemm: {} keeps to its way "
      "where this machine has it)",
      config::name_of(deck.precision.compute), kernels::name_of(products), state.step + 1,
      kernels::name_of(before), kernels::name_of(before));
}

std::string say_products(const config::Deck& deck, NarrowProducts products) {
  if (!has_ways(deck) || products == NarrowProducts::native) return {};
  return fmt::format(
      "products of {0} are computed by widening their operands to fp32 "
      "(precision.gemm; memory and messages are those of {0})",
      config::name_of(deck.precision.compute));
}

}  // namespace trireme::run
