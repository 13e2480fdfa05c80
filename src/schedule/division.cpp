// schedule/division.cpp — see division.hpp.
//
// Two divisions may be compared by steps of fewer micro-batches than a run's only if what
// is left out is the same repeated: a number of micro-batches that goes into rounds of
// the stages as the run's does (groups of chunks depend on the rest), the warm-up in
// full, and the middle by its length. Example: a step of 514 micro-batches on 4 stages
// that is looked at by 34 of them has the time of 34, and 480/16 times what they take
// more than 18.
//
// Memory is counted apart for parameters and for activations, because what a byte of the
// one is worth in bytes of the other depends on the type of numbers, the degree of ZeRO
// and the micro-batch: a division that has no more of both needs no more memory in any of
// these.
#include "schedule/division.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"

namespace trireme::schedule {

namespace {

// A layer that is made again keeps its input, of sixteen tensors of that size.
constexpr double kKeptOfRecomputed = 1.0 / 16.0;

KeptMicrobatches kept_by(const PipelineShape& shape, const std::vector<Order>& orders) {
  KeptMicrobatches kept;
  for (const Order& order : orders) {
    std::vector<double>& chunks = kept.emplace_back();
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      chunks.push_back(slot_count(order, chunk));
    }
  }
  return kept;
}

}  // namespace

std::vector<bool> ModelCost::layers() const {
  std::vector<bool> is_layer;
  for (const Block& block : blocks) is_layer.push_back(block.is_layer);
  return is_layer;
}

Split even_split(int layers, int pieces) {
  Split split(static_cast<std::size_t>(pieces), layers / pieces);
  int rest = layers % pieces;
  for (std::size_t i = 1; rest > 0; ++i, --rest) split[i % split.size()] += 1;
  return split;
}

Split cut_by_work(const Split& alike, const ModelCost& model) {
  double work = 0.0, layers = 0.0;
  for (const ModelCost::Block& block : model.blocks) {
    if (!block.is_layer) continue;
    work += block.cost.total();
    layers += 1.0;
  }
  std::vector<double> behind = {0.0};  // work of the first layers, in mean layers
  for (const ModelCost::Block& block : model.blocks) {
    if (!block.is_layer) continue;
    behind.push_back(behind.back() + block.cost.total() * layers / work);
  }
  Split split;
  std::size_t at = 0;
  double wanted = 0.0;
  for (std::size_t g = 0; g < alike.size(); ++g) {
    wanted += alike[g];
    const bool is_end = g == 0 || g + 1 == alike.size();
    const std::size_t pieces_after = alike.size() - g - 1;
    const std::size_t least = at + (is_end ? 0 : 1);
    const std::size_t most =
        behind.size() - 1 - (pieces_after > 0 ? pieces_after - 1 : 0);
    std::size_t end = least;
    const auto off = [&](std::size_t cut) { return std::abs(behind[cut] - wanted); };
    while (end < most && off(end + 1) <= off(end)) ++end;
    if (pieces_after == 0) end = behind.size() - 1;
    split.push_back(static_cast<int>(end - at));
    at = end;
  }
  return split;
}

std::vector<std::size_t> cuts_of(const Split& split, const std::vector<bool>& is_layer) {
  const auto first = std::ranges::find(is_layer, true) - is_layer.begin();
  std::vector<std::size_t> cuts = {0};
  auto at = static_cast<std::size_t>(first);  // behind what stands before all layers
  for (const int layers : split) {
    for (int left = layers; left > 0; --left) {
      while (at < is_layer.size() && !is_layer[at]) ++at;
      TRIREME_REQUIRE(at < is_layer.size(), "a split of more layers than there are");
      ++at;
    }
    cuts.push_back(at);
  }
  cuts.back() = is_layer.size();
  return cuts;
}

Costs costs_of(const Split& split, const ModelCost& model) {
  Costs costs{.pieces = {}, .message = model.message, .message_work = model.message_work};
  const std::vector<std::size_t> cuts = cuts_of(split, model.layers());
  for (std::size_t g = 0; g < split.size(); ++g) {
    PieceCost piece{0.0, 0.0, 0.0};
    int layers = 0;
    for (std::size_t i = cuts[g]; i < cuts[g + 1]; ++i) {
      const ModelCost::Block& block = model.blocks[i];
      piece = piece + block.cost;
      if (!block.is_layer) continue;
      if (layers < model.recomputed) piece.backward_input += block.cost.forward;
      ++layers;
    }
    costs.pieces.push_back(piece);
  }
  return costs;
}

