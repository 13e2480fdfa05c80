// kernels/machine_peaks.cpp — triad and matrix-product peaks, best of several within a
// fixed time.
//
// Of a peak the best counts, because what disturbs a measurement on a shared machine only
// makes it longer. Products of a layer and updates stand for what a step takes, which is
// no best of many: of these the median counts. A time is fixed and not a number of
// repetitions, since machines differ a hundredfold in speed and nobody waits for a peak.
// The products of a layer stand apart from the peak: they are smaller, and have other
// transposes.
#include "kernels/machine_peaks.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/wall_time.hpp"
#include "kernels/adamw.hpp"
#include "kernels/gemm.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/initialize.hpp"
#include "kernels/step_state.hpp"

namespace trireme::kernels {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSeconds = 0.25;  // of repetitions
constexpr int kAtLeast = 3;        // of them; the first warms up

// Times of work() in seconds, of as many repetitions as fit into `seconds`.
template <class Work>
std::vector<double> all_seconds(const Exec& exec, const Work& work, double seconds) {
  exec.fence("trireme::kernels::machine_peaks");
  std::vector<double> all;
  const Clock::time_point start = Clock::now();
  while (std::ssize(all) < kAtLeast || seconds_since(start) < seconds) {
    const Clock::time_point begin = Clock::now();
    work();
    exec.fence("trireme::kernels::machine_peaks");
    all.push_back(seconds_since(begin));
  }
  return all;
}

template <class Work>
double best_seconds(const Exec& exec, const Work& work, double seconds) {
  return std::ranges::min(all_seconds(exec, work, seconds));
}

template <class Work>
double median_seconds(const Exec& exec, const Work& work, double seconds) {
  std::vector<double> all = all_seconds(exec, work, seconds);
  const auto middle = all.begin() + std::ssize(all) / 2;
  std::ranges::nth_element(all, middle);
  return *middle;
}

constexpr index_t kGemmSize = kHostExecution ? 1024 : 8192;

// C = A B^T of square matrices, as work that can be repeated.
template <class T>
std::function<void(const Exec&)> gemm_work(const Exec& exec) {
  constexpr index_t n = kGemmSize;
  const DeviceArray<T> memory("trireme::machine_peaks", 3 * n * n);
  // The matrices are not zero: a GPU that multiplies zeros runs cooler, and faster, than
  // with real numbers.
  fill_normal<T>(exec, random::Generator{}, 1.0, {0, 0, n, 0, 0, n, 2 * n, n},
                 View1<T>(memory.data(), memory.extent(0)));
  return [memory](const Exec& where) {
    const View2<const T> a(memory.data(), n, n);
    const View2<const T> b(memory.data() + n * n, n, n);
    const View2<T> c(memory.data() + 2 * n * n, n, n);
    linear_forward<T>(where, a, WeightOperand<T>(b), c);
  };
}

constexpr index_t kTriadCount = index_t{1} << 24;  // elements: 128 MiB an array
// Timed at a time: on a GPU a launch and a fence take a tenth of one.
constexpr int kTriads = kHostExecution ? 1 : 16;

void triad(const Exec& exec, double* a, const double* b, const double* c, double scale) {
  launch_rows(
      exec, "trireme::kernels::measured_memory_bandwidth", kTriadCount / kFlatBlock,
      KOKKOS_LAMBDA(const RowTeam& team, index_t block) {
        double* const to = a + block * kFlatBlock;
        const double* const from = b + block * kFlatBlock;
        const double* const scaled = c + block * kFlatBlock;
        for_each_column(team, kFlatBlock,
                        [=](index_t j) { to[j] = from[j] + scale * scaled[j]; });
      });
}

template <class T>
double layer_products(const Exec& exec, index_t h) {
  constexpr index_t rows = 1024;
  constexpr double kShare = kSeconds / 12;  // of the time, for each product
  double flops = 0.0, seconds = 0.0;
  for (const auto& [n, k] : std::initializer_list<std::pair<index_t, index_t>>{
           {3 * h, h}, {h, h}, {4 * h, h}, {h, 4 * h}}) {
    const DeviceArray<T> memory("trireme::machine_peaks",
                                extent(rows * k + n * k + rows * n));
    const DeviceArray<Accumulator<T>> gradient("trireme::machine_peaks", extent(n * k));
    fill<T>(exec, View1<T>(memory.data(), memory.extent(0)), T(0.5F));
    const View2<T> x(memory.data(), extent(rows), extent(k));
    const View2<const T> w(memory.data() + rows * k, extent(n), extent(k));
    const View2<T> y(memory.data() + rows * k + n * k, extent(rows), extent(n));
    const View2<Accumulator<T>> d_w(gradient.data(), extent(n), extent(k));
    const auto add = [&](const auto& product) {
      flops += 2.0 * static_cast<double>(rows * n * k);
      seconds += median_seconds(exec, product, kShare);
    };
    add([&] { linear_forward<T>(exec, View2<const T>(x), WeightOperand<T>(w), y); });
    add([&] {
      linear_backward_input<T>(exec, View2<const T>(y), WeightOperand<T>(w), x);
    });
    add([&] {
      linear_backward_weight<T>(exec, View2<const T>(y), View2<const T>(x),
                                Accumulate::no, d_w);
    });
  }
  return flops / seconds;
}

constexpr index_t kUpdated = index_t{1}
                             << 22;  // 112 MiB of weights, moments and gradients

// In one piece, as the chunks of a model that is large enough for memory to bound it.
template <class T>
double update_rate(const Exec& exec) {
  using A = Accumulator<T>;
  constexpr bool kHasCopy = !std::is_same_v<T, A>;
  const DeviceArray<A> memory("trireme::machine_peaks", extent(4 * kUpdated));
  const DeviceArray<T> copy("trireme::machine_peaks", kHasCopy ? extent(kUpdated) : 0);
  const DeviceArray<AdamWChunk> chunks("trireme::machine_peaks",
                                       extent(kUpdated / kAdamWChunk));
  const auto host = Kokkos::create_mirror_view(chunks);
  for (index_t i = 0; i < kUpdated / kAdamWChunk; ++i) {
    const index_t at = i * kAdamWChunk;
    host(extent(i)) = {.weight = at,
                       .gradient = at,
                       .moment = at,
                       .count = static_cast<std::int32_t>(kAdamWChunk),
                       .decays = 1,
                       .compute = at};
  }
  Kokkos::deep_copy(chunks, host);
  const Kokkos::View<StepState, DeviceMemory> state("trireme::machine_peaks");
  fill<A>(exec, View1<A>(memory.data(), memory.extent(0)), A(0.5F));
  const auto part = [&](index_t number) {
    return View1<A>(memory.data() + number * kUpdated, extent(kUpdated));
  };
  const double seconds = median_seconds(
      exec,
      [&] {
        adamw<T>(exec, {}, StepStateView(state.data()),
                 View1<const AdamWChunk>(chunks.data(), chunks.extent(0)), kUpdated,
                 View1<const A>(part(0)), part(1), part(2), part(3),
                 View1<T>(copy.data(), copy.extent(0)));
      },
      kSeconds);
  const double bytes = 7.0 * sizeof(A) + (kHasCopy ? sizeof(T) : 0.0);
  return bytes * static_cast<double>(kUpdated) / seconds;
}

}  // namespace

