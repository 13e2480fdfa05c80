// plan/host_memory.cpp — see host_memory.hpp.
#include "plan/host_memory.hpp"

#include <fmt/format.h>

#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"
#include "ckpt/manifest.hpp"
#include "ckpt/shard_writer.hpp"
#include "comm/on_ranks.hpp"

namespace trireme::plan {

namespace {

std::string size_text(std::size_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

// The sum over the ranks of this rank's node. Collective.
std::size_t sum_on_node(comm::Communicator& world, const std::vector<std::string>& hosts,
                        std::size_t mine) {
  const std::vector<std::int64_t> all = world.gather(static_cast<std::int64_t>(mine));
  std::size_t sum = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (hosts[rank] == hosts[static_cast<std::size_t>(world.rank())]) {
      sum += static_cast<std::size_t>(all[rank]);
    }
  }
  return sum;
}

}  // namespace

HostNeed host_need(step::Replica& replica, const config::Deck& deck) {
  HostNeed need;
  if (!deck.checkpoint.async) return need;
  for (const ckpt::TensorPart& part : replica.parts()) {
    (part.name.starts_with(ckpt::kModelGroup) ? need.weights : need.optimizer) +=
        ckpt::Snapshot::bytes_of({part});
  }
  return need;
}

std::string host_problem(const HostNeed& of_node, int ranks, const std::string& host,
                         std::int64_t free) {
  const std::size_t needed = of_node.total();
  if (free <= 0 || needed <= static_cast<std::size_t>(free)) return {};
  return fmt::format(
      "the run takes {} of the host memory of {} ({} there), which has {} free: {} too "
      "much\n"
      "  {:<24}{:>10}\n"
      "  {:<24}{:>10}\n"
      "It is the copy that a checkpoint is written from while training goes on; it is "
      "page-locked, for the GPU to write to.\n"
      "What helps: checkpoint.async=false (no copy, and training waits while a "
      "checkpoint is written); all of the node's memory for the job (sbatch --mem=0); "
      "more nodes, which share the copy; fewer ranks on a node",
      size_text(needed), host, format_plural(ranks, "rank"),
      size_text(static_cast<std::size_t>(free)),
      size_text(needed - static_cast<std::size_t>(free)), "copy of weights",
      size_text(of_node.weights), "copy of optimizer state",
      size_text(of_node.optimizer));
}

void require_host_memory(comm::Communicator& world, const std::string& host,
                         const HostNeed& need, std::int64_t free) {
  const std::vector<std::string> hosts = world.gather(host);
  const HostNeed of_node{.weights = sum_on_node(world, hosts, need.weights),
                         .optimizer = sum_on_node(world, hosts, need.optimizer)};
  const auto ranks = static_cast<int>(sum_on_node(world, hosts, 1));
  comm::on_every_rank(world, [&] {
    const std::string problem = host_problem(of_node, ranks, host, free);
    if (!problem.empty()) throw InputError(problem);
  });
}

}  // namespace trireme::plan
