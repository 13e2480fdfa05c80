// step/pipeline.cpp — see pipeline.hpp.
//
// Two countings meet here: a deck deals layers to pieces, and a piece is a run of blocks,
// of which layers are only some. Cuts are indices of blocks. For example four pieces with
// one layer each, of a model with blocks
//
//   0 embedding   1 layers/0   2 layers/1   3 layers/2   4 layers/3   5 head
//
// have the cuts 0 2 3 4 6: blocks that are no layers stay with the layers beside them.
// With two stages of two chunks each, piece p is chunk p / 2 of stage p % 2, so that
// stage 0 has the blocks [0, 2) and [3, 4).
//
// Orders of passes are found once for each number of micro-batches and are kept, because
// a search takes its time and a dry run asks for thousands of stages. Memory is what the
// neediest of the orders takes that a run will use, evaluations included.
#include "step/pipeline.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "schedule/free_numbers.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::step {

namespace {

// Layers of each piece, which are the model's in all.
schedule::Split checked_split(const PipelineLayout& layout,
                              const model::Blueprint& blueprint) {
  const index_t layers = blueprint.layer_count();
  const schedule::PipelineShape shape = layout.shape(1);
  schedule::Split split = layout.split;
  if (split.empty() && shape.pieces() == 1) split = {static_cast<int>(layers)};
  const auto dealt = std::accumulate(split.begin(), split.end(), index_t{0});
  TRIREME_REQUIRE(
      split.size() == static_cast<std::size_t>(shape.pieces()) && dealt == layers,
      "{} are dealt to {} that take {}; the pipeline has {}",
      format_plural(layers, "layer"), format_plural(split.size(), "piece"), dealt,
      shape.pieces());
  return split;
}

}  // namespace

std::vector<std::size_t> piece_cuts(const PipelineLayout& layout,
                                    const model::Blueprint& blueprint) {
  std::vector<bool> is_layer;
  for (const model::BlockSpec& block : blueprint.blocks) {
    is_layer.push_back(block.is_layer);
  }
  return schedule::cuts_of(checked_split(layout, blueprint), is_layer);
}

std::vector<comm::TiedParameter> tied_parameters(const PipelineLayout& layout,
                                                 const model::Blueprint& blueprint) {
  const std::vector<std::size_t> cuts = piece_cuts(layout, blueprint);
  std::vector<comm::TiedParameter> tied;
  for (const model::SharedTable& table : blueprint.tables) {
    std::set<int> stages;
    for (const std::size_t user : blueprint.users(table)) {
      const auto piece = std::ranges::upper_bound(cuts, user) - cuts.begin() - 1;
      stages.insert(layout.shape(1).stage_of(static_cast<int>(piece)));
    }
    if (stages.size() > 1) {
      tied.push_back({table.parameter(), {stages.begin(), stages.end()}});
    }
  }
  return tied;
}

std::vector<model::BlockRange> chunk_ranges(const PipelineLayout& layout,
                                            const std::vector<std::size_t>& cuts,
                                            int stage) {
  const schedule::PipelineShape shape = layout.shape(1);
  std::vector<model::BlockRange> ranges;
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    const auto piece = static_cast<std::size_t>(shape.piece(stage, chunk));
    ranges.push_back({cuts[piece], cuts[piece + 1]});
  }
  return ranges;
}

schedule::ModelCost modelled_cost(const model::Blueprint& blueprint,
                                  const StepShape& shape) {
  const BatchSpec batch = shape.batch_spec(blueprint.batch);
  const auto flops = [&](const model::BlockSpec& block) {
    return block.forward_flops(batch, model::AttentionCount::causal);
  };
  double layer = 1.0;  // the costliest
  for (const model::BlockSpec& block : blueprint.blocks) {
    if (block.is_layer) layer = std::max(layer, flops(block));
  }
  // A block without matrix products is memory traffic, about a hundredth of a layer.
  constexpr double kTraffic = 0.01;
  // A layer has passes over rows beside its products, and messages of tensor ranks.
  constexpr double kLayersMore = 0.25;
  schedule::ModelCost cost;
  cost.layers_more = kLayersMore;
  for (const model::BlockSpec& block : blueprint.blocks) {
    // A backward pass has two products for each of the forward pass, unless that had them
    // already.
    const double pass = std::max(flops(block) / layer, kTraffic);
    schedule::PieceCost passes{pass, block.is_source() ? 0.0 : pass, pass};
    if (block.gradients_in_forward) passes = {3 * pass, kTraffic, kTraffic};
    index_t parameters = block.parameters;
    if (!block.table.empty()) parameters += blueprint.table(block.table).elements();
    cost.blocks.push_back({passes, block.is_layer, static_cast<double>(parameters)});
  }
  cost.recomputed =
      static_cast<int>(std::min(shape.recompute.layers, blueprint.layer_count()));
  return cost;
}

