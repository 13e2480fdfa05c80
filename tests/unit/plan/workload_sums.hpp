// tests/unit/plan/workload_sums.hpp — what a workload says of a whole step, to be
// compared with the step's own plan.
#ifndef TRIREME_TESTS_UNIT_PLAN_WORKLOAD_SUMS_HPP_
#define TRIREME_TESTS_UNIT_PLAN_WORKLOAD_SUMS_HPP_

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/tally.hpp"
#include "plan/counts.hpp"
#include "plan/workload.hpp"

namespace trireme::plan {

inline Tally passes_of(const Work& work) {
  return work.passes.forward + work.passes.backward + work.passes.backward_weight;
}

// The sum of the workload's parts, for a stage of one chunk.
inline Tally summed(Workloads& workloads, const config::Deck& deck,
                    const std::vector<index_t>& split, int stage) {
  const Workloads::Key key = workload_key(deck);
  const schedule::PipelineShape shape = pipeline_shape(deck);
  const LayerRuns& runs = workloads.runs();
  const index_t begin = std::accumulate(split.begin(), split.begin() + stage, index_t{0});
  const index_t end = begin + split.at(extent(stage));
  const ChunkWork& chunk =
      workloads.chunk(key, runs.kind_of(stage, shape.pieces(), begin, end));
  Tally of_microbatch = passes_of(chunk.own) + chunk.around;
  Tally of_step = chunk.own.step;
  const std::vector<index_t> layers = runs.counts(begin, end);
  for (std::size_t c = 0; c < layers.size(); ++c) {
    const Work& layer = workloads.layer(key, c);
    of_microbatch += layers[c] * passes_of(layer);
    of_step += layers[c] * layer.step;
  }
  return shape.microbatches * of_microbatch + of_step;
}

// Labels with FLOPs and bytes, shapes with calls, sites with elements.
inline std::map<std::string, double> amounts(const Tally& tally) {
  std::map<std::string, double> all;
  for (const KernelTally& kernel : tally.kernels()) {
    all[fmt::format("{} flops", kernel.label)] += kernel.cost.flops;
    all[fmt::format("{} bytes", kernel.label)] += as_double(kernel.cost.bytes);
  }
  for (const ProductTally& product : tally.products()) {
    const ProductShape& shape = product.shape;
    all[fmt::format("product {} x {} x {} {}{}", shape.m, shape.n, shape.k,
                    shape.transpose_a, shape.transpose_b)] += as_double(product.calls);
  }
  for (const MessageTally& message : tally.messages()) {
    all[fmt::format("{} {} {}", message.axis, message.site, message.operation)] +=
        as_double(message.elements);
  }
  return all;
}

}  // namespace trireme::plan

#endif  // TRIREME_TESTS_UNIT_PLAN_WORKLOAD_SUMS_HPP_
