// plan/deck_memory.cpp — see deck_memory.hpp.
#include "plan/deck_memory.hpp"

#include "base/types.hpp"
#include "ckpt/params.hpp"
#include "comm/planned_communicator.hpp"
#include "comm/rank_grid.hpp"
#include "kernels/narrow_gemm.hpp"
#include "step/deck_model.hpp"

namespace trireme::plan {

std::size_t bytes_of_products(const config::Deck& deck) {
  const DType type = step::compute_type(deck);
  const Exec exec = Exec::shape_only();  // plans are made where nothing could run, too
  if (deck.precision.gemm != config::Products::native ||
      kernels::has_narrow_products(exec, type, kernels::NarrowProducts::native)) {
    step::set_kernels(exec, deck);
  }
  return kernels::product_workspace_bytes(exec, type);
}

comm::ProcessGroups planned_groups(const config::ParallelConfig& p, int stage) {
  const comm::GridShape shape{p.tensor, p.context, p.data, p.pipeline, p.order};
  const int rank = comm::rank_of(shape, {.pipeline = stage});
  return comm::make_process_groups(
      comm::make_planned_communicator(rank, shape.size(), "world"), shape);
}

step::MemoryPlan plan_memory(step::Replica& replica, const config::Deck& deck) {
  const step::ModelPart& part = replica.part();
  const step::StepShape shape = step::step_shape(deck);
  const step::PipelinePlans plans(part.sharing.pipeline, part.blueprint, shape);
  return with_all_else(replica.plan_step(shape, plans).memory, replica, deck);
}

step::MemoryPlan with_all_else(step::MemoryPlan plan, step::Replica& replica,
                               const config::Deck& deck) {
  plan.products = bytes_of_products(deck);
  if (deck.run.sample_every.steps > 0) plan.generation = replica.plan_decoder().total;
  if (deck.checkpoint.async) {
    plan.checkpoint_copy = ckpt::Snapshot::bytes_of(replica.parts());
  }
  return plan;
}

}  // namespace trireme::plan
