// Devices as far as they can be known without one.
#include "base/device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "base/exec.hpp"

namespace trireme {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::StrEq;

auto to_set(const std::map<std::string, std::string>& variables) {
  return device_variables_to_set([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Device, VariablesAreSetWhereTheUserHasNot) {
  EXPECT_THAT(to_set({}),
              ElementsAre(Pair(StrEq("CUDA_DEVICE_MAX_CONNECTIONS"), StrEq("32")),
                          Pair(StrEq("CUDA_MODULE_LOADING"), StrEq("EAGER"))));
  EXPECT_THAT(to_set({{"CUDA_MODULE_LOADING", "LAZY"}}),
              ElementsAre(Pair(StrEq("CUDA_DEVICE_MAX_CONNECTIONS"), StrEq("32"))));
  EXPECT_THAT(to_set({{"CUDA_MODULE_LOADING", ""}, {"CUDA_DEVICE_MAX_CONNECTIONS", "1"}}),
              IsEmpty());
}

// Machine code runs on later ones of its generation; nothing of sm_90a runs elsewhere.
TEST(Device, RunsWhatWasBuiltForItsGeneration) {
  EXPECT_TRUE(runs_build(80, 80));
  EXPECT_TRUE(runs_build(86, 80));
  EXPECT_TRUE(runs_build(90, 90));
  EXPECT_TRUE(runs_build(75, 0));  // a build for host cores asks nothing
  EXPECT_FALSE(runs_build(80, 86));
  EXPECT_FALSE(runs_build(90, 80));
  EXPECT_FALSE(runs_build(80, 90));
  EXPECT_FALSE(runs_build(100, 90));
}

TEST(Device, KernelsReadClosuresAsTheyWereWritten) {
  EXPECT_NO_THROW(check_closures());
}

TEST(Device, ABuildForHostCoresSeesNone) {
  if constexpr (kHostExecution) {
    EXPECT_THAT(visible_devices(), IsEmpty());
    EXPECT_FALSE(current_device().has_value());
    EXPECT_EQ(device_bytes().total, 0);
    EXPECT_EQ(built_capability(), 0);
  } else {
    EXPECT_EQ(built_capability() % 10, 0);
    const auto mine = current_device();
    ASSERT_TRUE(mine.has_value());
    EXPECT_TRUE(runs_build(mine->capability, built_capability()));
    EXPECT_EQ(mine->uuid.size(), std::string("GPU-").size() + 36);
    EXPECT_GT(device_bytes().free, 0);
    EXPECT_LE(device_bytes().free, device_bytes().total);
  }
}

}  // namespace
}  // namespace trireme
