// base/device_energy.cpp — see device_energy.hpp.
//
// Three functions of NVML (NVIDIA Management Library API reference): nvmlInit_v2,
// nvmlDeviceGetHandleByUUID, and nvmlDeviceGetTotalEnergyConsumption, which Volta and
// later devices have. They are asked for by name, so that nodes without the driver begin
// all the same and a build needs no header of it; 0 is success of each.
#include "base/device_energy.hpp"

#include <dlfcn.h>

namespace trireme {

namespace {

template <class Function>
Function function_of(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

}  // namespace

DeviceEnergy::DeviceEnergy(const std::string& uuid, const std::string& library) {
  if (uuid.empty()) return;
  // Stays loaded: other threads of the driver may be in it when this ends.
  void* const opened = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) return;
  const auto init = function_of<int (*)()>(opened, "nvmlInit_v2");
  const auto find =
      function_of<int (*)(const char*, void**)>(opened, "nvmlDeviceGetHandleByUUID");
  const auto energy =
      function_of<ReadEnergy>(opened, "nvmlDeviceGetTotalEnergyConsumption");
  if (init == nullptr || find == nullptr || energy == nullptr) return;
  if (init() != 0 || find(uuid.c_str(), &device_) != 0) return;
  energy_ = energy;
  const std::optional<unsigned long long> now = read();
  if (!now) energy_ = nullptr;
  last_ = now.value_or(0);
}

std::optional<unsigned long long> DeviceEnergy::read() const {
  unsigned long long millijoules = 0;
  if (energy_ == nullptr || energy_(device_, &millijoules) != 0) return {};
  return millijoules;
}

// The count begins anew when the driver is loaded again, which this process does not
// survive.
double DeviceEnergy::take_joules() {
  constexpr double kMilli = 1e-3;
  const std::optional<unsigned long long> now = read();
  if (!now || *now < last_) return 0.0;
  const double joules = kMilli * static_cast<double>(*now - last_);
  last_ = *now;
  return joules;
}

}  // namespace trireme
