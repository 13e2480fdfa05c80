// perf/micro/bounds.hpp — every micro-benchmark states the bytes it must move or the
// operations it must do; the share of what this machine can do is printed beside its
// time.
#ifndef TRIREME_PERF_MICRO_BOUNDS_HPP_
#define TRIREME_PERF_MICRO_BOUNDS_HPP_

#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "base/event.hpp"
#include "base/exec.hpp"
#include "kernels/initialize.hpp"

namespace trireme::perf {

// Measured once, at the start of main().
struct Bounds {
  double bytes_per_second = 0;       // STREAM's triad
  double copy_bytes_per_second = 0;  // read and written
  double read_bytes_per_second = 0;  // nothing is written
  double flops_per_second = 0;       // float matrix products
  double bf16_flops_per_second = 0;  // those of bf16
};
const Bounds& bounds();

// Of so many calls of work(), one behind the other: by the device's own marks, as a fence
// for each call takes a device as long as a kernel does.
template <class Work>
double seconds_of(const Exec& exec, int calls, const Work& work) {
  Event begin(Event::Time::kept), end(Event::Time::kept);
  begin.record(exec);
  for (int call = 0; call < calls; ++call) work(exec);
  end.record(exec);
  end.wait();
  return end.seconds_since(begin);
}

// How many calls a device is timed with at a time, of calls that take so long. A host
// returns from each when it is done.
inline int calls_at_a_time(double seconds) {
  constexpr double kAtLeast = 2e-3;
  constexpr int kAtMost = 100;
  if (kHostExecution) return 1;
  return static_cast<int>(std::clamp(kAtLeast / seconds, 1.0, double{kAtMost}));
}

// Times work() and reports `amount` of it per second beside the bound, and the seconds of
// one call.
template <class Work>
void run(benchmark::State& state, double amount, const char* rate, double bound,
         const char* share, const Work& work) {
  const Exec exec;
  seconds_of(exec, 1, work);
  const int calls = calls_at_a_time(seconds_of(exec, 1, work));
  double seconds = 0;
  for (auto _ : state) seconds += seconds_of(exec, calls, work);
  const double of_a_call = seconds / static_cast<double>(state.iterations() * calls);
  state.counters["seconds"] = benchmark::Counter(of_a_call);
  state.counters[rate] = benchmark::Counter(amount / of_a_call / 1e9);
  state.counters[share] = benchmark::Counter(amount / of_a_call / bound);
}

// bytes: what work() has to move at least, each array once. Beside the triad, which has
// two arrays read for one written, stands a copy, which has one.
template <class Work>
void run_memory_bound(benchmark::State& state, double bytes, const Work& work) {
  run(state, bytes, "GB/s", bounds().bytes_per_second, "of_triad", work);
  state.counters["of_copy"] = benchmark::Counter(1e9 * state.counters["GB/s"].value /
                                                 bounds().copy_bytes_per_second);
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
