// schedule/balance.cpp — see balance.hpp.
//
// A division is looked for by trying. Dealer makes two to begin with, by giving every
// next layer to the stage with the least work: the one fills the chunks of a stage alike,
// the other its last chunk, since what comes early is in flight for long. From each of
// them layers are moved as long as the price falls. Simulation is used rather than the
// largest stage's work, because warm-up, cool-down and messages count as well, and
// because layers that are made again in the backward pass change forward and backward
// time by different factors. What stands before the first layer and behind the last
// (embedding, head) is not dealt: it stays with the first and the last piece, which
// therefore get fewer layers. Example: 4 layers of cost 1 and a head of cost 2 on 2
// stages are dealt 3 + 1, so that the stages have 3 and 3.
//
// Costs are not exact, and a division that is best by a hair where all passes meet in
// time is worse than the even one where they do not. Hence two prices, by the costs as
// they are and by costs that are worse for it, of which the higher counts. A pipeline
// that is too deep to be simulated is divided evenly.
#include "schedule/balance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme::schedule {

namespace {

constexpr std::size_t kFewPieces = 12;

PieceCost operator*(double factor, const PieceCost& cost) {
  return {factor * cost.forward, factor * cost.backward_input,
          factor * cost.backward_weight};
}

double growth(double value, double from) {
  return from > 0.0 ? value / from - 1.0 : 0.0;
}

// Deals layers by the work of the stages, without a simulation.
class Dealer {
 public:
  Dealer(const PipelineShape& shape, const ModelCost& model)
      : shape_(shape), model_(model) {
    const std::vector<bool> is_layer = model.layers();
    const auto layers = std::ranges::count(is_layer, true);
    bool is_before = true;
    for (const ModelCost::Block& block : model.blocks) {
      is_before = is_before && !block.is_layer;
      PieceCost& sum = block.is_layer ? layer_ : is_before ? front_ : back_;
      sum = sum + block.cost;
    }
    layer_ = 1.0 / static_cast<double>(std::max<std::ptrdiff_t>(layers, 1)) * layer_;
  }

  // Which chunk of a stage gets the layers that the stage gets.
  enum class Chunk { lightest, last };

  Split dealt(int layers, Chunk chunk) const {
    Split split(static_cast<std::size_t>(shape_.pieces()), 1);
    split.front() = split.back() = 0;
    int left = layers - std::accumulate(split.begin(), split.end(), 0);
    for (; left > 0; --left) {
      const int stage = lightest_stage(split);
      const int its = chunk == Chunk::last ? shape_.chunks - 1 : lightest(split, stage);
      split[static_cast<std::size_t>(shape_.piece(stage, its))] += 1;
    }
    return cut_by_work(split, model_);
  }

 private:
  double work_of(const Split& split, int stage, int chunk) const {
    return mean_cost(split, static_cast<std::size_t>(shape_.piece(stage, chunk))).total();
  }
  // Later stages first, which have fewer micro-batches in flight.
  int lightest_stage(const Split& split) const {
    int lightest = 0;
    double least = std::numeric_limits<double>::infinity();
    for (int stage = shape_.stages - 1; stage >= 0; --stage) {
      double work = 0.0;
      for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
        work += work_of(split, stage, chunk);
      }
      if (!is_less(work, least)) continue;
      least = work;
      lightest = stage;
    }
    return lightest;
  }
  // Of a stage's chunks.
  int lightest(const Split& split, int stage) const {
    int lightest = 0;
    for (int chunk = 1; chunk < shape_.chunks; ++chunk) {
      if (is_less(work_of(split, stage, chunk), work_of(split, stage, lightest))) {
        lightest = chunk;
      }
    }
    return lightest;
  }

  // What a piece would cost if all layers were alike. Layers are dealt by their number as
  // long as not all of them are, and it is not known yet which of them the piece will
  // get.
  PieceCost mean_cost(const Split& split, std::size_t piece) const {
    PieceCost cost = split[piece] * layer_;
    cost.backward_input += std::min(split[piece], model_.recomputed) * layer_.forward;
    if (piece == 0) cost = cost + front_;
    if (piece + 1 == split.size()) cost = cost + back_;
    return cost;
  }

  PipelineShape shape_;
  const ModelCost& model_;
  // The costs of a mean layer, of all blocks that stand before the first layer, and of
  // all that stand behind it and are no layers.
  PieceCost layer_{0.0, 0.0, 0.0}, front_{0.0, 0.0, 0.0}, back_{0.0, 0.0, 0.0};
};

// What the costs leave open, at its worst for whoever moves layers: layers take as much
// more as they may, so that what stands beside them weighs less, and messages that costs
// do not know of take a tenth of a layer's forward pass.
ModelCost worse_costs(ModelCost model) {
  constexpr double kMessage = 0.1;
  double forward = 0.0;
  for (ModelCost::Block& block : model.blocks) {
    if (!block.is_layer) continue;
    block.cost = (1.0 + model.layers_more) * block.cost;
    forward = std::max(forward, block.cost.forward);
  }
  if (model.message == 0.0) model.message = kMessage * forward;
  return model;
}

// The pieces that a layer may move to. With few pieces these are all others; with many
// they are the neighbours and the two ends, because the ends differ most from the rest.
std::vector<std::size_t> partners(std::size_t from, std::size_t pieces) {
  std::vector<std::size_t> others;
  for (std::size_t to = 0; to < pieces; ++to) {
    const bool is_near = to + 1 == from || to == from + 1;
    const bool is_end = to == 0 || to + 1 == pieces;
    if (to != from && (pieces <= kFewPieces || is_near || is_end)) others.push_back(to);
  }
  return others;
}

