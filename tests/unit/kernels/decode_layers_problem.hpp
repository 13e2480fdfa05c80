// Layers of a step of generation: numbers for them, and what the launches that one launch
// of all layers stands for make of these.
#ifndef TRIREME_TESTS_UNIT_KERNELS_DECODE_LAYERS_PROBLEM_HPP_
#define TRIREME_TESTS_UNIT_KERNELS_DECODE_LAYERS_PROBLEM_HPP_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/decode_attention.hpp"
#include "kernels/decode_layers.hpp"
#include "kernels/decode_linear.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels::decode_layers_test {

using Numbers = std::vector<std::int32_t>;
using Values = std::vector<double>;

inline constexpr double kEpsilon = 1e-5;

struct Shape {
  index_t layers = 2, hidden = 64, heads = 2, kv_heads = 2, head_dim = 32, ffn = 136;
  index_t capacity = 600;
  Numbers places = {3}, lengths = {70};

  index_t q_columns() const { return heads * head_dim; }
  index_t kv_columns() const { return kv_heads * head_dim; }
  index_t qkv_columns() const { return q_columns() + 2 * kv_columns(); }
  index_t rows() const { return std::ssize(lengths); }
  index_t cached() const {  // rows of a cache
    return capacity * (1 + *std::max_element(places.begin(), places.end()));
  }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(head_dim)); }
};

template <class T>
struct Layer {
  Layer(const Shape& of, unsigned seed)
      : norm1_gamma(test::uniform(of.hidden, seed, 0.5, 1.5)),
        norm1_beta(test::uniform(of.hidden, seed + 1, -0.2, 0.2)),
        qkv(test::uniform(of.qkv_columns() * of.hidden, seed + 2, -0.2, 0.2)),
        qkv_bias(test::uniform(of.qkv_columns(), seed + 3)),
        projection(test::uniform(of.hidden * of.q_columns(), seed + 4, -0.2, 0.2)),
        projection_bias(test::uniform(of.hidden, seed + 5)),
        norm2_gamma(test::uniform(of.hidden, seed + 6, 0.5, 1.5)),
        norm2_beta(test::uniform(of.hidden, seed + 7, -0.2, 0.2)),
        fc1(test::uniform(of.ffn * of.hidden, seed + 8, -0.2, 0.2)),
        fc1_bias(test::uniform(of.ffn, seed + 9)),
        fc2(test::uniform(of.hidden * of.ffn, seed + 10, -0.2, 0.2)),
        fc2_bias(test::uniform(of.hidden, seed + 11)),
        k(test::uniform(of.cached() * of.kv_columns(), seed + 12)),
        v(test::uniform(of.cached() * of.kv_columns(), seed + 13)) {}

  DecodeLayer<T> views(const Shape& of) const {
    DecodeLayer<T> layer;
    layer.heads = {of.heads, of.kv_heads, of.head_dim, of.scale()};
    layer.epsilon = kEpsilon;
    layer.attention_gamma = norm1_gamma.cvector();
    layer.attention_beta = norm1_beta.cvector();
    layer.mlp_gamma = norm2_gamma.cvector();
    layer.mlp_beta = norm2_beta.cvector();
    layer.qkv = qkv.cmatrix(of.qkv_columns(), of.hidden);
    layer.projection = projection.cmatrix(of.hidden, of.q_columns());
    layer.fc1 = fc1.cmatrix(of.ffn, of.hidden);
    layer.fc2 = fc2.cmatrix(of.hidden, of.ffn);
    layer.qkv_bias = qkv_bias.cvector();
    layer.projection_bias = projection_bias.cvector();
    layer.fc1_bias = fc1_bias.cvector();
    layer.fc2_bias = fc2_bias.cvector();
    layer.k = k.matrix(of.cached(), of.kv_columns());
    layer.v = v.matrix(of.cached(), of.kv_columns());
    return layer;
  }

  test::Array<T> norm1_gamma, norm1_beta, qkv, qkv_bias, projection, projection_bias,
      norm2_gamma, norm2_beta, fc1, fc1_bias, fc2, fc2_bias, k, v;
};

inline test::Array<std::int32_t> on_device(const Numbers& numbers) {
  return test::Array<std::int32_t>(Values(numbers.begin(), numbers.end()));
}

template <class T>
struct Problem {
  explicit Problem(const Shape& shape, double offset = 0)
      : of(shape),
        places(on_device(of.places)),
        lengths(on_device(of.lengths)),
        x(test::uniform(of.rows() * of.hidden, 1, offset - 2, offset + 2)),
        y(of.rows() * of.hidden, -7.0) {
    for (index_t i = 0; i < of.layers; ++i) layers.emplace_back(of, 100 * (1 + i));
  }

