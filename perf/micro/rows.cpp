// perf/micro/rows.cpp — the kernels that memory bounds, at the shapes of GPT-2 124M with
// a micro-batch of 4 x 256 tokens (or 1 x 1024), and on arrays that lie in no cache.
#include <array>
#include <set>
#include <span>

#include "base/exec.hpp"
#include "bounds.hpp"
#include "kernels/activation.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/impl/residual_norm_reference.hpp"
#include "kernels/initialize.hpp"
#include "kernels/norm.hpp"
#include "kernels/reductions.hpp"
#include "kernels/residual_norm.hpp"

namespace trireme::perf {
namespace {

constexpr index_t kRows = 1024;
// Rows whose arrays lie in no cache. On a GPU every kernel over them moves more than the
// 256 MiB from which on it is judged (perf/gpu/single_kernels.py).
constexpr index_t kBeyondCaches = kHostExecution ? 65536 : 262144;
constexpr index_t kHidden = 768;
constexpr index_t kFfn = 3072;
constexpr index_t kVocabulary = 50257;
constexpr double kFloat = sizeof(float);

// In a cache and beyond it, in fp32 and bf16: argument 0 is the number of rows.
#define TRIREME_BENCHMARK_ROWS(function)                                              \
  BENCHMARK_TEMPLATE(function, float)->Arg(kRows)->Arg(kBeyondCaches)->UseRealTime(); \
  BENCHMARK_TEMPLATE(function, bf16)->Arg(kRows)->Arg(kBeyondCaches)->UseRealTime()
// The same with percent dropped as argument 1.
#define TRIREME_BENCHMARK_DROPPING(function)           \
  BENCHMARK_TEMPLATE(function, float)                  \
      ->ArgsProduct({{kRows, kBeyondCaches}, {0, 10}}) \
      ->UseRealTime();                                 \
  BENCHMARK_TEMPLATE(function, bf16)                   \
      ->ArgsProduct({{kRows, kBeyondCaches}, {0, 10}}) \
      ->UseRealTime()

// Arrays of one benchmark: (rows, h) in the type that models compute in, vectors of h and
// of the rows, partial sums.
template <class T>
class Norm {
 public:
  using A = Accumulator<T>;

  explicit Norm(const benchmark::State& state)
      : rows(state.range(0)),
        x_(normals<T>("x", rows, kHidden)),
        d_y_(normals<T>("dy", rows, kHidden)),
        y_(normals<T>("y", rows, kHidden)),
        z_(normals<T>("z", rows, kHidden)),
        columns_(normals<T>("g", 3, kHidden)),
        statistics_(normals<A>("r", 2, rows)),
        sums_(normals<A>("sums", 3, kHidden)),
        scratch_(normals<A>("s", 2, kernels::norm_scratch_elements(kHidden))) {}

  View2<T> x() const { return matrix(x_, rows, kHidden); }
  View2<T> d_y() const { return matrix(d_y_, rows, kHidden); }
  View2<T> y() const { return matrix(y_, rows, kHidden); }
  View2<T> z() const { return matrix(z_, rows, kHidden); }
  View1<T> gamma() const { return View1<T>(columns_.data(), kHidden); }
  View1<T> beta() const { return View1<T>(columns_.data() + kHidden, kHidden); }
  View1<A> mean() const { return View1<A>(statistics_.data(), rows); }
  View1<A> rstd() const { return View1<A>(statistics_.data() + rows, rows); }
  View1<A> sums(int i) const { return View1<A>(sums_.data() + i * kHidden, kHidden); }
  kernels::NormPartials<A> norm_partials() const { return {partials(0), partials(1)}; }
  View2<A> partials(int i) const {
    const index_t blocks = kernels::partial_count(rows, kHidden);
    return View2<A>(scratch_.data() + i * blocks * kHidden, blocks, kHidden);
  }
  View1<A> scratch() const { return vector(scratch_); }
  // The first `count` of these become sums, in one launch, as those of a layer do.
  void add_partials(const Exec& exec, int count) const {
    using Sum = kernels::PartialSum<A>;
    std::array<Sum, 3> all;
    for (int i = 0; i < count; ++i) {
      all[static_cast<std::size_t>(i)] = {partials(i), kernels::Accumulate::no, sums(i)};
    }
    kernels::add_partials<A>(
        exec, std::span<const Sum>(all).first(static_cast<std::size_t>(count)));
  }
  // Bytes of so many passes over (rows, h).
  double passes(double n) const {
    return n * sizeof(T) * static_cast<double>(rows * kHidden);
  }

