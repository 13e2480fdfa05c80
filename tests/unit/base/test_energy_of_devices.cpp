// Energy of a device, as a library that is made for it tells.
#include "base/device_energy.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace trireme {
namespace {

class EnergyOfDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const path = std::getenv("TRIREME_FAKE_NVML");
    if (path == nullptr) {
      GTEST_SKIP() << "NO NVML: TRIREME_FAKE_NVML, as ctest sets it, names the library "
                      "that stands in its place, and no device is asked";
    }
    fake_library_ = path;
  }

  std::string fake_library_;
};

TEST_F(EnergyOfDevices, IsWhatWasDrawnSinceTheLastLook) {
  DeviceEnergy energy("GPU-one", fake_library_);
  ASSERT_TRUE(energy.is_known());
  EXPECT_DOUBLE_EQ(energy.take_joules(), 1.5);
  EXPECT_DOUBLE_EQ(energy.take_joules(), 1.5);
  ::setenv("TRIREME_FAKE_NVML_FAILS", "1", 1);
  EXPECT_EQ(energy.take_joules(), 0.0) << "of a reading that fails";
  EXPECT_FALSE(DeviceEnergy("GPU-one", fake_library_).is_known());
  ::unsetenv("TRIREME_FAKE_NVML_FAILS");
  EXPECT_DOUBLE_EQ(energy.take_joules(), 1.5) << "and nothing is lost";
}

TEST_F(EnergyOfDevices, OfWhatIsNotThereIsNotKnown) {
  EXPECT_FALSE(DeviceEnergy("", fake_library_).is_known()) << "no device";
  EXPECT_FALSE(DeviceEnergy("GPU-two", fake_library_).is_known()) << "another device";
  DeviceEnergy none("GPU-one", "libtrireme-no-such-library.so.1");
  EXPECT_FALSE(none.is_known());
  EXPECT_EQ(none.take_joules(), 0.0);
}

}  // namespace
}  // namespace trireme
