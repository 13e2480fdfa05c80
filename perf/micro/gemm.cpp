// perf/micro/gemm.cpp — the matrix products of one GPT-2 124M layer and of its head, in
// float, bf16 (beside the peak of its own) and fp16, which hosts compute in float.
#include "kernels/gemm.hpp"
#include "bounds.hpp"

namespace trireme::perf {
namespace {

constexpr index_t kRows = 1024;

// A benchmark's arguments: columns in, columns out of a linear layer on 1024 rows.
struct Layer {
  index_t in, out;
  double flops;
  explicit Layer(const benchmark::State& state)
      : in(state.range(0)),
        out(state.range(1)),
        flops(2.0 * kRows * static_cast<double>(in * out)) {}
};

template <class T>
void forward_with(benchmark::State& state, const kernels::Epilogue<T>& epilogue) {
  const auto [in, out, flops] = Layer(state);
  const auto x = normals<T>("x", kRows, in), w = normals<T>("w", out, in),
             y = normals<T>("y", kRows, out);
  run_compute_bound<T>(state, flops, [&](const Exec& exec) {
    kernels::linear_forward<T>(exec, matrix(x, kRows, in),
                               kernels::WeightOperand<T>(matrix(w, out, in)), epilogue,
                               matrix(y, kRows, out));
  });
}

template <class T>
void linear_forward(benchmark::State& state) {
  forward_with<T>(state, {});
}

template <class T>
void linear_forward_bias_gelu(benchmark::State& state) {
  const index_t out = Layer(state).out;
  const auto z = normals<T>("z", kRows, out), bias = normals<T>("b", 1, out);
  forward_with<T>(state, {.bias = vector(bias),
                          .activation = kernels::Activation::gelu_tanh,
                          .pre_activation = matrix(z, kRows, out)});
}

// Of T5: no bias, and the activation alone is kept.
template <class T>
void linear_forward_relu(benchmark::State& state) {
  forward_with<T>(state, {.activation = kernels::Activation::relu});
}

template <class T>
void linear_forward_residual(benchmark::State& state) {
  const index_t out = Layer(state).out;
  const auto residual = normals<T>("r", kRows, out);
  forward_with<T>(state, {.residual = matrix(residual, kRows, out)});
}

template <class T>
void linear_backward_input(benchmark::State& state) {
  const auto [in, out, flops] = Layer(state);
  const auto d_x = normals<T>("x", kRows, in), w = normals<T>("w", out, in),
             d_y = normals<T>("y", kRows, out);
  run_compute_bound<T>(state, flops, [&](const Exec& exec) {
    kernels::linear_backward_input<T>(exec, matrix(d_y, kRows, out),
                                      kernels::WeightOperand<T>(matrix(w, out, in)),
                                      matrix(d_x, kRows, in));
  });
}

template <class T>
void linear_backward_weight(benchmark::State& state) {
  const auto [in, out, flops] = Layer(state);
  const auto x = normals<T>("x", kRows, in), d_y = normals<T>("y", kRows, out);
  const auto d_w = normals<float>("w", out, in);
  run_compute_bound<T>(state, flops, [&](const Exec& exec) {
    kernels::linear_backward_weight<T>(exec, matrix(d_y, kRows, out),
                                       matrix(x, kRows, in), kernels::Accumulate::yes,
                                       matrix(d_w, out, in));
  });
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"in", "out"})
      ->Args({768, 2304})
      ->Args({768, 768})
      ->Args({768, 3072})
      ->Args({3072, 768})
      ->Args({768, 50304})
      ->UseRealTime();
}
BENCHMARK_TEMPLATE(linear_forward, float)->Apply(shapes);
BENCHMARK_TEMPLATE(linear_backward_input, float)->Apply(shapes);
BENCHMARK_TEMPLATE(linear_backward_weight, float)->Apply(shapes);
BENCHMARK_TEMPLATE(linear_forward, bf16)->Apply(shapes);
BENCHMARK_TEMPLATE(linear_backward_input, bf16)->Apply(shapes);
BENCHMARK_TEMPLATE(linear_backward_weight, bf16)->Apply(shapes);
BENCHMARK_TEMPLATE(linear_forward, fp16)->Apply(shapes);
BENCHMARK_TEMPLATE(linear_backward_input, fp16)->Apply(shapes);
BENCHMARK_TEMPLATE(linear_backward_weight, fp16)->Apply(shapes);
BENCHMARK_TEMPLATE(linear_forward_bias_gelu, float)->Args({768, 3072})->UseRealTime();
BENCHMARK_TEMPLATE(linear_forward_bias_gelu, bf16)->Args({768, 3072})->UseRealTime();
BENCHMARK_TEMPLATE(linear_forward_relu, float)->Args({512, 2048})->UseRealTime();
BENCHMARK_TEMPLATE(linear_forward_residual, float)->Args({2048, 512})->UseRealTime();
BENCHMARK_TEMPLATE(linear_forward_residual, float)->Args({3072, 768})->UseRealTime();

}  // namespace
}  // namespace trireme::perf
