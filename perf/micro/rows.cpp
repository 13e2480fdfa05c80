// perf/micro/rows.cpp — the kernels that memory bounds, at the shapes of GPT-2 124M with
// a micro-batch of 4 x 256 tokens (or 1 x 1024).
#include "bounds.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/gelu.hpp"
#include "kernels/initialize.hpp"
#include "kernels/layer_norm.hpp"
#include "kernels/reductions.hpp"

namespace trireme::perf {
namespace {

constexpr index_t kRows = 1024;
constexpr index_t kHidden = 768;
constexpr index_t kFfn = 3072;
constexpr index_t kVocabulary = 50257;
constexpr double kFloat = sizeof(float);

void layer_norm_forward(benchmark::State& state) {
  const auto x = normals<float>("x", kRows, kHidden),
             gamma = normals<float>("g", 1, kHidden),
             y = normals<float>("y", kRows, kHidden),
             rows = normals<float>("r", 2, kRows);
  run_memory_bound(state, 2 * kFloat * kRows * kHidden, [&](const Exec& exec) {
    kernels::layer_norm_forward<float>(exec, matrix(x, kRows, kHidden), vector(gamma),
                                       vector(gamma), 1e-5, matrix(y, kRows, kHidden),
                                       View1<float>(rows.data(), kRows),
                                       View1<float>(rows.data() + kRows, kRows));
  });
}
BENCHMARK(layer_norm_forward)->UseRealTime();

void layer_norm_backward(benchmark::State& state) {
  const auto x = normals<float>("x", kRows, kHidden),
             gamma = normals<float>("g", 3, kHidden),
             d_y = normals<float>("dy", kRows, kHidden),
             d_x = normals<float>("dx", kRows, kHidden),
             rows = normals<float>("r", 2, kRows),
             scratch =
                 normals<float>("s", 1, kernels::layer_norm_scratch_elements(kHidden));
  const View1<const float> mean(rows.data(), kRows), rstd(rows.data() + kRows, kRows);
  // d_y and x twice (input and weight gradients), by-pass gradient, d_x.
  run_memory_bound(state, 6 * kFloat * kRows * kHidden, [&](const Exec& exec) {
    kernels::layer_norm_backward_input<float>(
        exec, matrix(d_y, kRows, kHidden), matrix(x, kRows, kHidden),
        View1<const float>(gamma.data(), kHidden), mean, rstd,
        matrix(d_x, kRows, kHidden), matrix(d_x, kRows, kHidden));
    kernels::layer_norm_backward_weight<float>(
        exec, matrix(d_y, kRows, kHidden), matrix(x, kRows, kHidden), mean, rstd,
        vector(scratch), kernels::Accumulate::no,
        View1<float>(gamma.data() + kHidden, kHidden),
        View1<float>(gamma.data() + 2 * kHidden, kHidden));
  });
}
BENCHMARK(layer_norm_backward)->UseRealTime();

void bias_gelu_forward(benchmark::State& state) {
  const auto x = normals<float>("x", kRows, kFfn), bias = normals<float>("b", 1, kFfn),
             y = normals<float>("y", kRows, kFfn);
  run_memory_bound(state, 2 * kFloat * kRows * kFfn, [&](const Exec& exec) {
    kernels::bias_gelu_forward<float>(exec, matrix(x, kRows, kFfn), vector(bias),
                                      matrix(y, kRows, kFfn));
  });
}
BENCHMARK(bias_gelu_forward)->UseRealTime();

void bias_gelu_backward(benchmark::State& state) {
  const auto x = normals<float>("x", kRows, kFfn), bias = normals<float>("b", 1, kFfn),
             d_y = normals<float>("dy", kRows, kFfn),
             d_x = normals<float>("dx", kRows, kFfn);
  run_memory_bound(state, 3 * kFloat * kRows * kFfn, [&](const Exec& exec) {
    kernels::bias_gelu_backward<float>(exec, matrix(d_y, kRows, kFfn),
                                       matrix(x, kRows, kFfn), vector(bias),
                                       matrix(d_x, kRows, kFfn));
  });
}
BENCHMARK(bias_gelu_backward)->UseRealTime();

void sum_rows(benchmark::State& state) {
  const auto x = normals<float>("x", kRows, kFfn), sums = normals<float>("b", 1, kFfn),
             scratch = normals<float>("s", 1, kernels::sum_rows_scratch_elements(kFfn));
  run_memory_bound(state, kFloat * kRows * kFfn, [&](const Exec& exec) {
    kernels::sum_rows<float>(exec, matrix(x, kRows, kFfn), vector(scratch),
                             kernels::Accumulate::no, vector(sums));
  });
}
BENCHMARK(sum_rows)->UseRealTime();

// Argument: percent dropped.
void bias_dropout_add_forward(benchmark::State& state) {
  const auto x = normals<float>("x", kRows, kHidden),
             bias = normals<float>("b", 1, kHidden),
             r = normals<float>("r", kRows, kHidden),
             y = normals<float>("y", kRows, kHidden);
  const Kokkos::View<kernels::StepState, DeviceMemory> step("step");
  const kernels::DropoutDesc desc{
      .probability = static_cast<double>(state.range(0)) / 100, .batch = 4};
  run_memory_bound(state, 3 * kFloat * kRows * kHidden, [&](const Exec& exec) {
    kernels::bias_dropout_add_forward<float>(
        exec, desc, kernels::StepStateView(step.data()), matrix(x, kRows, kHidden),
        vector(bias), matrix(r, kRows, kHidden), matrix(y, kRows, kHidden));
  });
}
BENCHMARK(bias_dropout_add_forward)->Arg(0)->Arg(10)->UseRealTime();

DeviceArray<std::int32_t> token_ids(index_t rows) {
  DeviceArray<std::int32_t> ids("ids", rows);
  auto host = Kokkos::create_mirror_view(ids);
  const random::Generator generator{.seed = 3};
  for (index_t i = 0; i < rows; ++i) {  // skewed, as words are
    const double u = generator.block(i).word[0] / 4294967296.0;
    host(i) = static_cast<std::int32_t>(kVocabulary * u * u * u * u);
  }
  Kokkos::deep_copy(ids, host);
  return ids;
}

void embedding_forward(benchmark::State& state) {
  const auto table = normals<float>("t", kVocabulary, kHidden),
             y = normals<float>("y", kRows, kHidden);
  const auto ids = token_ids(kRows);
  run_memory_bound(state, 2 * kFloat * kRows * kHidden, [&](const Exec& exec) {
    kernels::embedding_forward<float>(
        exec, vector(ids), matrix(table, kVocabulary, kHidden), 0,
        kernels::Write::overwrite, matrix(y, kRows, kHidden));
  });
}
BENCHMARK(embedding_forward)->UseRealTime();

void embedding_backward(benchmark::State& state) {
  const auto d_table = normals<float>("t", kVocabulary, kHidden),
             d_y = normals<float>("y", kRows, kHidden);
  const auto ids = token_ids(kRows);
  const DeviceArray<std::int32_t> scratch("s", 2 * kRows);
  run_memory_bound(state, 3 * kFloat * kRows * kHidden, [&](const Exec& exec) {
    kernels::embedding_backward<float>(exec, vector(ids), matrix(d_y, kRows, kHidden), 0,
                                       vector(scratch), kernels::Accumulate::yes,
                                       matrix(d_table, kVocabulary, kHidden));
  });
}
BENCHMARK(embedding_backward)->UseRealTime();

void cross_entropy_forward(benchmark::State& state) {
  const auto logits = normals<float>("l", kRows, kVocabulary),
             rows = normals<float>("r", 3, kRows);
  const auto labels = token_ids(kRows);
  run_memory_bound(state, kFloat * kRows * kVocabulary, [&](const Exec& exec) {
    kernels::cross_entropy_row_max_and_sums<float>(
        exec, {0, kVocabulary}, matrix(logits, kRows, kVocabulary), vector(labels),
        View1<float>(rows.data(), kRows), View2<float>(rows.data() + kRows, kRows, 2));
  });
}
BENCHMARK(cross_entropy_forward)->UseRealTime();

void cross_entropy_backward(benchmark::State& state) {
  const auto logits = normals<float>("l", kRows, kVocabulary),
             rows = normals<float>("r", 3, kRows);
  const auto labels = token_ids(kRows);
  const DeviceArray<float> mask("mask", kRows);
  Kokkos::deep_copy(mask, 1.0f);
  Kokkos::deep_copy(rows, 1.0f);
  const Kokkos::View<kernels::StepState, DeviceMemory> step("step");
  run_memory_bound(state, 2 * kFloat * kRows * kVocabulary, [&](const Exec& exec) {
    kernels::cross_entropy_backward<float>(
        exec, {0, kVocabulary}, kernels::StepStateView(step.data()), {}, vector(labels),
        vector(mask), View1<float>(rows.data(), kRows),
        View2<const float>(rows.data() + kRows, kRows, 2),
        matrix(logits, kRows, kVocabulary));
  });
}
BENCHMARK(cross_entropy_backward)->UseRealTime();

void fill_normal(benchmark::State& state) {
  const DeviceArray<float> values("v", 4096 * 4096);
  run_memory_bound(state, kFloat * 4096 * 4096, [&](const Exec& exec) {
    kernels::fill_normal<float>(exec, random::Generator{}, 0.02,
                                {0, 0, 4096, 0, 0, 4096, 4096, 4096}, vector(values));
  });
}
BENCHMARK(fill_normal)->UseRealTime();

}  // namespace
}  // namespace trireme::perf
