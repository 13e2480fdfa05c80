// plan/layer_runs.cpp — see layer_runs.hpp.
//
// A small model is the blueprint with other numbers of layers: a run that is to have n of
// them has n - 1 copies of its first layer, and then its last one, because a tensor may
// end there (the encoder's output at the last layer of a decoder). A copy has the border
// before the run behind it, so that all its tensors go on.
//
// Stages are counted by what they have of each run. Where the piece is the model's first
// or last the rest is two stages, so that whatever a pipeline of three does is done by
// each of its stages: a layer more of the run next to the piece makes the middle one.
#include "plan/layer_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace trireme::plan {

namespace {

// What passes a layer by may end at one of them.
bool are_alike(model::BlockSpec a, const model::BlockSpec& b) {
  a.border = b.border;
  return a.is_like(b);
}

// Layers of each run.
using Counts = std::vector<index_t>;

index_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), index_t{0});
}

// Of a piece, and of what is before and behind it, a layer of each run that is there.
struct Parts {
  Counts before, piece, behind;
};
Parts parts_of(const LayerRuns& runs, const PieceKind& kind) {
  const std::size_t count = runs.runs().size();
  Parts parts{Counts(count, 0), Counts(count, 0), Counts(count, 0)};
  for (std::size_t r = 0; r < count; ++r) {
    const bool is_before = r < kind.first || (r == kind.first && !kind.begins);
    const bool is_behind = r > kind.last || (r == kind.last && !kind.ends);
    parts.before[r] = is_before ? 1 : 0;
    parts.piece[r] = r >= kind.first && r <= kind.last ? 1 : 0;
    parts.behind[r] = is_behind ? 1 : 0;
  }
  return parts;
}

// The layer next to the piece makes a stage of its own, in the place of `empty`.
void split_off(Counts& from, bool is_behind, Counts& empty) {
  const auto has = [](index_t count) { return count > 0; };
  const auto next = is_behind ? std::ranges::find_if(from, has)
                              : std::find_if(from.rbegin(), from.rend(), has).base() - 1;
  empty[static_cast<std::size_t>(next - from.begin())] = 1;
}

std::vector<Counts> stages_of(const LayerRuns& runs, const PieceKind& kind, int& stage) {
  Parts parts = parts_of(runs, kind);
  Counts middle(runs.runs().size(), 0);
  stage = 1;
  if (sum(parts.before) > 0 && sum(parts.behind) > 0) {
    return {parts.before, parts.piece, parts.behind};
  }
  if (sum(parts.behind) > 0) {
    stage = 0;
    split_off(parts.behind, true, middle);
    return {parts.piece, middle, parts.behind};
  }
  if (sum(parts.before) > 0) {
    stage = 2;
    split_off(parts.before, false, middle);
    return {parts.before, middle, parts.piece};
  }
  stage = 0;
  return {parts.piece};
}

// Layers get numbers of their own: names are made of them.
void add_run(const model::Blueprint& from, const LayerRuns::Run& run, index_t count,
             index_t& number, std::vector<model::BlockSpec>& blocks) {
  for (index_t i = 0; i < count; ++i) {
    const bool is_last = i + 1 == count;
    const std::size_t block = is_last ? run.blocks.end - 1 : run.blocks.begin;
    model::BlockSpec layer = from.blocks[block];
    if (!is_last) layer.border = from.border_before(run.blocks.begin);
    layer.number = number++;
    layer.name = fmt::format("{}+{}", from.blocks[run.blocks.begin].name, i);
    blocks.push_back(std::move(layer));
  }
}

}  // namespace

LayerRuns::LayerRuns(const model::Blueprint& blueprint) {
  index_t layer = 0;
  for (std::size_t i = 0; i < blueprint.blocks.size(); ++i) {
    const model::BlockSpec& block = blueprint.blocks[i];
    if (!block.is_layer) continue;
    const auto is_like = [&](std::size_t other) {
      return are_alike(blueprint.blocks[other], block);
    };
    if (!runs_.empty() && runs_.back().blocks.end == i && is_like(i - 1)) {
      ++runs_.back().blocks.end;
      runs_.back().end = ++layer;
      continue;
    }
    const auto known = std::ranges::find_if(first_of_class_, [&](std::size_t run) {
      return is_like(runs_[run].blocks.begin);
    });
    const auto layer_class = static_cast<std::size_t>(known - first_of_class_.begin());
    if (known == first_of_class_.end()) first_of_class_.push_back(runs_.size());
    runs_.push_back({layer_class, {i, i + 1}, layer, layer + 1});
    ++layer;
  }
  TRIREME_REQUIRE(!runs_.empty(), "a model without layers");
}

std::vector<index_t> LayerRuns::counts(index_t begin, index_t end) const {
  std::vector<index_t> all(classes(), 0);
  for (const Run& run : runs_) {
    const index_t count = std::min(end, run.end) - std::max(begin, run.begin);
    all[run.layer_class] += std::max<index_t>(count, 0);
  }
  return all;
}

PieceKind LayerRuns::kind_of(int piece, int pieces, index_t begin, index_t end) const {
  const auto run_of = [&](index_t layer) {
    const auto found = std::ranges::upper_bound(runs_, layer, {}, &Run::begin);
    return static_cast<std::size_t>(found - runs_.begin()) - 1;
  };
  const bool is_first = piece == 0, is_last = piece + 1 == pieces;
  if (begin == end) {
    const std::size_t run = run_of(std::min(begin, layers() - 1));
    return {run, run, is_first, is_last};
  }
  const std::size_t first = run_of(begin), last = run_of(end - 1);
  return {first, last, begin == runs_[first].begin && (begin > 0 || is_first),
          end == runs_[last].end && (end < layers() || is_last)};
}

namespace {

// With so many layers of each run on each stage.
SmallModel make_small(const model::Blueprint& blueprint, const LayerRuns& runs,
                      const std::vector<Counts>& stages, int stage) {
  SmallModel small{.blueprint = blueprint, .split = {}, .stage = stage};
  for (const Counts& of : stages) small.split.push_back(static_cast<int>(sum(of)));
  std::vector<model::BlockSpec>& blocks = small.blueprint.blocks;
  blocks.clear();
  index_t number = 0;
  std::size_t next = 0;  // block of the whole model
  const auto add_others = [&](std::size_t end) {
    for (; next < end; ++next) blocks.push_back(blueprint.blocks[next]);
  };
  for (std::size_t r = 0; r < runs.runs().size(); ++r) {
    const LayerRuns::Run& run = runs.runs()[r];
    index_t count = 0;
    for (const Counts& of : stages) count += of[r];
    add_others(run.blocks.begin);
    add_run(blueprint, run, count, number, blocks);
    next = run.blocks.end;
  }
  add_others(blueprint.blocks.size());
  small.blueprint.check();
  return small;
}

}  // namespace

SmallModel small_model(const model::Blueprint& blueprint, const LayerRuns& runs,
                       const PieceKind& kind, index_t each) {
  int stage = 0;
  std::vector<Counts> stages = stages_of(runs, kind, stage);
  for (Counts& of : stages) {
    for (index_t& count : of) count *= each;
  }
  return make_small(blueprint, runs, stages, stage);
}

SmallModel small_whole(const model::Blueprint& blueprint, const LayerRuns& runs,
                       std::size_t longer) {
  Counts counts(runs.runs().size(), 1);
  ++counts.at(longer);
  return make_small(blueprint, runs, {counts}, 0);
}

}  // namespace trireme::plan
