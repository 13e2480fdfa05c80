// perf/micro/bounds.hpp — every micro-benchmark states the bytes it must move or the
// operations it must do; the share of what this machine can do is printed beside its
// time.
#ifndef TRIREME_PERF_MICRO_BOUNDS_HPP_
#define TRIREME_PERF_MICRO_BOUNDS_HPP_

#include <benchmark/benchmark.h>

#include <string>

#include "base/exec.hpp"
#include "kernels/initialize.hpp"

namespace trireme::perf {

// Measured once, at the start of main().
struct Bounds {
  double bytes_per_second = 0;
  double flops_per_second = 0;  // float matrix products
};
const Bounds& bounds();

// Runs work() and reports the bytes that it has to move at least, each array once.
template <class Work>
void run_memory_bound(benchmark::State& state, double bytes, const Work& work) {
  const Exec exec;
  work(exec);
  exec.fence("trireme::perf");
  for (auto _ : state) {
    work(exec);
    exec.fence("trireme::perf");
  }
  const auto n = static_cast<double>(state.iterations());
  state.counters["bytes"] = benchmark::Counter(bytes * n, benchmark::Counter::kIsRate,
                                               benchmark::Counter::OneK::kIs1000);
  state.counters["of_triad"] = benchmark::Counter(bytes * n / bounds().bytes_per_second,
                                                  benchmark::Counter::kIsRate);
}

// The same for work that arithmetic bounds.
template <class Work>
void run_compute_bound(benchmark::State& state, double flops, const Work& work) {
  const Exec exec;
  work(exec);
  exec.fence("trireme::perf");
  for (auto _ : state) {
    work(exec);
    exec.fence("trireme::perf");
  }
  const auto n = static_cast<double>(state.iterations());
  state.counters["flops"] = benchmark::Counter(flops * n, benchmark::Counter::kIsRate,
                                               benchmark::Counter::OneK::kIs1000);
  state.counters["of_gemm"] = benchmark::Counter(flops * n / bounds().flops_per_second,
                                                 benchmark::Counter::kIsRate);
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
