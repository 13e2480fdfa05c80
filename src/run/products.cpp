// run/products.cpp — see products.hpp.
#include "run/products.hpp"

#include <fmt/format.h>

#include "base/exec.hpp"
#include "config/enums.hpp"
#include "step/deck_model.hpp"

namespace trireme::run {

using kernels::NarrowProducts;

namespace {
constexpr char kKey[] = "product_instructions";

bool has_ways(const config::Deck& deck) {
  return kernels::has_product_ways(step::compute_type(deck));
}
}  // namespace

std::string adopt_products(ckpt::TrainingState& state, const config::Deck& deck,
                           const std::string& instructions) {
  if (!has_ways(deck)) {
    state.texts.erase(kKey);
    return {};
  }
  const std::string of_type =
      fmt::format("{}: ", config::name_of(deck.precision.compute));
  std::string& kept = state.texts[kKey];
  const std::string before =
      kept.starts_with(of_type) ? kept.substr(of_type.size()) : instructions;
  kept = of_type + instructions;
  if (before == instructions) return {};
  // The one way that every host has.
  const bool has_way_back =
      kHostExecution && before == kernels::name_of(NarrowProducts::widened);
  return fmt::format(
      "products of {} are computed by other instructions from step {} on: {}, and {} "
      "before. Rounding differs from what the earlier start would have computed{}",
      config::name_of(deck.precision.compute), state.step + 1, instructions, before,
      has_way_back ? " (precision.gemm: widened keeps to its way)" : "");
}

std::string say_products(const config::Deck& deck, NarrowProducts products) {
  if (!has_ways(deck) || products == NarrowProducts::native) return {};
  return fmt::format(
      "products of {0} are computed by widening their operands to fp32 "
      "(precision.gemm; memory and messages are those of {0})",
      config::name_of(deck.precision.compute));
}

}  // namespace trireme::run
