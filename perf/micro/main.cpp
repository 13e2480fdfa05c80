// perf/micro/main.cpp — measures the machine's bounds, then runs Google Benchmark.
//
//   OMP_NUM_THREADS=2 OMP_PROC_BIND=spread bin/trireme_micro
//   --benchmark_filter=layer_norm
// `of_triad` is the share of the measured memory bandwidth (above 1 where the data fit a
// cache), `of_gemm` the share of the measured matrix product of
// the same type.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <Kokkos_Core.hpp>
#include <cstdio>

#include "bounds.hpp"
#include "kernels/machine_peaks.hpp"

namespace trireme::perf {
namespace {

Bounds& mutable_bounds() {
  static Bounds measured;
  return measured;
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
                      kernels::measured_gemm_peak(exec),
                      kernels::measured_gemm_peak(exec, DType::bfloat16)};
  const std::string threads = fmt::format("{}", exec.space().concurrency());
  const std::string triad = fmt::format("{:.1f} GB/s", bounds().bytes_per_second / 1e9);
  const std::string gemm = fmt::format("{:.1f} GFLOP/s", bounds().flops_per_second / 1e9);
  const std::string bf16_gemm =
      fmt::format("{:.1f} GFLOP/s", bounds().bf16_flops_per_second / 1e9);
  benchmark::AddCustomContext("threads", threads);
  benchmark::AddCustomContext("memory triad", triad);
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
