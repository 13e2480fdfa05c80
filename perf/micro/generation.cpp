// perf/micro/generation.cpp — what a step of generation does: products of few rows with
// the weights of GPT-2 124M, and attention over a cache.
//
// Several copies of a matrix are multiplied in turn, as layers follow each other, so that
// the weights come from memory and not from a cache.
#include <vector>

#include "bounds.hpp"
#include "kernels/decode_attention.hpp"
#include "kernels/decode_layers.hpp"
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

// All layers of a model in one launch, where weights come by quads or by boxes.
// Arguments: layers, hidden size, heads, texts, positions of each, and whether by boxes.
template <class T>
void decode_layers(benchmark::State& state) {
  constexpr index_t kCapacity = 1024;
  const index_t count = state.range(0), h = state.range(1), heads = state.range(2);
  const index_t rows = state.range(3), ffn = 4 * h, cached = rows * kCapacity;
  const auto copies =
      state.range(5) != 0 ? kernels::WeightCopies::boxes : kernels::WeightCopies::quads;
  const DeviceArray<T> weights("weights", count * 12 * h * h),
      caches("caches", count * 2 * cached * h), vectors("vectors", ffn), x("x", rows * h),
      y("y", rows * h);
  const auto of_vectors = [&](index_t n) {
    return View1<const T>(vectors.data(), extent(n));
  };
  const T* weight = weights.data();
  const auto next_weights = [&](index_t out, index_t in) {
    const View2<const T> view(weight, extent(out), extent(in));
    weight += out * in;
    return view;
  };
  T* cache = caches.data();
  const auto next_cache = [&] {
    const View2<T> view(cache, extent(cached), extent(h));
    cache += cached * h;
    return view;
  };
  std::vector<kernels::DecodeLayer<T>> layers(extent(count));
  for (kernels::DecodeLayer<T>& layer : layers) {
    layer.heads = {heads, heads, h / heads, 0.125};
    layer.epsilon = 1e-5;
    layer.attention_gamma = layer.attention_beta = layer.mlp_gamma = layer.mlp_beta =
        layer.projection_bias = layer.fc2_bias = of_vectors(h);
    layer.qkv_bias = of_vectors(3 * h);
    layer.fc1_bias = of_vectors(ffn);
    layer.qkv = next_weights(3 * h, h);
    layer.projection = next_weights(h, h);
    layer.fc1 = next_weights(ffn, h);
    layer.fc2 = next_weights(h, ffn);
    layer.k = next_cache();
    layer.v = next_cache();
  }
  if (!kernels::DecodeLayers<T>::has(Exec(), layers, kCapacity, copies)) {
    state.SkipWithError("this device has no such launch");
    return;
  }
  const kernels::DecodeLayers<T> launch(Exec(), layers, kCapacity, {}, copies);
  const kernels::CachedTexts texts{
      .count = rows, .capacity = kCapacity, .longest = state.range(4)};
  run_read_bound(state, static_cast<double>(weights.size() * sizeof(T)),
                 [&](const Exec& exec) {
                   launch.run(exec, texts, matrix(x, rows, h), matrix(y, rows, h));
                 });
}

// One way and the other take turns.
void model_shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"layers", "hidden", "heads", "texts", "positions", "boxes"})
      ->UseRealTime();
  for (const index_t texts : {1, 4}) {
    for (const index_t positions : {128, 768}) {
      for (const index_t boxes : {0, 1}) {
        benchmark->Args({12, 768, 12, texts, positions, boxes});
      }
      for (const index_t boxes : {0, 1}) {
        benchmark->Args({40, 1536, 16, texts, positions, boxes});
      }
    }
  }
}
// A host has each layer's launches by themselves.
[[maybe_unused]] const auto* const of_layers =
    kHostExecution
        ? nullptr
        : benchmark::RegisterBenchmark("decode_layers<bf16>", decode_layers<bf16>)
              -> Apply(model_shapes);

}  // namespace
}  // namespace trireme::perf
