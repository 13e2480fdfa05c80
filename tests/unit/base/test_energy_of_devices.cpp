// Energy of a device, as a library that is made for it tells.
#include "base/device_energy.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace trireme {
namespace {

const char* fake_library() {
  const char* path = std::getenv("TRIREME_FAKE_NVML");
  return path != nullptr ? path : "TRIREME_FAKE_NVML is not set";
}

TEST(EnergyOfDevices, IsWhatWasDrawnSinceTheLastLook) {
  DeviceEnergy energy("GPU-one", fake_library());
  ASSERT_TRUE(energy.is_known());
  EXPECT_DOUBLE_EQ(energy.take_joules(), 1.5);
  EXPECT_DOUBLE_EQ(energy.take_joules(), 1.5);
  ::setenv("TRIREME_FAKE_NVML_FAILS", "1", 1);
  EXPECT_EQ(energy.take_joules(), 0.0) << "of a reading that fails";
  EXPECT_FALSE(DeviceEnergy("GPU-one", fake_library()).is_known());
  ::unsetenv("TRIREME_FAKE_NVML_FAILS");
  EXPECT_DOUBLE_EQ(energy.take_joules(), 1.5) << "and nothing is lost";
}

TEST(EnergyOfDevices, OfWhatIsNotThereIsNotKnown) {
  EXPECT_FALSE(DeviceEnergy("", fake_library()).is_known()) << "no device";
  EXPECT_FALSE(DeviceEnergy("GPU-two", fake_library()).is_known()) << "another device";
  DeviceEnergy none("GPU-one", "libtrireme-no-such-library.so.1");
  EXPECT_FALSE(none.is_known());
  EXPECT_EQ(none.take_joules(), 0.0);
}

}  // namespace
}  // namespace trireme