  CachedTexts texts() const {
    return {.count = of.rows(),
            .capacity = of.capacity,
            .places = places.cvector(),
            .lengths = lengths.cvector(),
            .longest = of.capacity};
  }
  std::vector<DecodeLayer<T>> views() const {
    std::vector<DecodeLayer<T>> views;
    for (const Layer<T>& layer : layers) views.push_back(layer.views(of));
    return views;
  }
  // What is left of y and of the caches.
  Values values() const {
    Values all = y.values();
    for (const Layer<T>& layer : layers) {
      for (const auto* part : {&layer.k, &layer.v}) {
        const Values of_part = part->values();
        all.insert(all.end(), of_part.begin(), of_part.end());
      }
    }
    return all;
  }

  Shape of;
  test::Array<std::int32_t> places, lengths;
  test::Array<T> x, y;
  std::vector<Layer<T>> layers;
};

template <class T>
DecodeInput<T> norm_input(View2<const T> x, View1<const T> gamma, View1<const T> beta) {
  DecodeInput<T> input;
  input.rows = x;
  input.gamma = gamma;
  input.beta = beta;
  input.epsilon = kEpsilon;
  return input;
}

// Arrays that a layer leaves on its way.
template <class T>
struct OnTheWay {
  explicit OnTheWay(const Problem<T>& problem)
      : q(problem.of.rows() * problem.of.q_columns()),
        middle(problem.of.rows() * problem.of.hidden),
        inner(problem.of.rows() * problem.of.ffn),
        tiles(decode_attention_scratch_elements(problem.texts(),
                                                problem.views().front().heads),
              NAN) {}
  test::Array<T> q, middle, inner;
  test::Array<Accumulator<T>> tiles;
};

template <class T>
void launch_layer(const Exec& exec, const Problem<T>& problem,
                  const DecodeLayer<T>& layer, const OnTheWay<T>& arrays,
                  View2<const T> x, View2<T> y) {
  const Shape& of = problem.of;
  const index_t m = of.rows();
  const CachedTexts texts = problem.texts();
  const View2<T> q = arrays.q.matrix(m, of.q_columns());
  const View2<T> middle = arrays.middle.matrix(m, of.hidden);
  const View2<T> inner = arrays.inner.matrix(m, of.ffn);
  DecodeOutput<T> qkv;
  qkv.y = q;
  qkv.bias = layer.qkv_bias;
  qkv.k = layer.k;
  qkv.v = layer.v;
  qkv.texts = texts;
  decode_linear<T>(exec, norm_input<T>(x, layer.attention_gamma, layer.attention_beta),
                   WeightOperand<T>(layer.qkv), qkv);
  decode_attention_tiles<T>(exec, texts, layer.heads, q, View2<const T>(layer.k),
                            View2<const T>(layer.v), arrays.tiles.vector());
  DecodeInput<T> attended;
  attended.tiles = arrays.tiles.cvector();
  attended.texts = texts;
  attended.heads = layer.heads;
  DecodeOutput<T> projected;
  projected.y = middle;
  projected.bias = layer.projection_bias;
  projected.residual = x;
  decode_linear<T>(exec, attended, WeightOperand<T>(layer.projection), projected);
  DecodeOutput<T> activation;
  activation.y = inner;
  activation.bias = layer.fc1_bias;
  activation.activation = Activation::gelu_tanh;
  decode_linear<T>(exec,
                   norm_input<T>(View2<const T>(middle), layer.mlp_gamma, layer.mlp_beta),
                   WeightOperand<T>(layer.fc1), activation);
  DecodeInput<T> activated;
  activated.rows = View2<const T>(inner);
  DecodeOutput<T> output;
  output.y = y;
  output.bias = layer.fc2_bias;
  output.residual = View2<const T>(middle);
  decode_linear<T>(exec, activated, WeightOperand<T>(layer.fc2), output);
}

// What the launches of decode_linear.hpp and decode_attention.hpp leave.
template <class T>
Values by_launches(const Shape& shape, double offset = 0) {
  const Problem<T> problem(shape, offset);
  const OnTheWay<T> arrays(problem);
  const Exec exec;
  test::Array<T> x(problem.x.values());
  for (const DecodeLayer<T>& layer : problem.views()) {
    launch_layer<T>(exec, problem, layer, arrays, x.cmatrix(shape.rows(), shape.hidden),
                    problem.y.matrix(shape.rows(), shape.hidden));
    exec.fence("test");
    x.set(problem.y.values());
  }
  return problem.values();
}

// Sums in another order, which are rounded to another number here and there.
template <class T>
void expect_close(const Values& got, const Values& want, const Shape& of) {
  ASSERT_EQ(got.size(), want.size());
  double most = 0, error = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(std::isfinite(got[i]));
    most = std::max(most, std::abs(want[i]));
    error = std::max(error, std::abs(got[i] - want[i]));
  }
  EXPECT_LE(error, 4 * test::rounding<T>() * most)
      << of.hidden << ", " << of.head_dim << ", " << of.rows();
}

}  // namespace trireme::kernels::decode_layers_test

#endif  // TRIREME_TESTS_UNIT_KERNELS_DECODE_LAYERS_PROBLEM_HPP_