  const index_t rows;

 private:
  DeviceArray<T> x_, d_y_, y_, z_, columns_;
  DeviceArray<A> statistics_, sums_, scratch_;
};

class Step {
 public:
  kernels::StepStateView view() const { return kernels::StepStateView(state_.data()); }

 private:
  Kokkos::View<kernels::StepState, DeviceMemory> state_{"step"};
};

kernels::DropoutDesc dropping(const benchmark::State& state) {
  return {.probability = static_cast<double>(state.range(1)) / 100, .batch = 4};
}

// What two passes take at least: the bandwidth that the others are held against.
template <class T>
void copy_rows(benchmark::State& state) {
  const Norm<T> of(state);
  run_memory_bound(state, of.passes(2), [&](const Exec& exec) {
    copy(exec, View1<T>(of.y().data(), of.y().size()),
         View1<const T>(of.x().data(), of.x().size()));
  });
}
TRIREME_BENCHMARK_ROWS(copy_rows);

template <class T>
void layer_norm_forward(benchmark::State& state) {
  const Norm<T> of(state);
  run_memory_bound(state, of.passes(2), [&](const Exec& exec) {
    kernels::norm_forward<T>(exec, kernels::NormKind::layernorm, of.x(), of.gamma(),
                             of.beta(), 1e-5, of.y(), of.mean(), of.rstd());
  });
}
TRIREME_BENCHMARK_ROWS(layer_norm_forward);

// Input and weight gradients by themselves: d_y and x twice, by-pass gradient, d_x.
template <class T>
void layer_norm_backward_apart(benchmark::State& state) {
  const Norm<T> of(state);
  run_memory_bound(state, of.passes(6), [&](const Exec& exec) {
    kernels::norm_backward_input<T>(exec, kernels::NormKind::layernorm, of.d_y(), of.x(),
                                    of.gamma(), of.mean(), of.rstd(), of.y(), of.y());
    kernels::norm_backward_weight<T>(exec, kernels::NormKind::layernorm, of.d_y(), of.x(),
                                     of.mean(), of.rstd(), of.scratch(),
                                     kernels::Accumulate::no, of.sums(0), of.sums(1));
  });
}
TRIREME_BENCHMARK_ROWS(layer_norm_backward_apart);

// Both gradients in one pass: d_y, x, by-pass gradient, d_x.
template <class T>
void layer_norm_backward(benchmark::State& state) {
  const Norm<T> of(state);
  run_memory_bound(state, of.passes(4), [&](const Exec& exec) {
    kernels::norm_backward<T>(exec, kernels::NormKind::layernorm, of.d_y(), of.x(),
                              of.gamma(), of.mean(), of.rstd(), of.y(), of.y(),
                              of.norm_partials());
    of.add_partials(exec, 2);
  });
}
TRIREME_BENCHMARK_ROWS(layer_norm_backward);

template <class T>
void rms_norm_forward(benchmark::State& state) {
  const Norm<T> of(state);
  run_memory_bound(state, of.passes(2), [&](const Exec& exec) {
    kernels::norm_forward<T>(exec, kernels::NormKind::rms, of.x(), of.gamma(), {}, 1e-6,
                             of.y(), {}, of.rstd());
  });
}
TRIREME_BENCHMARK_ROWS(rms_norm_forward);

template <class T>
void rms_norm_backward(benchmark::State& state) {
  const Norm<T> of(state);
  run_memory_bound(state, of.passes(4), [&](const Exec& exec) {
    kernels::norm_backward<T>(exec, kernels::NormKind::rms, of.d_y(), of.x(), of.gamma(),
                              {}, of.rstd(), of.y(), of.y(), {of.partials(0), {}});
    of.add_partials(exec, 1);
  });
}
TRIREME_BENCHMARK_ROWS(rms_norm_backward);

template <class T>
void residual_norm_forward(benchmark::State& state) {
  const Norm<T> of(state);
  const Step step;
  const kernels::DropoutDesc desc = dropping(state);
  run_memory_bound(state, of.passes(4), [&](const Exec& exec) {
    kernels::residual_norm_forward<T>(
        exec, kernels::NormKind::layernorm, desc, step.view(), of.x(), of.beta(),
        of.d_y(), of.gamma(), of.beta(), 1e-5, of.z(), of.y(), of.mean(), of.rstd());
  });
}
TRIREME_BENCHMARK_DROPPING(residual_norm_forward);

template <class T>
void residual_norm_forward_apart(benchmark::State& state) {
  const Norm<T> of(state);
  const Step step;
  const kernels::DropoutDesc desc = dropping(state);
  run_memory_bound(state, of.passes(5), [&](const Exec& exec) {
    kernels::residual_norm_forward_reference<T>(
        exec, kernels::NormKind::layernorm, desc, step.view(), of.x(), of.beta(),
        of.d_y(), of.gamma(), of.beta(), 1e-5, of.z(), of.y(), of.mean(), of.rstd());
  });
}
TRIREME_BENCHMARK_DROPPING(residual_norm_forward_apart);

template <class T>
void residual_norm_backward(benchmark::State& state) {
  const Norm<T> of(state);
  const Step step;
  const kernels::DropoutDesc desc = dropping(state);
  const bool drops = desc.probability > 0;
  run_memory_bound(state, of.passes(drops ? 5 : 4), [&](const Exec& exec) {
    kernels::residual_norm_backward<T>(
        exec, kernels::NormKind::layernorm, desc, step.view(), of.d_y(), of.x(),
        of.gamma(), of.mean(), of.rstd(), of.y(), of.y(), drops ? of.z() : View2<T>(),
        of.norm_partials(), of.partials(2));
    of.add_partials(exec, 3);
  });
}
TRIREME_BENCHMARK_DROPPING(residual_norm_backward);

// As it was: two passes of the norm, d_branch as a copy, a sum of it.
template <class T>
void residual_norm_backward_apart(benchmark::State& state) {
  const Norm<T> of(state);
  const Step step;
  const kernels::DropoutDesc desc = dropping(state);
  run_memory_bound(state, of.passes(9), [&](const Exec& exec) {
    kernels::residual_norm_backward_reference<T>(
        exec, kernels::NormKind::layernorm, desc, step.view(), of.d_y(), of.x(),
        of.gamma(), of.mean(), of.rstd(), of.y(), of.y(), of.z(), of.scratch(),
        of.sums(0), of.sums(1), of.sums(2));
  });
}
TRIREME_BENCHMARK_DROPPING(residual_norm_backward_apart);

template <class T>
void bias_dropout_add_backward(benchmark::State& state) {
  const Norm<T> of(state);
  const Step step;
  const kernels::DropoutDesc desc = dropping(state);
  const bool drops = desc.probability > 0;
  run_memory_bound(state, of.passes(drops ? 2 : 1), [&](const Exec& exec) {
    kernels::bias_dropout_add_backward<T>(exec, desc, step.view(), of.d_y(),
                                          drops ? of.z() : View2<T>(), of.partials(0));
    of.add_partials(exec, 1);
  });
}
TRIREME_BENCHMARK_DROPPING(bias_dropout_add_backward);

template <class T>
void bias_dropout_add_forward(benchmark::State& state) {
  const Norm<T> of(state);
  const Step step;
  const kernels::DropoutDesc desc = dropping(state);
  run_memory_bound(state, of.passes(3), [&](const Exec& exec) {
    kernels::bias_dropout_add_forward<T>(exec, desc, step.view(), of.x(), of.beta(),
                                         of.d_y(), of.y());
  });
}
TRIREME_BENCHMARK_DROPPING(bias_dropout_add_forward);

template <class T>
void sum_rows(benchmark::State& state) {
  const Norm<T> of(state);
  run_memory_bound(state, of.passes(1), [&](const Exec& exec) {
    kernels::sum_rows<T>(exec, of.x(), of.scratch(), kernels::Accumulate::no, of.sums(0));
  });
}
TRIREME_BENCHMARK_ROWS(sum_rows);

template <class T>
void run_activation(benchmark::State& state, kernels::Activation activation) {
  const index_t rows = state.range(0);
  const auto z = normals<T>("z", rows, kFfn), y = normals<T>("y", rows, kFfn);
  const double bytes = 2.0 * sizeof(T) * static_cast<double>(rows * kFfn);
  run_memory_bound(state, bytes, [&](const Exec& exec) {
    kernels::activation_forward<T>(exec, activation, matrix(z, rows, kFfn),
                                   matrix(y, rows, kFfn));
  });
}
template <class T>
void run_activation_backward(benchmark::State& state, kernels::Activation activation) {
  using A = Accumulator<T>;
  const index_t rows = state.range(0);
  const index_t blocks = kernels::tiled_partial_count(rows, kFfn);
  const auto z = normals<T>("z", rows, kFfn), d_y = normals<T>("dy", rows, kFfn),
             d_z = normals<T>("dz", rows, kFfn);
  const auto partials = normals<A>("p", blocks, kFfn);
  const double bytes = 3.0 * sizeof(T) * static_cast<double>(rows * kFfn);
  run_memory_bound(state, bytes, [&](const Exec& exec) {
    kernels::activation_backward<T>(exec, activation, matrix(d_y, rows, kFfn),
                                    matrix(z, rows, kFfn), matrix(d_z, rows, kFfn),
                                    matrix(partials, blocks, kFfn));
  });
}
template <class T>
void gelu_forward(benchmark::State& state) {
  run_activation<T>(state, kernels::Activation::gelu_tanh);
}
TRIREME_BENCHMARK_ROWS(gelu_forward);
template <class T>
void gelu_backward(benchmark::State& state) {
  run_activation_backward<T>(state, kernels::Activation::gelu_tanh);
}
TRIREME_BENCHMARK_ROWS(gelu_backward);
template <class T>
void gelu_erf_forward(benchmark::State& state) {
  run_activation<T>(state, kernels::Activation::gelu_erf);
}
TRIREME_BENCHMARK_ROWS(gelu_erf_forward);
template <class T>
void gelu_erf_backward(benchmark::State& state) {
  run_activation_backward<T>(state, kernels::Activation::gelu_erf);
}
TRIREME_BENCHMARK_ROWS(gelu_erf_backward);
template <class T>
void relu_forward(benchmark::State& state) {
  run_activation<T>(state, kernels::Activation::relu);
}
TRIREME_BENCHMARK_ROWS(relu_forward);
template <class T>
void relu_backward(benchmark::State& state) {
  run_activation_backward<T>(state, kernels::Activation::relu);
}
TRIREME_BENCHMARK_ROWS(relu_backward);

// T5's: a gate of GeLU's tanh form.
template <class T>
void gated_forward(benchmark::State& state) {
  const index_t rows = state.range(0);
  const auto z = normals<T>("z", rows, 2 * kFfn), y = normals<T>("y", rows, kFfn);
  const double bytes = 3.0 * sizeof(T) * static_cast<double>(rows * kFfn);
  run_memory_bound(state, bytes, [&](const Exec& exec) {
    kernels::gated_forward<T>(exec, kernels::Activation::gelu_tanh,
                              matrix(z, rows, 2 * kFfn), matrix(y, rows, kFfn));
  });
}
TRIREME_BENCHMARK_ROWS(gated_forward);
template <class T>
void gated_backward(benchmark::State& state) {
  const index_t rows = state.range(0);
  const auto z = normals<T>("z", rows, 2 * kFfn), d_y = normals<T>("dy", rows, kFfn),
             d_z = normals<T>("dz", rows, 2 * kFfn);
  const double bytes = 5.0 * sizeof(T) * static_cast<double>(rows * kFfn);
  run_memory_bound(state, bytes, [&](const Exec& exec) {
    kernels::gated_backward<T>(exec, kernels::Activation::gelu_tanh,
                               matrix(d_y, rows, kFfn), matrix(z, rows, 2 * kFfn),
                               matrix(d_z, rows, 2 * kFfn));
  });
}
TRIREME_BENCHMARK_ROWS(gated_backward);

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

// Of 4 samples side by side.
DeviceArray<std::int32_t> positions_of(index_t rows) {
  DeviceArray<std::int32_t> positions("positions", rows);
  auto host = Kokkos::create_mirror_view(positions);
  for (index_t i = 0; i < rows; ++i) {
    host(i) = static_cast<std::int32_t>(i / 4 % kRows);
  }
  Kokkos::deep_copy(positions, host);
  return positions;
}

// How many different ids there are.
double distinct(const DeviceArray<std::int32_t>& ids) {
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, ids);
  return static_cast<double>(
      std::set<std::int32_t>(host.data(), host.data() + host.size()).size());
}

// Look-up of words, then of positions on top, then dropout.
template <class T>
void embedding_forward_apart(benchmark::State& state) {
  const Norm<T> of(state);
  const auto table = normals<T>("t", kVocabulary, kHidden),
             places = normals<T>("p", kRows, kHidden);
  const auto ids = token_ids(of.rows), positions = positions_of(of.rows);
  const Step step;
  const kernels::DropoutDesc desc = dropping(state);
  const double bytes =
      of.passes(1) + sizeof(T) * kHidden * (distinct(ids) + distinct(positions));
  run_memory_bound(state, bytes, [&](const Exec& exec) {
    kernels::embedding_forward<T>(exec, vector(ids), matrix(table, kVocabulary, kHidden),
                                  0, kernels::Write::overwrite, of.y());
    kernels::embedding_forward<T>(exec, vector(positions), matrix(places, kRows, kHidden),
                                  0, kernels::Write::add, of.y());
    if (desc.probability > 0) {
      kernels::bias_dropout_add_forward<T>(exec, desc, step.view(), of.y(), {}, {},
                                           of.y());
    }
  });
}
TRIREME_BENCHMARK_DROPPING(embedding_forward_apart);

template <class T>
void embedding_dropout_forward(benchmark::State& state) {
  const Norm<T> of(state);
  const Step step;
  const auto table = normals<T>("t", kVocabulary, kHidden),
             places = normals<T>("p", kRows, kHidden);
  const auto ids = token_ids(of.rows), positions = positions_of(of.rows);
  const kernels::DropoutDesc desc = dropping(state);
  const double bytes =
      of.passes(1) + sizeof(T) * kHidden * (distinct(ids) + distinct(positions));
  run_memory_bound(state, bytes, [&](const Exec& exec) {
    kernels::embedding_dropout_forward<T>(
        exec, desc, step.view(), vector(ids), matrix(table, kVocabulary, kHidden),
        vector(positions), matrix(places, kRows, kHidden), of.y());
  });
}
TRIREME_BENCHMARK_DROPPING(embedding_dropout_forward);

template <class T>
void embedding_backward(benchmark::State& state) {
  const Norm<T> of(state);
  const auto d_table = normals<Accumulator<T>>("t", kVocabulary, kHidden);
  const auto ids = token_ids(of.rows);
  const DeviceArray<std::int32_t> scratch("s", 2 * of.rows);
  const double bytes = of.passes(1) + 2 * kFloat * kHidden * distinct(ids);
  run_memory_bound(state, bytes, [&](const Exec& exec) {
    kernels::embedding_backward<T>(exec, vector(ids), of.d_y(), 0, vector(scratch),
                                   kernels::Accumulate::yes,
                                   matrix(d_table, kVocabulary, kHidden));
  });
}
TRIREME_BENCHMARK_ROWS(embedding_backward);

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
