// tests/support/model_flops.hpp — what a model of some dimensions takes, as its blueprint
// says it, over samples of any length.
#ifndef TRIREME_TESTS_SUPPORT_MODEL_FLOPS_HPP_
#define TRIREME_TESTS_SUPPORT_MODEL_FLOPS_HPP_

#include "model/blueprint.hpp"

namespace trireme::test {

inline index_t parameter_count(const model::Architecture& architecture) {
  return model::make_blueprint(architecture).parameter_count();
}

// Forward and backward, without recomputation.
inline double model_flops(model::Architecture architecture, index_t samples,
                          index_t sequence,
                          model::AttentionCount count = model::AttentionCount::full) {
  architecture.sequence = sequence;
  return static_cast<double>(samples) *
         model::make_blueprint(architecture).model_flops(count);
}

// Forward through all layers: what making them again adds to a step.
inline double layers_forward_flops(
    const model::Architecture& architecture, index_t samples, index_t sequence,
    model::AttentionCount count = model::AttentionCount::full) {
  model::Blueprint blueprint = model::make_blueprint(architecture);
  blueprint.batch.streams.at(0).sequence = sequence;
  double flops = 0.0;
  for (const model::BlockSpec& block : blueprint.blocks) {
    if (block.is_layer) flops += block.forward_flops(blueprint.batch, count);
  }
  return static_cast<double>(samples) * flops;
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_MODEL_FLOPS_HPP_
