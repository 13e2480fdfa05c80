// kernels/adamw.cpp — one AdamW update in one pass: four arrays read, three written.
// The formula is in adamw.hpp, its derivation in docs/math/adamw.md.
#include "kernels/adamw.hpp"

#include "kernels/impl/rows.hpp"

namespace trireme::kernels {

template <class T>
void square_sum_of_chunks(const Exec& exec, View1<const AdamWChunk> chunks,
                          index_t elements, View1<const T> gradient,
                          View1<double> partial, View0<double> total) {
  const auto count = static_cast<index_t>(chunks.extent(0));
  TRIREME_REQUIRE(static_cast<index_t>(partial.extent(0)) >= count,
                  "kernels::square_sum_of_chunks: room for {} partial sums of {}",
                  partial.extent(0), count);
  if (count == 0) return;
  const T* const gradient_data = gradient.data();
  const AdamWChunk* const chunk_data = chunks.data();
  double* const partial_data = partial.data();
  double* const total_data = total.data();
  const View1<const T> squared(gradient_data, extent(elements));
  launch_rows(
      exec,
      {"trireme::kernels::square_sum_of_chunks[chunks]",
       {.bytes = bytes_of(chunks, squared) + 8 * count}},
      count, KOKKOS_LAMBDA(const RowTeam& team, index_t index) {
        const AdamWChunk chunk = chunk_data[index];
        const T* const run = gradient_data + chunk.gradient;
        partial_data[index] = sum_columns<double>(
            team, chunk.in_norm != 0 ? chunk.count : 0, [=](index_t j) {
              const auto value = static_cast<double>(run[j]);
              return value * value;
            });
      });
  launch_rows(
      exec,
      {"trireme::kernels::square_sum_of_chunks[combine]",
       {.bytes = 8 * count + bytes_of(total, total)}},
      1, KOKKOS_LAMBDA(const RowTeam& team, index_t) {
        const double sum =
            sum_columns<double>(team, count, [=](index_t j) { return partial_data[j]; });
        for_each_column(team, 1, [=](index_t j) { total_data[j] += sum; });
      });
}

template <class T>
void adamw(const Exec& exec, const AdamWDesc& desc, StepStateView step,
           View1<const AdamWChunk> chunks, index_t elements, View1<const T> gradient,
           View1<T> weight, View1<T> exp_avg, View1<T> exp_avg_sq) {
  const T* const gradient_data = gradient.data();
  T* const weight_data = weight.data();
  T* const m_data = exp_avg.data();
  T* const v_data = exp_avg_sq.data();
  const AdamWChunk* const chunk_data = chunks.data();
  const StepState* const state = step.data();
  const T beta1 = static_cast<T>(desc.beta1);
  const T beta2 = static_cast<T>(desc.beta2);
  const T rest1 = static_cast<T>(1.0 - desc.beta1);
  const T rest2 = static_cast<T>(1.0 - desc.beta2);
  const T epsilon = static_cast<T>(desc.epsilon);
  const double weight_decay = desc.weight_decay;
  const View1<const T> run(gradient_data, extent(elements));
  launch_rows(
      exec, {"trireme::kernels::adamw", {.bytes = bytes_of(chunks) + 7 * bytes_of(run)}},
      static_cast<index_t>(chunks.extent(0)),
      KOKKOS_LAMBDA(const RowTeam& team, index_t index) {
        const AdamWChunk chunk = chunk_data[index];
        const T scale = static_cast<T>(state->gradient_scale);
        const T step_size =
            static_cast<T>(state->learning_rate / state->bias_correction1);
        const T correction2 = static_cast<T>(1.0 / Kokkos::sqrt(state->bias_correction2));
        const T decay = chunk.decays != 0
                            ? static_cast<T>(state->learning_rate * weight_decay)
                            : T{0};
        const T* const g_run = gradient_data + chunk.gradient;
        T* const w_run = weight_data + chunk.weight;
        T* const m_run = m_data + chunk.moment;
        T* const v_run = v_data + chunk.moment;
        for_each_column(team, chunk.count, [=](index_t j) {
          const T g = g_run[j] * scale;
          const T m = beta1 * m_run[j] + rest1 * g;
          const T v = beta2 * v_run[j] + rest2 * (g * g);
          m_run[j] = m;
          v_run[j] = v;
          // The decay is subtracted as lr wd w: 1 - lr wd would lose most of its digits
          // in float.
          const T w = w_run[j];
          w_run[j] =
              w - (step_size * m / (Kokkos::sqrt(v) * correction2 + epsilon) + decay * w);
        });
      });
}

#define TRIREME_INSTANTIATE(T)                                        \
  template decltype(square_sum_of_chunks<T>) square_sum_of_chunks<T>; \
  template decltype(adamw<T>) adamw<T>;
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
