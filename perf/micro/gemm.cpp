// perf/micro/gemm.cpp — the matrix products of one GPT-2 124M layer and of its head.
#include "kernels/gemm.hpp"
#include "bounds.hpp"

namespace trireme::perf {
namespace {

constexpr index_t kRows = 1024;

// Arguments: columns in, columns out of a linear layer on 1024 rows.
void linear_forward(benchmark::State& state) {
  const index_t in = state.range(0), out = state.range(1);
  const auto x = normals<float>("x", kRows, in), w = normals<float>("w", out, in),
             y = normals<float>("y", kRows, out);
  run_compute_bound(state, 2.0 * kRows * in * out, [&](const Exec& exec) {
    kernels::linear_forward<float>(exec, matrix(x, kRows, in),
                                   kernels::WeightOperand<float>(matrix(w, out, in)),
                                   matrix(y, kRows, out));
  });
}

void linear_backward_input(benchmark::State& state) {
  const index_t in = state.range(0), out = state.range(1);
  const auto d_x = normals<float>("x", kRows, in), w = normals<float>("w", out, in),
             d_y = normals<float>("y", kRows, out);
  run_compute_bound(state, 2.0 * kRows * in * out, [&](const Exec& exec) {
    kernels::linear_backward_input<float>(
        exec, matrix(d_y, kRows, out), kernels::WeightOperand<float>(matrix(w, out, in)),
        matrix(d_x, kRows, in));
  });
}

void linear_backward_weight(benchmark::State& state) {
  const index_t in = state.range(0), out = state.range(1);
  const auto x = normals<float>("x", kRows, in), d_w = normals<float>("w", out, in),
             d_y = normals<float>("y", kRows, out);
  run_compute_bound(state, 2.0 * kRows * in * out, [&](const Exec& exec) {
    kernels::linear_backward_weight<float>(exec, matrix(d_y, kRows, out),
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
      ->Args({768, 50257})
      ->UseRealTime();
}
BENCHMARK(linear_forward)->Apply(shapes);
BENCHMARK(linear_backward_input)->Apply(shapes);
BENCHMARK(linear_backward_weight)->Apply(shapes);

}  // namespace
}  // namespace trireme::perf
