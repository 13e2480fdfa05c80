// perf/micro/generation.cpp — what a step of generation does: products of few rows with
// the weights of GPT-2 124M, and attention over a cache.
//
// Several copies of a matrix are multiplied in turn, as layers follow each other, so that
// the weights come from memory and not from a cache.
#include "bounds.hpp"
#include "kernels/decode_attention.hpp"
#include "kernels/decode_linear.hpp"
#include "kernels/gemm.hpp"

namespace trireme::perf {
namespace {

constexpr index_t kMatrixBytes = index_t{1} << 29;  // of all copies

// Arguments: rows of x, in, out.
template <class T>
void few_rows(benchmark::State& state) {
  const index_t rows = state.range(0), in = state.range(1), out = state.range(2);
  const auto size = static_cast<index_t>(sizeof(T));
  const index_t copies = kMatrixBytes / (in * out * size);
  // Of zeros, whose products take as long as others.
  const DeviceArray<T> x("x", rows * in), w("w", copies * out * in), y("y", rows * out);
  run_read_bound(state, static_cast<double>(copies * out * in * size),
                 [&](const Exec& exec) {
                   for (index_t copy = 0; copy < copies; ++copy) {
                     const View2<const T> weight(w.data() + copy * out * in, extent(out),
                                                 extent(in));
                     kernels::linear_forward<T>(exec, matrix(x, rows, in),
                                                kernels::WeightOperand<T>(weight),
                                                matrix(y, rows, out));
                   }
                 });
}

void few_rows_shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"rows", "in", "out"})->UseRealTime();
  for (const index_t rows : {1, 8, 16}) {
    benchmark->Args({rows, 768, 768})
        ->Args({rows, 768, 3072})
        ->Args({rows, 3072, 768})
        ->Args({rows, 768, 50304});
  }
}
BENCHMARK(few_rows<float>)->Apply(few_rows_shapes);
BENCHMARK(few_rows<bf16>)->Apply(few_rows_shapes);
BENCHMARK(few_rows<fp16>)->Apply(few_rows_shapes);

// The products of a step as a GPU does them. Arguments: rows, in, out, and whether x is
// the norm of rows.
template <class T>
void decode_linear(benchmark::State& state) {
  const index_t rows = state.range(0), in = state.range(1), out = state.range(2);
  const auto size = static_cast<index_t>(sizeof(T));
  const index_t copies = kMatrixBytes / (in * out * size);
  const DeviceArray<T> x("x", rows * in), w("w", copies * out * in), y("y", rows * out),
      gamma("gamma", in), beta("beta", in), bias("bias", out);
  kernels::DecodeInput<T> input;
  input.rows = matrix(x, rows, in);
  if (state.range(3) != 0) {
    input.gamma = vector(gamma);
    input.beta = vector(beta);
    input.epsilon = 1e-5;
  }
  kernels::DecodeOutput<T> output;
  output.y = matrix(y, rows, out);
  output.bias = vector(bias);
  run_read_bound(state, static_cast<double>(copies * out * in * size),
                 [&](const Exec& exec) {
                   for (index_t copy = 0; copy < copies; ++copy) {
                     const View2<const T> weight(w.data() + copy * out * in, extent(out),
                                                 extent(in));
                     kernels::decode_linear<T>(exec, input,
                                               kernels::WeightOperand<T>(weight), output);
                   }
                 });
}

void decode_linear_shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"rows", "in", "out", "norm"})->UseRealTime();
  for (const index_t rows : {1, 4, 16}) {
    benchmark->Args({rows, 768, 2304, 1})
        ->Args({rows, 768, 768, 0})
        ->Args({rows, 768, 3072, 1})
        ->Args({rows, 3072, 768, 0})
        ->Args({rows, 1536, 6144, 1})
        ->Args({rows, 6144, 1536, 0})
        ->Args({rows, 768, 50304, 1});
  }
}
BENCHMARK(decode_linear<bf16>)->Apply(decode_linear_shapes);

// Arguments: texts, positions of each. The caches of twelve layers are read in turn.
template <class T>
void decode_attention(benchmark::State& state) {
  constexpr index_t kLayers = 12, kCapacity = 1024, kHidden = 768;
  const kernels::CachedHeads heads{12, 12, 64, 0.125};
  const kernels::CachedTexts texts{
      .count = state.range(0), .capacity = kCapacity, .longest = state.range(1)};
  const index_t rows = texts.count * kCapacity;
  const DeviceArray<T> k("k", kLayers * rows * kHidden), v("v", kLayers * rows * kHidden),
      qkv("qkv", texts.count * 3 * kHidden), o("o", texts.count * kHidden);
  const DeviceArray<Accumulator<T>> scratch(
      "scratch", kernels::decode_attention_scratch_elements(texts, heads));
  const auto bytes = static_cast<double>(kLayers * texts.count * texts.longest * 2 *
                                         kHidden * static_cast<index_t>(sizeof(T)));
  run_read_bound(state, bytes, [&](const Exec& exec) {
    for (index_t layer = 0; layer < kLayers; ++layer) {
      const auto of_layer = [&](const DeviceArray<T>& all) {
        return View2<const T>(all.data() + layer * rows * kHidden, extent(rows),
                              extent(kHidden));
      };
      kernels::decode_attention<T>(
          exec, texts, heads, matrix(qkv, texts.count, 3 * kHidden), of_layer(k),
          of_layer(v), vector(scratch), matrix(o, texts.count, kHidden));
    }
  });
}

void decode_shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"texts", "positions"})
      ->Args({1, 128})
      ->Args({1, 1000})
      ->Args({8, 128})
      ->Args({8, 1000})
      ->UseRealTime();
}
BENCHMARK(decode_attention<float>)->Apply(decode_shapes);
BENCHMARK(decode_attention<bf16>)->Apply(decode_shapes);

}  // namespace
}  // namespace trireme::perf
