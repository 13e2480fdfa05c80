// perf/micro/optimizer.cpp — what touches every parameter once per step, on 32 million.
#include <type_traits>

#include "bounds.hpp"
#include "kernels/adamw.hpp"
#include "kernels/reductions.hpp"

namespace trireme::perf {
namespace {

constexpr index_t kCount = index_t{1} << 25;

DeviceArray<kernels::AdamWChunk> all_chunks() {
  const index_t count = kCount / kernels::kAdamWChunk;
  const DeviceArray<kernels::AdamWChunk> chunks("chunks", count);
  auto host = Kokkos::create_mirror_view(chunks);
  for (index_t i = 0; i < count; ++i) {
    const index_t at = i * kernels::kAdamWChunk;
    host(i) = {.weight = at,
               .gradient = at,
               .moment = at,
               .count = static_cast<std::int32_t>(kernels::kAdamWChunk),
               .decays = 1,
               .compute = at};
  }
  Kokkos::deep_copy(chunks, host);
  return chunks;
}

// T: what passes compute in. Where it is narrower, its copy is written in the same pass.
template <class T>
void adamw(benchmark::State& state) {
  constexpr bool kHasCopy = !std::is_same_v<T, float>;
  const auto w = normals<float>("w", 8192, kCount / 8192),
             g = normals<float>("g", 8192, kCount / 8192);
  const DeviceArray<float> m("m", kCount), v("v", kCount);
  const DeviceArray<T> copy("copy", kHasCopy ? kCount : 0);
  const auto chunks = all_chunks();
  const Kokkos::View<kernels::StepState, DeviceMemory> step("step");
  kernels::StepState values;
  values.learning_rate = 1e-4;
  Kokkos::deep_copy(step, values);
  // Four arrays read, three written.
  const double bytes = 7.0 * sizeof(float) + (kHasCopy ? sizeof(T) : 0);
  run_memory_bound(state, bytes * kCount, [&](const Exec& exec) {
    kernels::adamw<T>(exec, {.weight_decay = 0.1}, kernels::StepStateView(step.data()),
                      vector(chunks), kCount, vector(g), vector(w), vector(m), vector(v),
                      vector(copy));
  });
}
BENCHMARK(adamw<float>)->UseRealTime();
BENCHMARK(adamw<bf16>)->UseRealTime();
BENCHMARK(adamw<fp16>)->UseRealTime();

void square_sum(benchmark::State& state) {
  const auto g = normals<float>("g", 8192, kCount / 8192);
  const auto chunks = all_chunks();
  const DeviceArray<double> partial("p", 2 * chunks.extent(0)), totals("t", 2);
  run_read_bound(state, 1.0 * sizeof(float) * kCount, [&](const Exec& exec) {
    kernels::square_sum_of_chunks<float>(exec, vector(chunks), kCount, vector(g),
                                         vector(partial), vector(totals));
  });
}
BENCHMARK(square_sum)->UseRealTime();

void count_non_finite(benchmark::State& state) {
  const auto g = normals<float>("g", 8192, kCount / 8192);
  const DeviceArray<std::int64_t> count("c", 1);
  run_read_bound(state, 1.0 * sizeof(float) * kCount, [&](const Exec& exec) {
    kernels::count_non_finite<float>(exec, vector(g), View0<std::int64_t>(count.data()));
  });
}
BENCHMARK(count_non_finite)->UseRealTime();

}  // namespace
}  // namespace trireme::perf