Divisions::Divisions(const PipelineShape& shape, PipelineSchedule kind,
                     double most_passes)
    : shape_(shape),
      kind_(kind),
      is_searched_(kind == PipelineSchedule::zero_bubble &&
                   schedule::is_simulated(shape, kind)) {
  const std::optional<int> microbatches = microbatches_within(most_passes);
  if (!microbatches) return;
  step_ = step_of(*microbatches);
  if (*microbatches == shape.microbatches) return;
  const int rounds = *microbatches / shape.stages;
  shorter_ = step_of(*microbatches - rounds / 2 * shape.stages);
}

std::optional<int> Divisions::microbatches_within(double most_passes) const {
  constexpr int kMostRounds = 64, kFewestRounds = 4;
  PipelineShape looked_at = shape_;
  const auto is_within = [&] {
    return passes_to_choose(looked_at, kind_) <= most_passes;
  };
  if (is_within()) return shape_.microbatches;
  const int rest = shape_.microbatches % shape_.stages;
  for (int rounds = kMostRounds; rounds >= kFewestRounds; rounds /= 2) {
    looked_at.microbatches = rounds * shape_.stages + rest;
    if (looked_at.microbatches < shape_.microbatches && is_within()) {
      return looked_at.microbatches;
    }
  }
  return {};
}

auto Divisions::step_of(int microbatches) const -> Step {
  Step step{.shape = shape_, .orders = {}};
  step.shape.microbatches = microbatches;
  if (is_searched_) return step;
  std::vector<OrderOf> tried = orders_to_try(step.shape, kind_);
  // A run that cannot simulate its step takes the first, the order of the rule.
  if (!schedule::is_simulated(shape_, kind_)) tried.resize(1);
  for (const OrderOf& order_of : tried) {
    std::vector<Order> orders = orders_of_all(step.shape, order_of);
    KeptMicrobatches kept = kept_by(step.shape, orders);
    step.orders.push_back({std::move(orders), std::move(kept)});
  }
  return step;
}

// As choose_orders() chooses.
auto Divisions::fastest(const Step& step, const Costs& costs) const -> Fastest {
  if (is_searched_) {
    const Choice choice = choose_orders(step.shape, kind_, costs);
    return {seconds_of(step.shape, choice, costs),
            kept_by(step.shape, orders_of_all(step.shape, choice.order_of))};
  }
  Fastest best;
  for (const Orders& orders : step.orders) {
    const double seconds = simulate(step.shape, orders.passes, costs).seconds;
    if (!best.kept.empty() && !is_less(seconds, best.seconds)) continue;
    best = {seconds, orders.kept};
  }
  return best;
}

auto Divisions::whole_step(const Costs& costs) const -> Fastest {
  TRIREME_REQUIRE(step_, "divisions of a pipeline that is too deep to be simulated");
  Fastest whole = fastest(*step_, costs);
  if (!shorter_) return whole;
  const auto ones_more = [](const PipelineShape& than, const PipelineShape& shape) {
    return static_cast<double>(shape.microbatches - than.microbatches);
  };
  const double added = whole.seconds - fastest(*shorter_, costs).seconds;
  whole.seconds +=
      added * ones_more(step_->shape, shape_) / ones_more(shorter_->shape, step_->shape);
  return whole;
}

Demand Divisions::demand_of(const Split& split, const ModelCost& model) const {
  const Fastest step = whole_step(costs_of(split, model));
  const std::vector<std::size_t> cuts = cuts_of(split, model.layers());
  Demand demand{.seconds = step.seconds};
  for (int stage = 0; stage < shape_.stages; ++stage) {
    double parameters = 0.0, activations = 0.0;
    for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
      const auto piece = static_cast<std::size_t>(shape_.piece(stage, chunk));
      for (std::size_t i = cuts[piece]; i < cuts[piece + 1]; ++i) {
        parameters += model.blocks[i].parameters;
      }
      const int again = std::min(split[piece], model.recomputed);
      const double layers = split[piece] - (1.0 - kKeptOfRecomputed) * again;
      activations +=
          layers *
          step.kept[static_cast<std::size_t>(stage)][static_cast<std::size_t>(chunk)];
    }
    demand.parameters = std::max(demand.parameters, parameters);
    demand.activations = std::max(demand.activations, activations);
  }
  return demand;
}

}  // namespace trireme::schedule
