// tests/unit/base/test_cpu_check.cpp — a build meets a CPU: what is asked, what is said;
// and the threads and libraries that a process of this build really gets.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "base/cpu_check.hpp"

#ifdef KOKKOS_ENABLE_OPENMP
#include <omp.h>
#endif

namespace trireme {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CpuCheck, ThisMachineRunsItsOwnBuild) {
  char message[512] = "";
  EXPECT_TRUE(cpu_runs_this_build(message, sizeof message)) << message;
  EXPECT_STREQ(message, "");
}

TEST(CpuCheck, EveryBitHasItsOwnName) {
  std::set<std::string> names;
  for (int bit = 0; bit < detail::kCpuFeatureCount; ++bit) {
    names.insert(detail::cpu_feature_name(bit));
  }
  EXPECT_EQ(static_cast<int>(names.size()), detail::kCpuFeatureCount);
  EXPECT_STREQ(detail::cpu_feature_name(detail::kCpuFeatureCount), "?");
  EXPECT_EQ(names.count("?"), 0u);
}

TEST(CpuCheck, NamesWhatIsLackingAndTheCure) {
  const std::uint32_t needed = 1u << 2 | 1u << 3 | 1u << 8;  // avx, avx2, avx512f
  char message[512] = "";
  ASSERT_FALSE(detail::explain_cpu_features(needed, 1u << 2, message, sizeof message));
  EXPECT_THAT(message, HasSubstr("avx2, avx512f"));
  EXPECT_THAT(message, Not(HasSubstr("avx,")));
  EXPECT_THAT(message, HasSubstr("TRIREME_ARCH"));
  EXPECT_THAT(message, HasSubstr("x86-64-v3"));
}

TEST(CpuCheck, MessageIsCutWhereItDoesNotFit) {
  char message[8];
  std::memset(message, 'x', sizeof message);
  ASSERT_FALSE(detail::explain_cpu_features(~0u, 0, message, sizeof message));
  EXPECT_EQ(std::strlen(message), sizeof message - 1);
}

// The table of bits (cpu_features.cpp) agrees with that of the CPU (cpu_check.cpp): each
// is what the compiler says it was allowed, read by this file's own macros.
TEST(CpuCheck, BitsMeanTheSameOnBothSides) {
#ifdef __AVX2__
  EXPECT_NE(detail::build_cpu_features >> 3 & 1u, 0u);
  EXPECT_STREQ(detail::cpu_feature_name(3), "avx2");
#else
  EXPECT_EQ(detail::build_cpu_features >> 3 & 1u, 0u);
#endif
#ifdef __AVX512BF16__
  EXPECT_NE(detail::build_cpu_features >> 17 & 1u, 0u);
#else
  EXPECT_EQ(detail::build_cpu_features >> 17 & 1u, 0u);
#endif
  EXPECT_STREQ(detail::cpu_feature_name(17), "avx512bf16");
}

#ifdef KOKKOS_ENABLE_OPENMP
// A prebuilt Kokkos brings a libgomp of its own. Two OpenMP run-times in one process
// would each start a pool of threads; symbols must bind to the system's.
TEST(CpuCheck, OneOpenMpRunTimeAndItsThreads) {
  void* parallel = dlsym(RTLD_DEFAULT, "GOMP_parallel");
  ASSERT_NE(parallel, nullptr);
  Dl_info info;
  ASSERT_NE(dladdr(parallel, &info), 0);
  EXPECT_THAT(info.dli_fname, HasSubstr("libgomp.so.1")) << "not the system's libgomp";
  int threads = 0;
#pragma omp parallel
  {
#pragma omp single
    threads = omp_get_num_threads();
  }
  EXPECT_EQ(threads, omp_get_max_threads());
  EXPECT_EQ(Kokkos::OpenMP().concurrency(), omp_get_max_threads());
  if (const char* wanted = std::getenv("OMP_NUM_THREADS")) {
    EXPECT_EQ(threads, std::atoi(wanted));
  }
}
#endif

}  // namespace
}  // namespace trireme
