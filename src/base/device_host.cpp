// base/device_host.cpp — device.hpp where kernels run on the host's cores.
#include "base/device.hpp"

namespace trireme {

std::vector<Device> visible_devices() {
  return {};
}

std::optional<Device> current_device() {
  return {};
}

DeviceBytes device_bytes() {
  return {};
}

int built_capability() {
  return 0;
}

void check_closures() {}

void set_device_variables() {}

}  // namespace trireme
