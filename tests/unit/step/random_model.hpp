// A small GPT with random weights, biases and norms too: no vector that is zero or one
// and could be swapped or forgotten unseen.
#ifndef TRIREME_UNIT_STEP_RANDOM_MODEL_HPP_
#define TRIREME_UNIT_STEP_RANDOM_MODEL_HPP_

#include <random>

#include "comm/process_groups.hpp"
#include "step/model_state.hpp"

namespace trireme::test {

template <class T>
void randomize(step::ModelState<T>& state, double scale = 0.2, unsigned seed = 7) {
  using Use = typename ParamBuffer<T>::Use;
  if (!state.params.is_allocated()) state.params.allocate(state.registry, Use::training);
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (std::size_t i = 0; i < state.registry.size(); ++i) {
    const ParamSpec& spec = state.registry.spec(i);
    const bool is_scale =
        spec.init.kind == Initializer::Kind::constant && spec.init.value == 1.0;
    const auto weight = state.params.slice(Slab::weight, i);
    const auto host = Kokkos::create_mirror_view(weight);
    for (std::size_t j = 0; j < weight.extent(0); ++j) {
      host(j) = static_cast<Accumulator<T>>(scale * normal(random) + (is_scale ? 1 : 0));
    }
    Kokkos::deep_copy(weight, host);
  }
  state.params.refresh_compute(Exec());
  Exec().fence("randomize");
}

}  // namespace trireme::test

#endif  // TRIREME_UNIT_STEP_RANDOM_MODEL_HPP_
