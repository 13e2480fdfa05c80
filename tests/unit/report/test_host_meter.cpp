// Energy and clocks of a host, by a system directory that is made for it.
#include "report/host_meter.hpp"

#include <gtest/gtest.h>

#include "unit/io/scratch.hpp"

namespace trireme::report {
namespace {

namespace fs = std::filesystem;

class HostMeterOfASystem : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) const {
    fs::create_directories((scratch_ / name).parent_path());
    test::spill(scratch_ / name, text);
  }
  void set_energy(const std::string& domain, std::uint64_t microjoules) const {
    put("class/powercap/" + domain + "/energy_uj", std::to_string(microjoules) + "\n");
    put("class/powercap/" + domain + "/max_energy_range_uj", "262143328850\n");
  }
  test::Scratch scratch_;
};

TEST_F(HostMeterOfASystem, AddsUpPackagesWhoseCountersWrap) {
  set_energy("intel-rapl:0", 5'000'000);
  set_energy("intel-rapl:0:0", 1'000'000);  // a part of the first
  set_energy("intel-rapl:1", 262'143'000'000);
  put("class/powercap/intel-rapl/enabled", "1\n");
  HostMeter meter(true, scratch_.path());
  EXPECT_TRUE(meter.has_energy());
  EXPECT_EQ(meter.take_joules(), 0.0);
  set_energy("intel-rapl:0", 7'500'000);
  set_energy("intel-rapl:0:0", 9'000'000);
  set_energy("intel-rapl:1", 1'000'000);
  EXPECT_NEAR(meter.take_joules(), 2.5 + 1.32885, 1e-9);
  EXPECT_EQ(meter.take_joules(), 0.0);
  EXPECT_FALSE(HostMeter(false, scratch_.path()).has_energy()) << "another rank reads it";
}

// A counter that wraps twice between two reports, and is looked at in between.
TEST_F(HostMeterOfASystem, LooksMoreOftenThanItIsAsked) {
  set_energy("intel-rapl:0", 262'143'000'000);
  HostMeter meter(true, scratch_.path(), std::chrono::seconds(0));
  set_energy("intel-rapl:0", 200'000'000'000);
  meter.look();
  set_energy("intel-rapl:0", 100'000'000'000);
  EXPECT_NEAR(meter.take_joules(), 2 * 262143.32885 - 162143.0, 1e-6);
  HostMeter seldom(true, scratch_.path());
  set_energy("intel-rapl:0", 150'000'000'000);
  seldom.look();  // it is too early
  set_energy("intel-rapl:0", 100'000'000'001);
  EXPECT_NEAR(seldom.take_joules(), 1e-6, 1e-9);
}

TEST_F(HostMeterOfASystem, ClocksAreTheMeanOfCores) {
  put("devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2000000\n");
  put("devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3000000\n");
  put("devices/system/cpu/online", "0-1\n");
  EXPECT_EQ(HostMeter(false, scratch_.path()).hertz(), 2.5e9);
}

TEST_F(HostMeterOfASystem, OfASystemThatDoesNotSayIsNothing) {
  HostMeter meter(true, scratch_ / "none");
  EXPECT_FALSE(meter.has_energy());
  EXPECT_EQ(meter.take_joules(), 0.0);
  EXPECT_EQ(meter.hertz(), 0.0);
}

}  // namespace
}  // namespace trireme::report
