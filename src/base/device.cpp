// base/device.cpp — see device.hpp: what needs no device to be asked.
#include "base/device.hpp"

namespace trireme {

std::vector<std::pair<const char*, const char*>> device_variables_to_set(
    const std::function<const char*(const char*)>& get) {
  std::vector<std::pair<const char*, const char*>> unset;
  for (const auto& variable : {std::pair{"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
                               std::pair{"CUDA_MODULE_LOADING", "EAGER"}}) {
    if (get(variable.first) == nullptr) unset.push_back(variable);
  }
  return unset;
}

}  // namespace trireme