// Inner pieces keep one layer at least.
bool can_give(const Split& split, std::size_t piece) {
  const bool is_end = piece == 0 || piece + 1 == split.size();
  return split[piece] > (is_end ? 0 : 1);
}

// Divisions that differ by one layer from one piece to another, or by one of each stage
// from one of its chunks to another.
std::vector<Split> neighbours(const PipelineShape& shape, const Split& split) {
  std::vector<Split> moved;
  const auto move = [](Split& layers, std::size_t from, std::size_t to) {
    layers[from] -= 1;
    layers[to] += 1;
  };
  for (std::size_t from = 0; from < split.size(); ++from) {
    if (!can_give(split, from)) continue;
    for (const std::size_t to : partners(from, split.size())) {
      move(moved.emplace_back(split), from, to);
    }
  }
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    for (int other = 0; other < shape.chunks; ++other) {
      if (other == chunk) continue;
      Split& all = moved.emplace_back(split);
      for (int stage = 0; stage < shape.stages; ++stage) {
        const auto from = static_cast<std::size_t>(shape.piece(stage, chunk));
        const auto to = static_cast<std::size_t>(shape.piece(stage, other));
        if (can_give(split, from)) move(all, from, to);
      }
    }
  }
  return moved;
}

// How many of these there may be.
double most_neighbours(const PipelineShape& shape) {
  const double pieces = shape.pieces();
  const double others = pieces <= kFewPieces ? pieces - 1.0 : 4.0;
  return pieces * others + shape.chunks * (shape.chunks - 1.0);
}

class Balancer {
 public:
  Balancer(const PipelineShape& shape, PipelineSchedule kind, const ModelCost& model,
           int layers)
      : shape_(shape),
        model_(model),
        layers_(layers),
        even_(even_split(layers, shape.pieces())),
        prices_(shape, kind, even_, {model, worse_costs(model)}, kMostPasses),
        rough_prices_(shape, kind, even_, {model, worse_costs(model)},
                      std::min(kMostPasses, kPassesOfRound / most_neighbours(shape))) {}

  Split best() const {
    if (!prices_.are_simulated()) return even_;
    Split best = even_;
    double least = 1.0 - kLeastGain;
    const auto take_if_better = [&](const Split& split) {
      const double price = prices_.of(split, least);
      if (!is_less(price, least)) return;
      least = price;
      best = split;
    };
    const Dealer dealer(shape_, model_);
    for (const auto chunk : {Dealer::Chunk::lightest, Dealer::Chunk::last}) {
      const Split dealt = dealer.dealt(layers_, chunk);
      take_if_better(dealt);
      if (rough_prices_.are_simulated()) take_if_better(improved(dealt));
      if (shape_.chunks == 1) break;
    }
    return best;
  }

 private:
  // What may be gone through for one division, and for all that are tried in a round of
  // moves: about a second at most for a balance. In a pipeline of many pieces moves
  // cannot be tried, and there a single layer matters less.
  static constexpr double kMostPasses = 5e5, kPassesOfRound = 2e6;
  static constexpr int kMostRounds = 10;

  // The prices of divisions, the even one's being 1.
  class Prices {
   public:
    Prices(const PipelineShape& shape, PipelineSchedule kind, const Split& even,
           const std::vector<ModelCost>& costs, double most_passes)
        : divisions_(shape, kind, most_passes) {
      if (!divisions_.are_simulated()) return;
      for (const ModelCost& model : costs) {
        cases_.push_back({model, divisions_.demand_of(even, model)});
      }
    }

    // The highest; where that is not below `enough`, one that is not below it either.
    double of(const Split& split, double enough) const {
      double highest = 0.0;
      for (const auto& [model, of_even] : cases_) {
        const Demand demand = divisions_.demand_of(split, model);
        highest = std::max(highest, price_of(demand, of_even));
        if (!is_less(highest, enough)) break;
      }
      return highest;
    }
    bool are_simulated() const { return divisions_.are_simulated(); }

   private:
    struct Case {
      ModelCost model;
      Demand of_even;
    };
    Divisions divisions_;
    std::vector<Case> cases_;
  };

  // From round to round the best of the neighbours.
  Split improved(Split split) const {
    double price = rough_prices_.of(split, std::numeric_limits<double>::infinity());
    for (int round = 0; round < kMostRounds; ++round) {
      const double before = price;
      for (const Split& moved : neighbours(shape_, split)) {
        const double changed = rough_prices_.of(moved, price);
        if (!is_less(changed, price)) continue;
        price = changed;
        split = moved;
      }
      if (price == before) break;
    }
    return split;
  }

  PipelineShape shape_;
  const ModelCost& model_;
  int layers_;
  Split even_;
  Prices prices_;
  Prices rough_prices_;  // of steps of fewer micro-batches, where these are too many
};

}  // namespace

double price_of(const Demand& demand, const Demand& of_even) {
  const double more = std::max({growth(demand.parameters, of_even.parameters),
                                growth(demand.activations, of_even.activations), 0.0});
  return demand.seconds / of_even.seconds * (1.0 + kTimeForMemory * more);
}

Split balance(const PipelineShape& shape, PipelineSchedule kind, const ModelCost& model) {
  const std::vector<bool> is_layer = model.layers();
  const auto layers = static_cast<int>(std::ranges::count(is_layer, true));
  TRIREME_REQUIRE(shape.pieces() <= layers + 2,
                  "a pipeline of {} and {}: some would have nothing at all in them; {} "
                  "at most (the first may have the embedding alone, the last the head)",
                  format_plural(shape.pieces(), "piece"), format_plural(layers, "layer"),
                  format_plural(layers + 2, "piece"));
  if (shape.pieces() == 1) return {layers};
  return Balancer(shape, kind, model, layers).best();
}

}  // namespace trireme::schedule