schedule::Costs modelled_costs(const PipelineLayout& layout,
                               const model::Blueprint& blueprint,
                               const StepShape& shape) {
  return schedule::costs_of(checked_split(layout, blueprint),
                            modelled_cost(blueprint, shape));
}

schedule::Split balanced_split(const PipelineLayout& layout,
                               const model::Blueprint& blueprint,
                               const StepShape& shape) {
  return schedule::balance(layout.shape(shape.microbatches), layout.schedule,
                           modelled_cost(blueprint, shape));
}

const schedule::Choice& PipelinePlans::choice(int microbatches) const {
  schedule::Choice& choice = found_->choices[microbatches];
  if (choice.order_of) return choice;
  if (layout_.stages == 1) {
    choice.order_of = [=](int) { return schedule::no_pipelining(microbatches); };
    return choice;
  }
  const schedule::PipelineShape shape = layout_.shape(microbatches);
  choice = schedule::choose_orders(shape, layout_.schedule, costs_);
  if (choice.timeline) {
    // The orders of rules are proven by tests; what a search finds depends on the costs.
    std::vector<schedule::StagePlan> plans;
    for (int stage = 0; stage < shape.stages; ++stage) {
      plans.push_back(
          schedule::with_messages(shape, choice.order_of, stage, choice.timeline.get()));
    }
    schedule::check(shape, plans);
  }
  return choice;
}

PipelinePlans::StagePlan PipelinePlans::training(int stage, int microbatches) const {
  if (found_->last_of == std::pair{stage, microbatches}) return found_->last;
  const schedule::Choice& chosen = choice(microbatches);
  const auto plan = std::make_shared<schedule::StagePlan>(schedule::with_messages(
      layout_.shape(microbatches), chosen.order_of, stage, chosen.timeline.get()));
  schedule::check(plan->actions, microbatches, layout_.chunks);
  found_->last = plan;
  found_->last_of = {stage, microbatches};
  return plan;
}

PipelinePlans::StagePlan PipelinePlans::evaluation(int stage, int microbatches) const {
  const schedule::PipelineShape shape = layout_.shape(microbatches);
  const schedule::OrderOf same = [&](int) { return schedule::forward_only(shape); };
  return std::make_shared<schedule::StagePlan>(
      schedule::with_messages(shape, same, stage));
}

StageNeeds PipelinePlans::needs(int stage) const {
  const auto chunks = static_cast<std::size_t>(layout_.chunks);
  StageNeeds needs{.slots = std::vector<int>(chunks, 1),
                   .held_slots = std::vector<int>(chunks, 0)};
  const auto take = [&](const StagePlan& plan, int microbatches) {
    const schedule::Order& actions = plan->actions;
    needs.buffers = std::max(needs.buffers, plan->buffers);
    needs.batches = std::max(needs.batches, batch_slots(actions, microbatches).count);
    for (std::size_t c = 0; c < chunks; ++c) {
      const int chunk = static_cast<int>(c);
      needs.slots[c] = std::max(needs.slots[c], schedule::slot_count(actions, chunk));
      needs.held_slots[c] =
          std::max(needs.held_slots[c], schedule::held_count(actions, chunk));
      needs.has_weight_passes = needs.has_weight_passes || needs.held_slots[c] > 0;
    }
  };
  for (const int count : shape_.other_microbatches) take(training(stage, count), count);
  take(training(stage, shape_.microbatches), shape_.microbatches);
  // Evaluations of any length: a round of all stages repeats.
  constexpr int kRounds = 4;
  const int evaluated = kRounds * layout_.stages;
  take(evaluation(stage, evaluated), evaluated);
  return needs;
}

BatchSlots batch_slots(const schedule::Order& actions, int microbatches) {
  std::vector<std::size_t> last(static_cast<std::size_t>(microbatches), 0);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (schedule::is_message(actions[i])) continue;
    last[static_cast<std::size_t>(actions[i].microbatch)] = i;
  }
  schedule::FreeNumbers free;
  BatchSlots result;
  result.of_microbatch.assign(last.size(), schedule::Action::kNone);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (schedule::is_message(actions[i])) continue;
    const auto m = static_cast<std::size_t>(actions[i].microbatch);
    int& slot = result.of_microbatch[m];
    if (slot == schedule::Action::kNone) slot = free.take();
    if (last[m] == i) free.give_back(slot);
  }
  result.count = free.most();
  return result;
}

}  // namespace trireme::step
