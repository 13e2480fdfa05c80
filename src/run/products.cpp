// run/products.cpp — see products.hpp.
#include "run/products.hpp"

#include <fmt/format.h>

#include "base/exec.hpp"
#include "base/plural.hpp"
#include "config/enums.hpp"
#include "step/deck_model.hpp"
#include "step/gemm_table_text.hpp"
#include "step/settled_products.hpp"

namespace trireme::run {

using kernels::GemmTable;
using kernels::NarrowProducts;

namespace {
constexpr char kKey[] = "product_instructions";
constexpr char kAttention[] = "attention_kernels";

bool has_ways(const config::Deck& deck) {
  return kernels::has_product_ways(step::compute_type(deck));
}

// Products that are computed in another way now than by the earlier table, which has some
// by their times and leaves all others to the library.
std::int64_t changed_products(const GemmTable& now, const GemmTable& before) {
  std::int64_t count = 0;
  for (const auto& [shape, choice] : now.products) {
    const auto found = before.products.find(shape);
    const bool is_same = found == before.products.end()
                             ? kernels::is_untimed_choice(shape, choice)
                             : choice.computes_as(found->second);
    if (!is_same) ++count;
  }
  for (const auto& [shape, choice] : before.products) {
    if (!now.has(shape) && !kernels::is_untimed_choice(shape, choice)) ++count;
  }
  return count;
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

std::string adopt_gemm_table(ckpt::TrainingState& state, const config::Deck& deck,
                             const GemmTable& table) {
  const std::string stored = step::stored_gemm_table(state);
  const GemmTable before =
      step::gemm_table_from(stored, "the run's table of matrix products");
  const std::string now = step::text_of(table);
  if (now.empty()) {
    state.texts.erase(step::kGemmTableText);
  } else {
    state.texts[step::kGemmTableText] = now;
  }
  if (stored.empty()) return {};
  if (now.empty()) {
    // Of types that have a choice of instructions, these are said to be others.
    if (has_ways(deck)) return {};
    return fmt::format(
        "matrices are multiplied by the host's cores from step {} on, and by {} before. "
        "Rounding differs from what the earlier start would have computed",
        state.step + 1, before.library.text());
  }
  if (table.library != before.library) {
    return fmt::format(
        "matrices are multiplied by {} from step {} on, and by {} before. Rounding "
        "differs from what the earlier start would have computed",
        table.library.text(), state.step + 1, before.library.text());
  }
  const std::int64_t changed = changed_products(table, before);
  if (changed == 0) return {};
  return fmt::format(
      "from step {} on {} computed by algorithms that the run has not taken for them so "
      "far (gemm_table.json). Where such products occurred before, rounding differs from "
      "what the earlier start would have computed",
      state.step + 1, format_plural(changed, "matrix product is", "matrix products are"));
}

std::string adopt_attention(ckpt::TrainingState& state, const std::string& kernels) {
  const auto found = state.texts.find(kAttention);
  const std::string before = found == state.texts.end() ? "" : found->second;
  if (kernels.empty()) {
    state.texts.erase(kAttention);
  } else {
    state.texts[kAttention] = kernels;
  }
  if (before.empty() || kernels.empty() || before == kernels) return {};
  return fmt::format(
      "attention is computed by {} from step {} on, and by {} before. Rounding differs "
      "from what the earlier start would have computed",
      kernels, state.step + 1, before);
}

std::string say_products(const config::Deck& deck, NarrowProducts products) {
  if (!has_ways(deck) || products == NarrowProducts::native) return {};
  return fmt::format(
      "products of {0} are computed by widening their operands to fp32 "
      "(precision.gemm; memory and messages are those of {0})",
      config::name_of(deck.precision.compute));
}

}  // namespace trireme::run
