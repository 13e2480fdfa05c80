// kernels/adamw.cpp — one AdamW update in one pass: four arrays read, three written, and
// the compute copy. The formula is in adamw.hpp, its derivation in docs/math/adamw.md.
//
// Numbers that are not finite are counted without looking for them: the sum of squares of
// a chunk tells by itself whether there are any, and only then the chunk, which the cache
// still has, is read again.
#include "kernels/adamw.hpp"

#include <type_traits>

#include "kernels/impl/lanes.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels {

namespace {

// How many of `count` numbers are not finite.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION double non_finite_of(const RowTeam& team, const T* values,
                                                 index_t count) {
  using A = Accumulator<T>;
  return sum_columns<std::int32_t>(team, count, [=](index_t j) {
    const auto value = static_cast<A>(values[j]);
    return static_cast<std::int32_t>(!(value - value == A{0}));
  });
}

// What the update of a run of elements multiplies with.
template <class A>
struct Factors {
  A beta1, rest1, beta2, rest2, epsilon;
  A scale = 1, step_size = 0, correction2 = 1, decay = 0;

  explicit Factors(const AdamWDesc& desc)
      : beta1(static_cast<A>(desc.beta1)),
        rest1(static_cast<A>(1.0 - desc.beta1)),
        beta2(static_cast<A>(desc.beta2)),
        rest2(static_cast<A>(1.0 - desc.beta2)),
        epsilon(static_cast<A>(desc.epsilon)) {}
  KOKKOS_INLINE_FUNCTION Factors in(const StepState& step, double weight_decay) const {
    Factors now = *this;
    now.scale = static_cast<A>(step.gradient_scale);
    now.step_size = static_cast<A>(step.learning_rate / step.bias_correction1);
    now.correction2 = static_cast<A>(1.0 / Kokkos::sqrt(step.bias_correction2));
    now.decay = static_cast<A>(step.learning_rate * weight_decay);
    return now;
  }
};

// One run; T is not A where there is a copy, G not where gradients are narrower.
template <class T, class G, class A>
KOKKOS_FORCEINLINE_FUNCTION void update(const RowTeam& team, const Factors<A>& by,
                                        index_t count, const G* gradient, A* weight,
                                        A* exp_avg, A* exp_avg_sq, T* compute) {
  constexpr bool kHasCopy = !std::is_same_v<T, A>;
  const auto ask = [=](index_t j) {
    ask_ahead<kStreamPiece>(gradient + j);
    ask_ahead<kStreamPiece>(weight + j);
    ask_ahead<kStreamPiece>(exp_avg + j);
    ask_ahead<kStreamPiece>(exp_avg_sq + j);
    if constexpr (kHasCopy) ask_ahead<kStreamPiece>(compute + j);
  };
  for_each_streamed(team, count, ask, [=](auto j) {
    const auto g = read<A>(gradient, j) * by.scale;
    const auto m = by.beta1 * read<A>(exp_avg, j) + by.rest1 * g;
    const auto v = by.beta2 * read<A>(exp_avg_sq, j) + by.rest2 * (g * g);
    write(exp_avg, j, m);
    write(exp_avg_sq, j, v);
    // The decay is subtracted as lr wd w: 1 - lr wd would lose most of its digits in
    // float.
    const auto w = read<A>(weight, j);
    const auto root =
        mapped(v, [](A square) { return Kokkos::sqrt(square); }) * by.correction2 +
        by.epsilon;
    const auto updated = w - (by.step_size * m / root + by.decay * w);
    write(weight, j, updated);
    if constexpr (kHasCopy) write(compute, j, updated);
  });
}

}  // namespace

