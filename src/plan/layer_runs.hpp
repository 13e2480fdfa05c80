// plan/layer_runs.hpp — the layers of a model by what they take: in runs of layers that
// follow one another and are alike, and in classes, whose runs may stand apart. A GPT has
// one run; the encoder and the decoder of a T5 are two.
#ifndef TRIREME_PLAN_LAYER_RUNS_HPP_
#define TRIREME_PLAN_LAYER_RUNS_HPP_

#include <compare>
#include <cstddef>
#include <vector>

#include "base/types.hpp"
#include "model/blueprint.hpp"

namespace trireme::plan {

// What a piece of a pipeline has of the model, but for how many layers of each run.
// Worked example, two runs, e e e e d d d d on pieces of 2, 1, 3 and 2 layers: the pieces
// are {0, 0, begins}, {0, 0}, {0, 1} and {1, 1, ends}, where the third has the end of one
// run and the beginning of the other, with what stands between them.
struct PieceKind {
  std::size_t first = 0, last = 0;  // runs that it has layers of
  bool begins = false;  // with the first layer of the run `first`, and what is before it
  bool ends = false;    // with the last layer of the run `last`, which no layer follows
                        // in the piece; the model's last has what is behind it as well

  auto operator<=>(const PieceKind&) const = default;
};

class LayerRuns {
 public:
  explicit LayerRuns(const model::Blueprint& blueprint);

  struct Run {
    std::size_t layer_class = 0;
    model::BlockRange blocks;
    index_t begin = 0, end = 0;  // layers, in the order of the model
  };
  const std::vector<Run>& runs() const { return runs_; }
  std::size_t classes() const { return first_of_class_.size(); }
  // The first run of a class; the first of its blocks.
  std::size_t first_run(std::size_t layer_class) const {
    return first_of_class_.at(layer_class);
  }
  std::size_t first_block(std::size_t layer_class) const {
    return runs_[first_run(layer_class)].blocks.begin;
  }
  index_t layers() const { return runs_.back().end; }

  // Of the layers [begin, end): how many are of each class.
  std::vector<index_t> counts(index_t begin, index_t end) const;
  // Of the layers [begin, end) as piece `piece` of `pieces`. One without layers is what
  // would be there beside them.
  PieceKind kind_of(int piece, int pieces, index_t begin, index_t end) const;
  PieceKind whole() const { return {0, runs_.size() - 1, true, true}; }
  // A piece within a run, that has other layers of the run on either side.
  static PieceKind within(std::size_t run) { return {run, run, false, false}; }

 private:
  std::vector<Run> runs_;
  std::vector<std::size_t> first_of_class_;
};

// A model whose pipeline has a piece of that kind, with `each` layers of every run: three
// stages, the piece among them; one, where it is all of the model.
struct SmallModel {
  model::Blueprint blueprint;
  std::vector<int> split;  // layers of each stage
  int stage = 0;           // that the piece is
};
SmallModel small_model(const model::Blueprint& blueprint, const LayerRuns& runs,
                       const PieceKind& kind, index_t each);
// All of the model, with a layer of every run, and of one a second.
SmallModel small_whole(const model::Blueprint& blueprint, const LayerRuns& runs,
                       std::size_t longer);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_LAYER_RUNS_HPP_
