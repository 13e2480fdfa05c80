// base/device_energy.hpp — what a GPU has drawn, where NVIDIA's management library (NVML)
// tells.
#ifndef TRIREME_BASE_DEVICE_ENERGY_HPP_
#define TRIREME_BASE_DEVICE_ENERGY_HPP_

#include <optional>
#include <string>

namespace trireme {

class DeviceEnergy {
 public:
  // Of the device with this Device::uuid; none is read where it is empty. The library
  // comes with the driver, and is loaded here.
  explicit DeviceEnergy(const std::string& uuid,
                        const std::string& library = "libnvidia-ml.so.1");

  bool is_known() const { return energy_ != nullptr; }
  // Joules since the last call, or since construction; 0 where they are not known.
  double take_joules();

 private:
  using ReadEnergy = int (*)(void* device, unsigned long long* millijoules);
  std::optional<unsigned long long> read() const;

  void* device_ = nullptr;
  ReadEnergy energy_ = nullptr;
  unsigned long long last_ = 0;  // millijoules since the driver was loaded
};

}  // namespace trireme

#endif  // TRIREME_BASE_DEVICE_ENERGY_HPP_
