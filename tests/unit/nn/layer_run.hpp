// tests/unit/nn/layer_run.hpp — one of the layers with an input x and a direction d_y of
// its output: objective = d_y . y + loss, and its gradients.
#ifndef TRIREME_TESTS_UNIT_NN_LAYER_RUN_HPP_
#define TRIREME_TESTS_UNIT_NN_LAYER_RUN_HPP_

#include <cstring>

#include "unit/nn/kind_layers.hpp"

namespace trireme::test {

template <class T>
class LayerRun {
 public:
  using Values = std::vector<double>;

  LayerRun(
      const NamedLayer<T>& which, double dropout,
      std::shared_ptr<comm::Communicator> tensor = comm::make_self_communicator("tensor"))
      : bench(std::move(tensor)),
        layer(which.make(bench, dropout)),
        x(numbers(layer.in, layer.splits_x, 1)),
        y(static_cast<std::size_t>(kRows * layer.out)),
        d_y(numbers(layer.out, layer.splits_y, 2)),
        d_x(x.values().size()) {
    bench.allocate([&](const nn::Context& shapes) {
      const View2<T> in(static_cast<T*>(nullptr), kRows, layer.in);
      const View2<T> out(static_cast<T*>(nullptr), kRows, layer.out);
      layer.pass(shapes, in, out, out, in);
    });
  }

  // Forward, without gradients, and what came out of it.
  double objective(nn::Mode mode = nn::Mode::training) {
    forward(mode, nn::Gradients::none);
    const Values out = y.values();
    const Values weight = d_y.values();
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += weight[i] * out[i];
    if (layer.splits_y) sum = bench.groups.tensor->control().all_reduce(sum);
    return sum + bench.totals.values()[0] / bench.step.objective_count[0];
  }
  void forward(nn::Mode mode = nn::Mode::training,
               nn::Gradients gradients = nn::Gradients::taken) {
    bench.saved.arena.reset();
    bench.totals.set({0, 0});
    nn::Context context = bench.context(mode);
    context.gradients = gradients;
    layer.forward(context, x.cmatrix(kRows, layer.in), y.matrix(kRows, layer.out));
  }
  void backward_input() {
    layer.backward_input(bench.context(), d_y.cmatrix(kRows, layer.out),
                         d_x.matrix(kRows, layer.in));
  }
  void backward_weight() {
    layer.backward_weight(bench.context());
    bench.held.arena.reset();
  }
  void all() {
    forward();
    backward_input();
    backward_weight();
  }

  LayerBench<T> bench;
  Layer<T> layer;
  Array<T> x, y, d_y, d_x;

 private:
  // Of every rank its own where they are parts of one tensor, else of all the same.
  Values numbers(index_t columns, bool is_split, unsigned seed) const {
    const int rank = is_split ? bench.groups.tensor->rank() : 0;
    return uniform(static_cast<std::size_t>(kRows * columns),
                   seed + 10 * static_cast<unsigned>(rank));
  }
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_NN_LAYER_RUN_HPP_