template <class T>
void square_sum_of_chunks(const Exec& exec, View1<const AdamWChunk> chunks,
                          index_t elements, View1<const T> gradient,
                          View1<double> partial, View1<double> totals) {
  const auto count = static_cast<index_t>(chunks.extent(0));
  TRIREME_REQUIRE(static_cast<index_t>(partial.extent(0)) >= 2 * count,
                  "kernels::square_sum_of_chunks: room for {} partial sums of {}",
                  partial.extent(0), 2 * count);
  require_extent("square_sum_of_chunks", "totals", totals, 2);
  if (count == 0) return;
  const T* const gradient_data = gradient.data();
  const AdamWChunk* const chunk_data = chunks.data();
  const View2<double> sums(partial.data(), extent(count), 2);
  double* const partial_data = sums.data();
  double* const totals_data = totals.data();
  const View1<const T> squared(gradient_data, extent(elements));
  launch_rows(
      exec,
      {"trireme::kernels::square_sum_of_chunks[chunks]",
       {.bytes = bytes_of(chunks, squared, sums)}},
      count, KOKKOS_LAMBDA(const RowTeam& team, index_t index) {
        const AdamWChunk chunk = chunk_data[index];
        const T* const run = gradient_data + chunk.gradient;
        const index_t n = chunk.in_norm != 0 ? chunk.count : 0;
        const double sum =
            sum_streamed<double>(team_of_run(team, run), run, n, [](auto number) {
              const auto value = static_cast<double>(static_cast<Accumulator<T>>(number));
              return value * value;
            });
        const bool is_finite = sum - sum == 0.0;
        partial_data[2 * index] = sum;
        partial_data[2 * index + 1] = is_finite ? 0.0 : non_finite_of(team, run, n);
      });
  launch_rows(
      exec,
      {"trireme::kernels::square_sum_of_chunks[combine]",
       {.bytes = bytes_of(sums, totals, totals)}},
      1, KOKKOS_LAMBDA(const RowTeam& team, index_t) {
        double squares = 0, non_finite_numbers = 0;
        sum_columns_of_two<double>(
            team, count,
            [=](index_t j, double& square_sum, double& non_finite) {
              square_sum = partial_data[2 * j];
              non_finite = partial_data[2 * j + 1];
            },
            squares, non_finite_numbers);
        for_each_column(team, 2, [=](index_t j) {
          totals_data[j] += j == 0 ? squares : non_finite_numbers;
        });
      });
}

template <class T, class G>
void adamw(const Exec& exec, const AdamWDesc& desc, StepStateView step,
           View1<const AdamWChunk> chunks, index_t elements,
           std::type_identity_t<View1<const G>> gradient, View1<Accumulator<T>> weight,
           View1<Accumulator<T>> exp_avg, View1<Accumulator<T>> exp_avg_sq,
           View1<T> compute) {
  using A = Accumulator<T>;
  const G* const gradient_data = gradient.data();
  A* const weight_data = weight.data();
  A* const m_data = exp_avg.data();
  A* const v_data = exp_avg_sq.data();
  T* const compute_data = compute.data();
  const AdamWChunk* const chunk_data = chunks.data();
  const StepState* const state = step.data();
  const Factors<A> factors(desc);
  const double weight_decay = desc.weight_decay;
  const auto element_bytes = static_cast<index_t>(6 * sizeof(A) + sizeof(G) +
                                                  (std::is_same_v<T, A> ? 0 : sizeof(T)));
  launch_rows(
      exec,
      {"trireme::kernels::adamw", {.bytes = bytes_of(chunks) + element_bytes * elements}},
      static_cast<index_t>(chunks.extent(0)),
      KOKKOS_LAMBDA(const RowTeam& team, index_t index) {
        if (state->skips_update != 0) return;
        const AdamWChunk chunk = chunk_data[index];
        const G* const of_gradient = gradient_data + chunk.gradient;
        A* const of_weight = weight_data + chunk.weight;
        A* const m = m_data + chunk.moment;
        A* const v = v_data + chunk.moment;
        T* const copy = compute_data + chunk.compute;
        update<T, G, A>(team_of_run(team, of_gradient, of_weight, m, v, copy),
                        factors.in(*state, chunk.decays != 0 ? weight_decay : 0.0),
                        chunk.count, of_gradient, of_weight, m, v, copy);
      });
}

template decltype(square_sum_of_chunks<float>) square_sum_of_chunks<float>;
template decltype(square_sum_of_chunks<double>) square_sum_of_chunks<double>;
template decltype(square_sum_of_chunks<bf16>) square_sum_of_chunks<bf16>;
#define TRIREME_INSTANTIATE(T, G) template decltype(adamw<T, G>) adamw<T, G>;
TRIREME_FOR_EACH_GRADIENT(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
