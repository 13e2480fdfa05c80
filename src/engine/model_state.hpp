// engine/model_state.hpp — this rank's part of a model: what its parameters are, where
// they lie, and the layers that use them.
#ifndef TRIREME_ENGINE_MODEL_STATE_HPP_
#define TRIREME_ENGINE_MODEL_STATE_HPP_

#include "model/gpt_chunk.hpp"

namespace trireme::engine {

// Registers every parameter; allocates nothing until params.allocate(registry, use).
template <class T>
struct ModelState {
  ModelState(const comm::ProcessGroups& groups_in, const model::GptConfig& config_in)
      : config(config_in),
        groups(groups_in),
        chunk(nn::Builder<T>{registry, params, groups}, config,
              {.begin = 0, .end = config.layers}) {}
  // Layers point into this object.
  ModelState(const ModelState&) = delete;
  ModelState& operator=(const ModelState&) = delete;

  model::GptConfig config;
  comm::ProcessGroups groups;
  ParamRegistry registry;
  ParamBuffer<T> params;
  model::GptChunk<T> chunk;
};

}  // namespace trireme::engine

#endif  // TRIREME_ENGINE_MODEL_STATE_HPP_