double measured_memory_bandwidth(const Exec& exec) {
  const DeviceArray<double> memory(
      Kokkos::view_alloc(Kokkos::WithoutInitializing, "trireme::machine_peaks"),
      3 * kTriadCount);
  // Written first, by the threads that read it: pages never written are all one page of
  // zeros, which lies in cache.
  for (index_t part = 0; part < 3; ++part) {
    fill<double>(exec, View1<double>(memory.data() + part * kTriadCount, kTriadCount),
                 1.0);
  }
  double* const a = memory.data();
  const auto triads = [&] {
    for (int i = 0; i < kTriads; ++i) {
      triad(exec, a, a + kTriadCount, a + 2 * kTriadCount, 3.0);
    }
  };
  const double seconds = best_seconds(exec, triads, kSeconds) / kTriads;
  return 3.0 * sizeof(double) * static_cast<double>(kTriadCount) / seconds;
}

GemmProbe::GemmProbe(const Exec& exec, DType type) {
#define TRIREME_TAKE(T) \
  if (type == dtype_of<T>) product_ = gemm_work<T>(exec);
  TRIREME_FOR_EACH_REAL(TRIREME_TAKE)
#undef TRIREME_TAKE
  TRIREME_REQUIRE(product_ != nullptr, "kernels::GemmProbe: no matrix product in {}",
                  name_of(type));
}

double GemmProbe::best_within(const Exec& exec, double seconds) const {
  constexpr auto n = static_cast<double>(kGemmSize);
  return 2.0 * n * n * n /
         best_seconds(
             exec, [&] { product_(exec); }, seconds);
}

double measured_gemm_peak(const Exec& exec, DType type) {
  return GemmProbe(exec, type).best_within(exec, kSeconds);
}

double measured_layer_products(const Exec& exec, DType type, index_t width) {
  double rate = 0.0;
#define TRIREME_TAKE(T) \
  if (type == dtype_of<T>) rate = layer_products<T>(exec, width);
  TRIREME_FOR_EACH_REAL(TRIREME_TAKE)
#undef TRIREME_TAKE
  return rate;
}

double measured_update(const Exec& exec, DType type) {
  double rate = 0.0;
#define TRIREME_TAKE(T) \
  if (type == dtype_of<T>) rate = update_rate<T>(exec);
  TRIREME_FOR_EACH_REAL(TRIREME_TAKE)
#undef TRIREME_TAKE
  return rate;
}

// Few at a time, so that some rounds are not disturbed by others who use the machine.
double measured_launch(const Exec& exec) {
  constexpr int kLaunches = 20;
  const DeviceArray<float> one("trireme::machine_peaks", 1);
  const auto launches = [&] {
    for (int i = 0; i < kLaunches; ++i) {
      fill<float>(exec, View1<float>(one.data(), 1), 0.0F);
    }
  };
  return best_seconds(exec, launches, kSeconds) / kLaunches;
}

}  // namespace trireme::kernels
