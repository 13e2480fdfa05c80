// perf/micro/cross_entropy.cpp — the loss of GPT-2's head: the kernel that does all in
// one pass, in each type, over 1024 rows and over more than any cache holds; and the
// head's products with it, so many rows at a time (nn::kLogitBytes is chosen by that).
#include <algorithm>

#include "bounds.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/gemm.hpp"
#include "kernels/narrow_gemm.hpp"

namespace trireme::perf {
namespace {

constexpr index_t kLossRows = 1024, kManyLossRows = 4096, kLossHidden = 768;
constexpr index_t kWords = 50257, kPaddedWords = 50304;

// What belongs to the rows: labels, weights, statistics and the step.
template <class T>
struct LossRows {
  using A = Accumulator<T>;
  DeviceArray<std::int32_t> labels;
  DeviceArray<float> mask;
  DeviceArray<A> row_max, sums;
  Kokkos::View<kernels::StepState, DeviceMemory> step{"step"};

  explicit LossRows(index_t count)
      : labels("labels", count),
        mask("mask", count),
        row_max("maximum", count),
        sums("sums", 2 * count) {
    const auto host = Kokkos::create_mirror_view(labels);
    for (index_t i = 0; i < count; ++i) {
      host(extent(i)) = static_cast<std::int32_t>(i * 7919 % kWords);
    }
    Kokkos::deep_copy(labels, host);
    Kokkos::deep_copy(mask, 1.0f);
    Kokkos::deep_copy(step, kernels::StepState{});
  }
  // Logits of the rows from `begin` on become their gradient.
  void in_place(const Exec& exec, index_t begin, View2<T> logits) const {
    const std::size_t rows = logits.extent(0);
    kernels::cross_entropy_in_place<T>(
        exec, {0, kWords}, kernels::StepStateView(step.data()), {},
        View1<const std::int32_t>(labels.data() + begin, rows),
        View1<const float>(mask.data() + begin, rows), logits,
        View1<A>(row_max.data() + begin, rows),
        View2<A>(sums.data() + 2 * begin, rows, 2));
  }
};

template <class T>
void cross_entropy_in_place(benchmark::State& state) {
  const index_t count = state.range(0);
  const LossRows<T> rows(count);
  const auto logits = normals<T>("logits", count, kPaddedWords);
  const double bytes = 2.0 * sizeof(T) * static_cast<double>(count * kPaddedWords);
  run_memory_bound(state, bytes, [&](const Exec& exec) {
    rows.in_place(exec, 0, matrix(logits, count, kPaddedWords));
  });
}
BENCHMARK(cross_entropy_in_place<float>)->Arg(kLossRows)->UseRealTime();
BENCHMARK(cross_entropy_in_place<bf16>)
    ->Arg(kLossRows)
    ->Arg(kManyLossRows)
    ->UseRealTime();
BENCHMARK(cross_entropy_in_place<fp16>)->Arg(kLossRows)->UseRealTime();

// Argument: rows at a time. `products`: how those of bf16 are computed.
template <class T>
void head_in_parts(benchmark::State& state, kernels::NarrowProducts products) {
  using kernels::Accumulate;
  const index_t most = state.range(0);
  const LossRows<T> rows(kLossRows);
  const auto normed = normals<T>("x", kLossRows, kLossHidden),
             d_normed = normals<T>("dx", kLossRows, kLossHidden),
             table = normals<T>("table", kPaddedWords, kLossHidden, 0.02),
             logits = normals<T>("logits", most, kPaddedWords);
  const auto d_table = normals<Accumulator<T>>("gradient", kPaddedWords, kLossHidden);
  const kernels::WeightOperand<T> words(matrix(table, kPaddedWords, kLossHidden));
  const double flops = 6.0 * kLossRows * kPaddedWords * kLossHidden;
  // Widened products are float's.
  using Products = std::conditional_t<std::is_same_v<T, bf16>, bf16, float>;
  run_compute_bound<Products>(state, flops, [&](const Exec& exec) {
    if (sizeof(T) == 2) kernels::set_narrow_products(exec, dtype_of<T>, products);
    for (index_t begin = 0; begin < kLossRows; begin += most) {
      const std::size_t count = extent(std::min(most, kLossRows - begin));
      const View2<T> part(logits.data(), count, kPaddedWords);
      const View2<T> x(normed.data() + begin * kLossHidden, count, kLossHidden);
      const View2<T> d_x(d_normed.data() + begin * kLossHidden, count, kLossHidden);
      kernels::linear_forward<T>(exec, x, words, part);
      rows.in_place(exec, begin, part);
      kernels::linear_backward_input<T>(exec, part, words, d_x);
      kernels::linear_backward_weight<T>(exec, part, x, Accumulate::yes,
                                         matrix(d_table, kPaddedWords, kLossHidden));
    }
  });
}
void head_fp32(benchmark::State& state) {
  head_in_parts<float>(state, kernels::NarrowProducts::native);
}
BENCHMARK(head_fp32)->Arg(128)->Arg(256)->Arg(512)->Arg(1024)->UseRealTime();
void head_bf16_widened(benchmark::State& state) {
  head_in_parts<bf16>(state, kernels::NarrowProducts::widened);
}
BENCHMARK(head_bf16_widened)->Arg(256)->Arg(512)->Arg(1024)->UseRealTime();
void head_bf16_native(benchmark::State& state) {
  head_in_parts<bf16>(state, kernels::NarrowProducts::native);
}
BENCHMARK(head_bf16_native)->Arg(256)->Arg(512)->Arg(1024)->UseRealTime();

}  // namespace
}  // namespace trireme::perf
