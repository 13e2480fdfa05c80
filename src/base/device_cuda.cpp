// base/device_cuda.cpp — device.hpp for NVIDIA GPUs, by the CUDA runtime.
//
// Properties are read without a context: a process that only looks takes no memory of
// the devices that belong to others.
#include <cuda_runtime.h>

#include <cstdlib>

#include "base/cuda_driver.hpp"
#include "base/device.hpp"
#include "base/error.hpp"

namespace trireme {

namespace {

void check_device(cudaError_t status, const char* call) {
  TRIREME_REQUIRE(status == cudaSuccess, "{}: {}", call, cudaGetErrorString(status));
}

// "13.0" for 13000, as CUDA counts versions.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

[[noreturn]] void refuse_driver(cudaError_t status) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (status == cudaErrorInsufficientDriver) {
    throw InputError(fmt::format(
        "the GPU's driver knows CUDA up to {}, and this program was built with {}: "
        "build it with an older toolkit, or ask for a newer driver (nvidia-smi shows it)",
        version_text(driver), version_text(CUDART_VERSION)));
  }
  throw Error(fmt::format(
      "CUDA cannot count the GPUs: {}. Does nvidia-smi show them on this node? A GPU "
      "that "
      "has failed, or that another job has for itself, is the node's affair: leave the "
      "node out (sbatch --exclude=NODE)",
      cudaGetErrorString(status)));
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

Device describe(int index) {
  cudaDeviceProp properties = {};
  check_device(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return {.name = properties.name,
          .uuid = uuid_text(properties.uuid),
          .address = fmt::format("{:04x}:{:02x}:{:02x}.0",
                                 static_cast<unsigned>(properties.pciDomainID),
                                 static_cast<unsigned>(properties.pciBusID),
                                 static_cast<unsigned>(properties.pciDeviceID)),
          .capability = 10 * properties.major + properties.minor,
          .multiprocessors = properties.multiProcessorCount,
          .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem)};
}

}  // namespace

std::vector<Device> visible_devices() {
  if (!has_cuda_driver()) return {};
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice) return {};
  if (status != cudaSuccess) refuse_driver(status);
  std::vector<Device> devices;
  for (int index = 0; index < count; ++index) devices.push_back(describe(index));
  return devices;
}

std::optional<Device> current_device() {
  int index = 0;
  check_device(cudaGetDevice(&index), "cudaGetDevice");
  return describe(index);
}

DeviceBytes device_bytes() {
  std::size_t free = 0, total = 0;
  check_device(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
}

int built_capability() {
  return TRIREME_CUDA_ARCHITECTURE;
}

void set_device_variables() {
  for (const auto& [name, value] :
       device_variables_to_set([](const char* name) { return std::getenv(name); })) {
    ::setenv(name, value, 0);
  }
}

}  // namespace trireme
