// perf/micro/bounds.hpp — every micro-benchmark states the bytes it must move or the
// operations it must do; the share of what this machine can do is printed beside its
// time.
#ifndef TRIREME_PERF_MICRO_BOUNDS_HPP_
#define TRIREME_PERF_MICRO_BOUNDS_HPP_

#include <benchmark/benchmark.h>

#include <chrono>
#include <string>
#include <type_traits>

#include "base/exec.hpp"
#include "kernels/initialize.hpp"

namespace trireme::perf {

// Measured once, at the start of main().
struct Bounds {
  double bytes_per_second = 0;       // STREAM's triad
  double read_bytes_per_second = 0;  // nothing is written
  double flops_per_second = 0;       // float matrix products
  double bf16_flops_per_second = 0;  // those of bf16
};
const Bounds& bounds();

// Times work() and reports `amount` of it per second beside the bound.
template <class Work>
void run(benchmark::State& state, double amount, const char* rate, double bound,
         const char* share, const Work& work) {
  using Clock = std::chrono::steady_clock;
  const Exec exec;
  work(exec);
  exec.fence("trireme::perf");
  double seconds = 0;
  for (auto _ : state) {
    const Clock::time_point begin = Clock::now();
    work(exec);
    exec.fence("trireme::perf");
    seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  }
  const double per_second = amount * static_cast<double>(state.iterations()) / seconds;
  state.counters[rate] = benchmark::Counter(per_second / 1e9);
  state.counters[share] = benchmark::Counter(per_second / bound);
}

// bytes: what work() has to move at least, each array once.
template <class Work>
void run_memory_bound(benchmark::State& state, double bytes, const Work& work) {
  run(state, bytes, "GB/s", bounds().bytes_per_second, "of_triad", work);
}

// The same of work that writes next to nothing. Triad counts no lines that are read only
// because they are about to be written, so plain reading is faster than it.
template <class Work>
void run_read_bound(benchmark::State& state, double bytes, const Work& work) {
  run(state, bytes, "GB/s", bounds().read_bytes_per_second, "of_reading", work);
}

// T: the type of the products.
template <class T = float, class Work>
void run_compute_bound(benchmark::State& state, double flops, const Work& work) {
  const double bound = std::is_same_v<T, bf16> ? bounds().bf16_flops_per_second
                                               : bounds().flops_per_second;
  run(state, flops, "GFLOP/s", bound, "of_gemm", work);
}

// An array of normal numbers; the name keeps the draws of different arrays apart.
template <class T>
DeviceArray<T> normals(const std::string& name, index_t rows, index_t columns,
                       double std = 1.0) {
  DeviceArray<T> array(name, rows * columns);
  const random::Generator generator{.seed = 1, .owner = random::owner_of(name)};
  kernels::fill_normal<T>(Exec(), generator, std,
                          {0, 0, columns, 0, 0, columns, rows, columns},
                          View1<T>(array.data(), array.extent(0)));
  return array;
}

template <class T>
View1<T> vector(const DeviceArray<T>& array) {
  return View1<T>(array.data(), array.extent(0));
}
template <class T>
View2<T> matrix(const DeviceArray<T>& array, index_t rows, index_t columns) {
  return View2<T>(array.data(), rows, columns);
}

}  // namespace trireme::perf

#endif  // TRIREME_PERF_MICRO_BOUNDS_HPP_
