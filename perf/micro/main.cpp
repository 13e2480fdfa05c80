// perf/micro/main.cpp — measures the machine's bounds, then runs Google Benchmark.
//
//   OMP_NUM_THREADS=2 bin/trireme_micro --benchmark_filter=layer_norm
// `of_triad` is the share of the measured memory bandwidth (above 1 where the data fit a
// cache), `of_copy` that of a copy's, `of_reading` that of reading alone, `of_gemm` the
// share of the measured matrix product of the same type; `seconds` are those of one call.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <vector>

#include "base/host_cores.hpp"
#include "bounds.hpp"
#include "kernels/machine_peaks.hpp"

namespace trireme::perf {
namespace {

Bounds& mutable_bounds() {
  static Bounds measured;
  return measured;
}

// Of all threads that kernels run on. A thread is bound where a process has two OpenMP
// libraries and OMP_PROC_BIND: the second one finds the first thread bound to one core,
// and binds all of its own to that.
int count_cores(int threads) {
  std::vector<std::vector<int>> allowed(static_cast<std::size_t>(threads));
  std::vector<int>* const of_thread = allowed.data();
  using Host = Kokkos::DefaultHostExecutionSpace;
  Kokkos::parallel_for("trireme::perf::count_cores",
                       Kokkos::RangePolicy<Host>(0, threads, Kokkos::ChunkSize(1)),
                       [of_thread](const int i) { of_thread[i] = allowed_cores(); });
  Host().fence("trireme::perf::count_cores");
  std::set<int> cores;
  for (const std::vector<int>& some : allowed) cores.insert(some.begin(), some.end());
  return static_cast<int>(cores.size());
}

// The best of some sums of an array that lies in no cache.
double measured_read_bandwidth(const Exec& exec) {
  constexpr index_t kCount = index_t{1} << 28, kBlock = 4096, kLanes = 32;
  const DeviceArray<float> memory("read", kCount);  // written, page by page
  const float* const from = memory.data();
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    float sum = 0;
    Kokkos::parallel_reduce(
        "trireme::perf::read",
        Kokkos::RangePolicy<ExecSpace>(exec.space(), 0, kCount / kBlock),
        KOKKOS_LAMBDA(index_t block, float& mine) {
          // Lanes of their own, so that no addition waits for the one before.
          float sums[kLanes] = {};
          for (index_t j = block * kBlock; j < (block + 1) * kBlock; j += kLanes) {
            for (index_t lane = 0; lane < kLanes; ++lane) sums[lane] += from[j + lane];
          }
          for (const float of_lane : sums) mine += of_lane;
        },
        sum);
    const std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - begin;
    best = std::max(best, sizeof(float) * static_cast<double>(kCount) / seconds.count());
  }
  return best;
}

// The best of some copies of an array that lies in no cache: bytes read and written.
double measured_copy_bandwidth(const Exec& exec) {
  constexpr index_t kCount = index_t{1} << 27;
  const DeviceArray<float> from("from", kCount), to("to", kCount);  // written, by page
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const double seconds = seconds_of(exec, kHostExecution ? 1 : 10, [&](const Exec& on) {
      Kokkos::deep_copy(on.space(), to, from);
    });
    const double bytes = 2.0 * sizeof(float) * static_cast<double>(kCount);
    best = std::max(best, (kHostExecution ? 1 : 10) * bytes / seconds);
  }
  return best;
}

}  // namespace

const Bounds& bounds() {
  return mutable_bounds();
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Exec exec;
  mutable_bounds() = {kernels::measured_memory_bandwidth(exec),
                      measured_copy_bandwidth(exec), measured_read_bandwidth(exec),
                      kernels::measured_gemm_peak(exec),
                      kernels::measured_gemm_peak(exec, DType::bfloat16)};
  const int host_threads = Kokkos::DefaultHostExecutionSpace().concurrency();
  const int host_cores = count_cores(host_threads);
  if (host_cores < host_threads) {
    std::fprintf(stderr,
                 "trireme_micro: warning: its %d threads may run on no more than %d of "
                 "the host's cores; is OMP_PROC_BIND set?\n",
                 host_threads, host_cores);
  }
  benchmark::AddCustomContext("cores", fmt::format("{}", host_cores));
  const std::string threads = fmt::format("{}", exec.space().concurrency());
  const std::string triad = fmt::format("{:.1f} GB/s", bounds().bytes_per_second / 1e9);
  const std::string copy =
      fmt::format("{:.1f} GB/s", bounds().copy_bytes_per_second / 1e9);
  const std::string read =
      fmt::format("{:.1f} GB/s", bounds().read_bytes_per_second / 1e9);
  const std::string gemm = fmt::format("{:.1f} GFLOP/s", bounds().flops_per_second / 1e9);
  const std::string bf16_gemm =
      fmt::format("{:.1f} GFLOP/s", bounds().bf16_flops_per_second / 1e9);
  benchmark::AddCustomContext("threads", threads);
  benchmark::AddCustomContext("memory triad", triad);
  benchmark::AddCustomContext("memory copy", copy);
  benchmark::AddCustomContext("memory read", read);
  benchmark::AddCustomContext("float matrix product", gemm);
  benchmark::AddCustomContext("bf16 matrix product", bf16_gemm);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace trireme::perf

int main(int argc, char** argv) {
  try {
    return trireme::perf::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trireme_micro: %s\n", error.what());
    return 1;
  }
}
