// schedule/balance.cpp — see balance.hpp.
//
// The fastest split of a model over a pipeline is looked for by trying: Balancer makes a
// first split by giving every next layer to the stage with the least work, and then moves
// single layers from piece to piece as long as the simulated step becomes shorter.
// Simulation is used rather than the largest stage's work, because warm-up, cool-down and
// messages count as well, and because layers that are made again in the backward pass
// change forward and backward time by different factors. What stands before the first
// layer and behind the last (embedding, head) is not dealt: it stays with the first and
// the last piece, which therefore get fewer layers. Example: 4 layers of cost 1 and a
// head of cost 2 on 2 stages are dealt 3 + 1, so that the stages have 3 and 3.
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

constexpr double kSame = 1e-9;  // relative: no faster than rounding makes it
constexpr std::size_t kFewPieces = 12;

PieceCost operator*(double factor, const PieceCost& cost) {
  return {factor * cost.forward, factor * cost.backward_input,
          factor * cost.backward_weight};
}

class Balancer {
 public:
  Balancer(const PipelineShape& shape, PipelineSchedule kind, const ModelCost& model)
      : shape_(shape), simulated_(shape), kind_(kind), model_(model) {
    // The beginning and the end of a step are what splits differ in; the middle repeats.
    constexpr int kEnough = 4;
    simulated_.microbatches = std::min(shape.microbatches, kEnough * shape.stages);
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

  Split best(int layers) {
    Split split(static_cast<std::size_t>(shape_.pieces()), 1);
    const std::size_t last = split.size() - 1;
    split.front() = split.back() = 0;
    int left = layers - std::accumulate(split.begin(), split.end(), 0);
    for (; left > 0; --left) split[lightest(split)] += 1;
    if (last == 0) return split;
    split = cut_by_work(split);
    if (!is_affordable()) return split;
    double seconds = simulated(split);
    while (improve(split, seconds)) {
    }
    return split;
  }

 private:
  // The piece that the next layer goes to: of the stage with the least work, and there of
  // the lightest; later stages first, which have fewer micro-batches in flight.
  std::size_t lightest(const Split& split) const {
    const auto work_of = [&](int stage, int chunk) {
      const auto piece = static_cast<std::size_t>(shape_.piece(stage, chunk));
      return mean_cost(split, piece).total();
    };
    int lightest_stage = 0;
    double least = std::numeric_limits<double>::infinity();
    for (int stage = shape_.stages - 1; stage >= 0; --stage) {
      double work = 0.0;
      for (int chunk = 0; chunk < shape_.chunks; ++chunk) work += work_of(stage, chunk);
      if (work > least * (1.0 - kSame)) continue;
      least = work;
      lightest_stage = stage;
    }
    int lightest_chunk = 0;
    for (int chunk = 1; chunk < shape_.chunks; ++chunk) {
      const bool is_lighter = work_of(lightest_stage, chunk) <
                              work_of(lightest_stage, lightest_chunk) * (1.0 - kSame);
      if (is_lighter) lightest_chunk = chunk;
    }
    return static_cast<std::size_t>(shape_.piece(lightest_stage, lightest_chunk));
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

  // The split whose pieces have as much work as so many mean layers each; `dealt` itself
  // where layers are alike. Inner pieces keep one layer at least.
  Split cut_by_work(const Split& dealt) const {
    std::vector<double> behind = {0.0};  // work of the first layers, in mean layers
    for (const ModelCost::Block& block : model_.blocks) {
      if (!block.is_layer) continue;
      behind.push_back(behind.back() + block.cost.total() / layer_.total());
    }
    Split split;
    std::size_t at = 0;
    double wanted = 0.0;
    for (std::size_t g = 0; g < dealt.size(); ++g) {
      wanted += dealt[g];
      const bool is_end = g == 0 || g + 1 == dealt.size();
      const std::size_t pieces_after = dealt.size() - g - 1;
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

  // Whether all moves can be tried within a second. In a pipeline of many pieces they
  // cannot, and there a single layer matters less.
  bool is_affordable() const {
    constexpr double kMostPasses = 1e7;
    const double pieces = shape_.pieces();
    const double moves = pieces * std::min(pieces, static_cast<double>(kFewPieces));
    const double tries = kind_ == PipelineSchedule::zero_bubble ? 30.0 : 1.0;
    return moves * tries * 2.0 * pieces * simulated_.microbatches < kMostPasses;
  }

  double simulated(const Split& split) const {
    const Costs costs = costs_of(split, model_);
    return seconds_of(simulated_, choose_orders(simulated_, kind_, costs), costs);
  }

  // Moves one layer from one piece to another where that is faster: the best such move.
  bool improve(Split& split, double& seconds) const {
    Split best;
    for (std::size_t from = 0; from < split.size(); ++from) {
      const bool may_be_empty = from == 0 || from + 1 == split.size();
      if (split[from] == (may_be_empty ? 0 : 1)) continue;
      for (const std::size_t to : partners(from, split.size())) {
        Split moved = split;
        moved[from] -= 1;
        moved[to] += 1;
        const double taken = simulated(moved);
        if (taken >= seconds * (1.0 - kSame)) continue;
        seconds = taken;
        best = std::move(moved);
      }
    }
    if (best.empty()) return false;
    split = std::move(best);
    return true;
  }

  // The pieces that a layer may move to. With few pieces these are all others; with many
  // they are the neighbours and the two ends, because the ends differ most from the rest.
  static std::vector<std::size_t> partners(std::size_t from, std::size_t pieces) {
    std::vector<std::size_t> others;
    for (std::size_t to = 0; to < pieces; ++to) {
      const bool is_near = to + 1 == from || to == from + 1;
      const bool is_end = to == 0 || to + 1 == pieces;
      if (to != from && (pieces <= kFewPieces || is_near || is_end)) others.push_back(to);
    }
    return others;
  }

  PipelineShape shape_, simulated_;
  PipelineSchedule kind_;
  const ModelCost& model_;
  // The costs of a mean layer, of all blocks that stand before the first layer, and of
  // all that stand behind it and are no layers.
  PieceCost layer_{0.0, 0.0, 0.0}, front_{0.0, 0.0, 0.0}, back_{0.0, 0.0, 0.0};
};

}  // namespace

Split balance(const PipelineShape& shape, PipelineSchedule kind, const ModelCost& model) {
  const std::vector<bool> is_layer = model.layers();
  const auto layers = static_cast<int>(std::ranges::count(is_layer, true));
  TRIREME_REQUIRE(shape.pieces() <= layers + 2,
                  "a pipeline of {} and {}: some would have nothing at all in them; {} "
                  "at most (the first may have the embedding alone, the last the head)",
                  format_plural(shape.pieces(), "piece"), format_plural(layers, "layer"),
                  format_plural(layers + 2, "piece"));
  return Balancer(shape, kind, model).best(layers);
}

}  // namespace trireme::schedule
