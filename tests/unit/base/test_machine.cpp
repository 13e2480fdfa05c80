// The machine as Linux describes it, and this one.
#include "base/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <Kokkos_Core.hpp>
#include <cstring>
#include <vector>

namespace trireme {
namespace {

TEST(Machine, ReadsProcFiles) {
  EXPECT_EQ(detail::cpu_model("processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum "
                              "8481C CPU @ 2.70GHz\nmodel name\t: other\n"),
            "Intel Xeon Platinum 8481C");
  EXPECT_EQ(detail::cpu_model("model name : AMD EPYC 7763 64-Core Processor\n"),
            "AMD EPYC 7763 64-Core");
  EXPECT_EQ(detail::cpu_model("model\t: 1\nBogoMIPS : 2\n"), "");
  EXPECT_EQ(detail::cpu_model(""), "");
  EXPECT_EQ(detail::cpu_isa("flags\t\t: fpu avx avx2 avx512f amx_tile amx_bf16\n"),
            "AVX-512, AMX");
  EXPECT_EQ(detail::cpu_isa("flags : fpu avx avx2 avx512\n"), "AVX2");
  EXPECT_EQ(detail::cpu_isa("flags : avx\n"), "AVX");
  EXPECT_EQ(detail::cpu_isa("Features : fp asimd sve\n"), "SVE");
  EXPECT_EQ(detail::cpu_isa("flags :\n"), "");
  EXPECT_EQ(detail::proc_bytes("VmPeak:\t 9 kB\nVmHWM:\t   1234 kB\n", "VmHWM"),
            1234 * 1024);
  EXPECT_EQ(detail::proc_bytes("VmPeak:\t 9 kB\n", "VmHWM"), 0);
  EXPECT_EQ(detail::proc_umask("Name:\tx\nUmask:\t0027\nState:\tR\n"), 027);
  EXPECT_EQ(detail::proc_umask("Name:\tx\n"), -1);
}

TEST(Machine, ThisOne) {
  const Machine machine = find_machine();
  EXPECT_FALSE(machine.host.empty());
  EXPECT_GE(machine.cores, 1);
  EXPECT_EQ(machine.threads, Kokkos::DefaultHostExecutionSpace().concurrency());
  EXPECT_GT(machine.memory_bytes, 64 << 20);
  EXPECT_FALSE(machine.backend.empty());
  EXPECT_EQ(machine.device.empty(),
            machine.backend != "CUDA" && machine.backend != "HIP");
}

TEST(Machine, KnowsItsUmask) {
  const mode_t former = ::umask(0137);
  EXPECT_EQ(current_umask(), 0137);
  ::umask(former);
}

TEST(Machine, PeakOfTheProcessGrowsWithIt) {
  const std::int64_t before = peak_process_bytes();
  ASSERT_GT(before, 1 << 20);
  constexpr std::size_t size = 512 << 20;
  std::vector<char> memory(size);
  std::memset(memory.data(), 1, size);
  EXPECT_GE(peak_process_bytes(), static_cast<std::int64_t>(size) + (1 << 20));
}

}  // namespace
}  // namespace trireme
