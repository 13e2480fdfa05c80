// base/machine.hpp — the machine a rank runs on, as far as a user wants to know it:
// host, processor, cores, memory, Kokkos backend and device.
#ifndef TRIREME_BASE_MACHINE_HPP_
#define TRIREME_BASE_MACHINE_HPP_

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

struct Machine {
  std::string host;
  std::string cpu;                // "Intel Xeon Platinum 8481C"
  std::string isa;                // the widest: "AVX-512, AMX"; empty where not known
  int cores = 1;                  // this process may run on
  int threads = 1;                // Kokkos runs on
  std::int64_t memory_bytes = 0;  // of the host, or what the container may use
  std::string backend;            // "OpenMP", "CUDA"
  std::string device;             // "NVIDIA H200"; empty where kernels run on the CPU
};

// Describes this machine. Kokkos must be up.
Machine find_machine();

// The permissions that files this process makes do not get.
int current_umask();

// Memory of the host that nobody occupies, in bytes, or what is left of the container's
// or the job's share where that is less; 0 where not known.
std::int64_t available_memory_now();

// The most memory this process has occupied so far, in bytes; 0 where not known.
std::int64_t peak_process_bytes();

namespace detail {
// The model's name from the text of /proc/cpuinfo.
std::string cpu_model(std::string_view cpuinfo);
std::string cpu_isa(std::string_view cpuinfo);
// "VmHWM:   1234 kB" of a /proc file, in bytes; 0 where there is no such line.
std::int64_t proc_bytes(std::string_view text, std::string_view key);
// "Umask:  0022"; -1 where there is no such line.
int proc_umask(std::string_view text);
}  // namespace detail

}  // namespace trireme

#endif  // TRIREME_BASE_MACHINE_HPP_
