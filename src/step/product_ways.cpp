// step/product_ways.cpp — see product_ways.hpp.
#include "step/product_ways.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "base/host_name.hpp"
#include "comm/rank_list.hpp"
#include "config/enums.hpp"
#include "kernels/narrow_gemm.hpp"
#include "step/deck_model.hpp"

namespace trireme::step {

using kernels::NarrowProducts;

ProductWays ways_of(const std::vector<std::string>& of_ranks,
                    const std::vector<std::string>& hosts, const WayWords& words) {
  const std::set<std::string> names(of_ranks.begin(), of_ranks.end());
  ProductWays ways{.names = fmt::format("{}", fmt::join(names, ", ")), .warning = {}};
  if (names.size() > 1) {
    ways.warning = fmt::format(
        "{}: {}. Their results are rounded in different ways, and the run has the same "
        "bits again only where the same ranks have the same machines; {}",
        words.differ, comm::grouped_by_text(of_ranks, hosts), words.remedy);
  }
  return ways;
}

ProductWays product_ways(comm::Communicator& world, const Exec& exec,
                         const config::Deck& deck) {
  const DType type = compute_type(deck);
  const std::string mine(kernels::product_instructions(exec, type));
  if (!kernels::has_product_ways(type)) return {.names = mine, .warning = {}};
  const std::vector<std::string> of_ranks = world.gather(mine);
  return ways_of(of_ranks, world.gather(host_name()));
}

config::Products products_as_in(const config::Deck& run, const config::Deck& deck) {
  const config::Products wanted = run.precision.gemm;
  const DType type = compute_type(deck);
  if (wanted == config::Products::automatic || !kernels::has_product_ways(type)) {
    return config::Products::automatic;
  }
  const auto way = wanted == config::Products::native ? NarrowProducts::native
                                                      : NarrowProducts::widened;
  return kernels::has_narrow_products(Exec(), type, way) ? wanted
                                                         : config::Products::automatic;
}

}  // namespace trireme::step
