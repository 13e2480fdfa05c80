// step/model_state.hpp — this rank's part of a model: what its parameters are, where
// they lie, and the layers that use them.
#ifndef TRIREME_STEP_MODEL_STATE_HPP_
#define TRIREME_STEP_MODEL_STATE_HPP_

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "comm/process_groups.hpp"
#include "model/chunk.hpp"
#include "nn/context.hpp"
#include "step/pipeline.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::step {

// How ranks share a model, besides the extents of the grid.
struct Sharing {
  bool sequence_parallel = false;
  int zero = 0;  // the degree of ZeRO, where several ranks hold the same parameters
  // Elements of a bucket with ZeRO 0 and 1. With ZeRO 2 and 3 a bucket is a unit.
  index_t bucket_elements = index_t{4} << 20;
  PipelineLayout pipeline;
  // Gradients, and messages of them, are of the type that the model computes in.
  bool narrow_gradients = false;
};

// A rank's part of a model, apart from the type that it is computed in.
struct ModelPart {
  ModelPart(const comm::ProcessGroups& groups_in, const model::Blueprint& blueprint_in,
            const Sharing& sharing_in)
      : blueprint(blueprint_in), groups(groups_in), sharing(sharing_in) {
    TRIREME_REQUIRE(sharing.pipeline.stages == groups.pipeline->size(),
                    "a model in {} on a pipeline of {}",
                    format_plural(sharing.pipeline.stages, "stage"),
                    format_plural(groups.pipeline->size(), "rank"));
    groups.share(tied_parameters(sharing.pipeline, blueprint));
    ranges = chunk_ranges(sharing.pipeline, piece_cuts(sharing.pipeline, blueprint),
                          groups.pipeline->rank());
  }
  // Layers point into this object.
  ModelPart(const ModelPart&) = delete;
  ModelPart& operator=(const ModelPart&) = delete;

  const model::Architecture& architecture() const { return blueprint.architecture; }
  bool sequence_parallel() const {
    return sharing.sequence_parallel && groups.tensor->size() > 1;
  }
  // The fields of a batch that this stage's blocks read, as indices of the batch's spec.
  std::vector<std::size_t> fields() const {
    std::set<std::size_t> all;
    for (const model::BlockRange& range : ranges) {
      const std::vector<std::size_t> of_chunk = blueprint.fields_of(range);
      all.insert(of_chunk.begin(), of_chunk.end());
    }
    return {all.begin(), all.end()};
  }
  // Whether a block of this stage makes the objective.
  bool makes_objective(int objective) const {
    const auto maker =
        std::ranges::find(blueprint.blocks, objective, &model::BlockSpec::objective);
    const auto index = static_cast<std::size_t>(maker - blueprint.blocks.begin());
    return std::ranges::any_of(ranges,
                               [&](const auto& range) { return range.contains(index); });
  }
  // The fields of a batch that are masks of the objectives which this stage makes.
  std::vector<std::size_t> objective_masks() const {
    std::set<std::size_t> all;
    for (int i = 0; i < static_cast<int>(blueprint.objectives.size()); ++i) {
      if (!makes_objective(i)) continue;
      all.insert(blueprint.batch.field(blueprint.objectives[extent(i)].mask));
    }
    return {all.begin(), all.end()};
  }

  model::Blueprint blueprint;
  comm::ProcessGroups groups;
  Sharing sharing;
  std::vector<model::BlockRange> ranges;  // of each chunk
  ParamRegistry registry;
};

// Registers every parameter; allocates nothing until allocate().
template <class T>
struct ModelState : ModelPart {
  ModelState(const comm::ProcessGroups& groups_in, const model::Blueprint& blueprint_in,
             const Sharing& sharing_in = {},
             model::BlockMaker<T> make_in = &model::make_block<T>)
      : ModelPart(groups_in, blueprint_in, sharing_in), make(make_in) {
    const nn::Builder<T> builder{registry, params, groups};
    model::Tables<T> tables{ranges};
    for (const model::BlockRange& range : ranges) {
      chunks.push_back(
          std::make_unique<model::Chunk<T>>(builder, blueprint, range, make, &tables));
    }
  }
  ModelState(const comm::ProcessGroups& groups_in,
             const model::Architecture& architecture, const Sharing& sharing_in = {})
      : ModelState(groups_in, model::make_blueprint(architecture), sharing_in) {}
  // A state of the same model that allocates nothing: for passes on shapes alone.
  ModelState without_memory() const {
    return ModelState(groups, blueprint, sharing, make);
  }

  typename ParamBuffer<T>::Sharding sharding() const {
    const int ranks = groups.gradient->size();
    const int zero = ranks > 1 ? sharing.zero : 0;
    return {.zero = zero,
            .parts = ranks,
            .part = groups.gradient->rank(),
            .bucket_elements = zero >= 2 ? 1 : sharing.bucket_elements,
            .narrow_gradients = sharing.narrow_gradients};
  }
  void allocate(typename ParamBuffer<T>::Use of) {
    params.allocate(registry, of, sharding());
  }
  model::Chunk<T>& chunk(int number) const {
    return *chunks.at(static_cast<std::size_t>(number));
  }
  // The chunk that is the whole model, for generation and parity.
  model::Chunk<T>& whole() const {
    TRIREME_REQUIRE(
        chunks.size() == 1 && chunks[0]->range().size() == blueprint.blocks.size(),
        "this rank has a part of the model only, where all is needed");
    return *chunks[0];
  }

  model::BlockMaker<T> make;
  ParamUse* use = nullptr;  // who is told of the parameters in use: the training step
  ParamBuffer<T> params;
  std::vector<std::unique_ptr<model::Chunk<T>>> chunks;
};

}  // namespace trireme::step

#endif  // TRIREME_STEP_MODEL_STATE_HPP_
