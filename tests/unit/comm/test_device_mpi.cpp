// When MPI may be given pointers to a GPU's memory: by what libraries say of themselves,
// and by their own variables.
#include "comm/device_mpi.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "unit/io/scratch.hpp"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

constexpr const char* kNone = "(nothing thrown)";
constexpr const char* kMpich = "MPICH Version:\t4.2.0\n";
constexpr const char* kOpenMpi = "Open MPI v5.0.2, package: ...";
constexpr const char* kCray = "MPI VERSION    : CRAY MPICH version 8.1.28.15";
constexpr const char* kMvapich = "MVAPICH2 Version      : 2.3.7";

MpiDeviceFacts on_device(const std::string& library, std::optional<bool> says) {
  return {.has_device = true,
          .transport = TransportKind::mpi,
          .library = library,
          .says_cuda = says};
}

bool choice(const Variables& variables, const MpiDeviceFacts& facts) {
  return choose_device_mpi(
      [&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      facts);
}

std::string refusal(Variables variables, const MpiDeviceFacts& facts) {
  variables.emplace("TRIREME_MPI_DEVICE", "1");
  return test::message_of<InputError>([&] { choice(variables, facts); });
}

TEST(DeviceMpi, IsAskedForInOneWord) {
  const MpiDeviceFacts good = on_device(kMpich, true);
  EXPECT_FALSE(choice({}, good));
  EXPECT_FALSE(choice({{"TRIREME_MPI_DEVICE", ""}}, good));
  EXPECT_FALSE(choice({{"TRIREME_MPI_DEVICE", "0"}}, good));
  EXPECT_TRUE(choice({{"TRIREME_MPI_DEVICE", "1"}}, good));
  EXPECT_THAT(refusal({{"TRIREME_MPI_DEVICE", "yes"}}, good),
              HasSubstr("TRIREME_MPI_DEVICE is 'yes'; it may be 1"));
  // Whoever does not ask for it is told nothing of what is missing.
  EXPECT_FALSE(choice({}, on_device(kOpenMpi, false)));
}

TEST(DeviceMpi, IsRefusedWhereThereIsNoDeviceOrAnotherCarrier) {
  MpiDeviceFacts facts = on_device(kMpich, true);
  facts.transport = TransportKind::nccl;
  EXPECT_THAT(refusal({}, facts), HasSubstr("set TRIREME_TRANSPORT=mpi as well"));
  facts.has_device = false;
  EXPECT_THAT(refusal({}, facts), HasSubstr("built for CPUs"));
}

TEST(DeviceMpi, AsksTheLibrary) {
  EXPECT_EQ(refusal({}, on_device(kMpich, true)), kNone);
  EXPECT_THAT(refusal({}, on_device(kMpich, false)),
              AllOf(HasSubstr("this MPI library does not take pointers"),
                    HasSubstr("--with-cuda"), HasSubstr("or unset it")));
  EXPECT_THAT(refusal({}, on_device(kMpich, {})),
              HasSubstr("this MPI library does not say whether it can take pointers"));
}

// Its blocking calls take such pointers, which is all that it says.
TEST(DeviceMpi, OpenMpisCollectivesDoNotTakePointers) {
  for (const std::optional<bool> says : {std::optional(true), std::optional(false)}) {
    EXPECT_THAT(refusal({}, on_device(kOpenMpi, says)),
                AllOf(HasSubstr("not in non-blocking collectives"), HasSubstr("unset it"),
                      HasSubstr("TRIREME_TRANSPORT=nccl")));
  }
}

TEST(DeviceMpi, AsksTheLibrarysOwnSwitches) {
  EXPECT_THAT(refusal({}, on_device(kCray, {})),
              HasSubstr("Set MPICH_GPU_SUPPORT_ENABLED=1; or unset it"));
  EXPECT_THAT(refusal({{"MPICH_GPU_SUPPORT_ENABLED", "0"}}, on_device(kCray, {})),
              HasSubstr("Set MPICH_GPU_SUPPORT_ENABLED=1"));
  EXPECT_EQ(refusal({{"MPICH_GPU_SUPPORT_ENABLED", "1"}}, on_device(kCray, {})), kNone);
  EXPECT_THAT(refusal({{"MPIR_CVAR_ENABLE_GPU", "0"}}, on_device(kMpich, true)),
              HasSubstr("MPIR_CVAR_ENABLE_GPU=0 switches MPICH's part of it off"));
  EXPECT_EQ(refusal({{"MPIR_CVAR_ENABLE_GPU", "1"}}, on_device(kMpich, true)), kNone);
  EXPECT_THAT(refusal({}, on_device(kMvapich, true)), HasSubstr("Set MV2_USE_CUDA=1"));
  EXPECT_EQ(refusal({{"MV2_USE_CUDA", "1"}}, on_device(kMvapich, true)), kNone);
}

}  // namespace
}  // namespace trireme::comm
