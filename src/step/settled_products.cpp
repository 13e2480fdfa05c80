// step/settled_products.cpp — see settled_products.hpp.
//
// What is not in the run's table yet is dealt over all ranks, whatever they compute
// themselves: a product is timed in memory of its own, by its shape alone, and so by any
// rank. Tables travel as text to rank 0, which joins them and tells all. Example: of two
// stages rank 0 has the products a and b, rank 1 has a and c; a and c come to be timed by
// rank 0, b by rank 1, and then both have all three.
#include "step/settled_products.hpp"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/error.hpp"
#include "base/host_name.hpp"
#include "base/plural.hpp"
#include "base/wall_time.hpp"
#include "comm/on_ranks.hpp"
#include "comm/rank_list.hpp"
#include "step/gemm_table_text.hpp"

namespace trireme::step {

namespace {

using kernels::GemmTable;
using kernels::GemmTuner;

constexpr const char* kStored = "the run's table of matrix products";

// What can be taken over from the stored table, on rank 0; and what is to be said of the
// rest. That a table is of another library or device is said where the run's own record
// of it is changed.
GemmTable taken_over(GemmTuner& tuner, const std::string& stored, std::string& warning) {
  GemmTable table = gemm_table_from(stored, kStored);
  if (table.library != tuner.library()) return {tuner.library(), {}};
  const std::size_t refused = std::erase_if(table.products, [&](const auto& product) {
    return !product.second.in_two_passes && !tuner.can_run(product.first, product.second);
  });
  if (refused > 0) {
    warning = fmt::format(
        "the algorithms of {} in {} are refused by {}: others are chosen, and may "
        "round in other ways than before",
        format_plural(static_cast<std::int64_t>(refused), "matrix product"), kStored,
        table.library.text());
  }
  return table;
}

// Those that some rank has and the table has not.
std::vector<ProductShape> missing_from(const GemmTable& table,
                                       const std::vector<std::string>& of_ranks) {
  std::set<ProductShape> missing;
  for (const std::string& text : of_ranks) {
    for (const ProductShape& shape : product_shapes_from(text)) {
      if (!table.has(shape)) missing.insert(shape);
    }
  }
  return {missing.begin(), missing.end()};
}

std::string text_of_timed(const GemmTable& timed, int ranks, double seconds) {
  const auto others = std::ranges::count_if(timed.products, [](const auto& product) {
    return !kernels::is_untimed_choice(product.first, product.second);
  });
  return fmt::format(
      "{} timed on {} in {:.1f} s: {} computed in another way by {} than without times. "
      "The table of them (gemm_table.json) belongs to the run: a restart takes the same",
      format_plural(static_cast<std::int64_t>(timed.products.size()), "matrix product"),
      format_plural(ranks, "rank"), seconds, format_plural(others, "is", "are"),
      timed.library.text());
}

// Adds to the table what the ranks have in their steps and it has not.
std::string time_missing(comm::Communicator& world, GemmTuner& tuner,
                         const ProductRequest& request, GemmTable& table) {
  const auto begin = std::chrono::steady_clock::now();
  std::string mine;
  comm::on_every_rank(world, [&] { mine = text_of(request.occurring()); });
  const std::vector<std::string> of_ranks = world.gather_to_first(mine);
  const std::vector<ProductShape> missing = product_shapes_from(
      comm::on_first_rank(world, [&] { return text_of(missing_from(table, of_ranks)); }));
  if (missing.empty()) return {};

  GemmTable timed{table.library, {}};
  const auto deal = kernels::deal_products(missing, world.size());
  comm::on_every_rank(world, [&] {
    const auto& part = deal.at(extent(world.rank()));
    if (!part.empty()) timed.add(tuner.time(part, table));
  });
  const std::vector<std::string> timed_by_ranks = world.gather_to_first(text_of(timed));
  timed = gemm_table_from(comm::on_first_rank(world,
                                              [&] {
                                                GemmTable all{table.library, {}};
                                                for (const auto& text : timed_by_ranks) {
                                                  all.add(gemm_table_from(text, kStored));
                                                }
                                                return text_of(all);
                                              }),
                          kStored);
  table.add(timed);
  int ranks = 0;
  for (const auto& part : deal) ranks += part.empty() ? 0 : 1;
  return text_of_timed(timed, ranks, seconds_since(begin));
}

}  // namespace

std::string stored_gemm_table(const ckpt::TrainingState& state) {
  const auto found = state.texts.find(kGemmTableText);
  return found == state.texts.end() ? std::string() : found->second;
}

SettledProducts settle_products(comm::Communicator& world, GemmTuner& tuner,
                                const ProductRequest& request) {
  const kernels::GemmLibrary library = tuner.library();
  const std::vector<std::string> libraries =
      world.gather(library.is_empty() ? std::string() : library.text());
  SettledProducts settled{.table = {library, {}}, .note = {}, .warning = {}};
  if (!comm::all_same(libraries)) {
    settled.warning = fmt::format(
        "the ranks multiply matrices by different libraries or devices: {}. Each takes "
        "the first algorithm that its own proposes, and ranks round in different ways",
        comm::grouped_by_text(libraries, world.gather(host_name())));
    return settled;
  }
  if (library.is_empty()) {
    if (request.times) {
      settled.note =
          "without effect: run.deterministic: false. It is about matrix products on GPUs";
    }
    return settled;
  }
  const std::string kept = comm::on_first_rank(
      world, [&] { return text_of(taken_over(tuner, request.stored, settled.warning)); });
  settled.table = gemm_table_from(kept, kStored);
  if (request.times) settled.note = time_missing(world, tuner, request, settled.table);
  return settled;
}

std::vector<ProductShape> products_of(const Replica& replica, const StepShape& shape) {
  const ModelPart& part = replica.part();
  if (part.groups.gradient->rank() > 0) return {};
  const StepPlan plan = replica.plan_step(
      shape, PipelinePlans(part.sharing.pipeline, part.blueprint, shape));
  std::vector<ProductShape> shapes;
  for (const ProductTally& product : plan.tally.products()) {
    shapes.push_back(product.shape);
  }
  return shapes;
}

void multiply_as_in(const Exec& exec, const ckpt::TrainingState& run) {
  const auto tuner = kernels::make_gemm_tuner(exec);
  if (tuner->library().is_empty()) return;
  std::string unsaid;  // only a run promises the bits of an earlier start
  kernels::use_gemm_table(exec, taken_over(*tuner, stored_gemm_table(run), unsaid));
}

}  // namespace trireme::step
