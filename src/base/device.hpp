// base/device.hpp — the devices (GPUs) that this process sees, and the one that it has.
//
// What the CUDA runtime tells is asked for in device_cuda.cpp. Where kernels run on the
// host's cores there is no device: device_host.cpp sees none.
#ifndef TRIREME_BASE_DEVICE_HPP_
#define TRIREME_BASE_DEVICE_HPP_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

struct Device {
  std::string name;     // "NVIDIA A100-SXM4-40GB"
  std::string uuid;     // "GPU-5f3a...": the same in all processes, whatever they see
  std::string address;  // on the PCI bus, as Linux writes it: "0000:c1:00.0"
  int capability = 0;   // compute capability: 80 on an A100, 90 on an H100
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
};

// What this process sees, in the runtime's order. Nothing is begun on any of them. Empty
// where there is none, and in a build for host cores. Throws Error with what to do where
// the driver does not answer.
std::vector<Device> visible_devices();

// The device that this thread's kernels run on; nothing in a build for host cores. Kokkos
// is up.
std::optional<Device> current_device();

// Memory of that device; 0 and 0 without one. What this process has begun there, its CUDA
// context, is not free any more.
struct DeviceBytes {
  std::int64_t free = 0;
  std::int64_t total = 0;
};
DeviceBytes device_bytes();

// The compute capability that kernels of this build were compiled for; 0 without devices.
int built_capability();
// Whether a device can run what was compiled for `built`: later ones of the same
// generation can.
constexpr bool runs_build(int capability, int built) {
  return built == 0 || (capability / 10 == built / 10 && capability >= built);
}

// Throws Error where kernels do not read their arguments as the host wrote them, since
// the compiler lays them out in two ways: every result would be wrong. One launch, and
// waits for it; nothing in a build for host cores. Kokkos is up.
void check_closures();

// Variables that are to be set before CUDA begins, where the user has not: names and
// values. Asks `get` for variables (std::getenv, or a test's).
//   CUDA_DEVICE_MAX_CONNECTIONS  queues of the hardware: with fewer than there are
//                                streams, a stream's kernels wait for another's
//   CUDA_MODULE_LOADING          EAGER: a kernel that is loaded at its first launch may
//                                wait for all that runs, and messages that run wait for
//                                a rank that has not launched its own yet
std::vector<std::pair<const char*, const char*>> device_variables_to_set(
    const std::function<const char*(const char*)>& get);
// Sets them; nothing in a build for host cores. Before there are threads, MPI or CUDA.
void set_device_variables();

}  // namespace trireme

#endif  // TRIREME_BASE_DEVICE_HPP_
