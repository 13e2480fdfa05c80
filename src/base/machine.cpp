// base/machine.cpp — see machine.hpp.
//
// What Linux tells in /proc and /sys is read as text by functions that take that text as
// an argument, so that tests can give them the text of other machines. A file that is not
// there is no error: its figure is then not known, and is left out of what is shown.
#include "base/machine.hpp"

#include <fmt/format.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "base/exec.hpp"
#include "base/host_cores.hpp"
#include "base/host_name.hpp"
#include "base/memory_group.hpp"
#include "base/words.hpp"

namespace trireme {

namespace {

// Empty where it cannot be read: not every system has all of them.
std::string proc_text(const char* path) {
  const std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// What follows "key ... :" on the first line that begins so.
std::string_view value_of(std::string_view text, std::string_view key) {
  for (const std::string_view line : lines_of(text)) {
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && trimmed(line.substr(0, colon)) == key) {
      return trimmed(line.substr(colon + 1));
    }
  }
  return {};
}

void erase_all(std::string& text, std::string_view part) {
  for (std::size_t at; (at = text.find(part)) != std::string::npos;) {
    text.erase(at, part.size());
  }
}

int available_cores() {
  const auto allowed = static_cast<unsigned>(allowed_cores().size());
  const unsigned cores = allowed > 0 ? allowed : std::thread::hardware_concurrency();
  return static_cast<int>(std::max(1u, cores));
}

std::optional<MemoryGroup> this_memory_group() {
  return memory_group("/sys/fs/cgroup", proc_text("/proc/self/cgroup"));
}

std::int64_t available_memory() {
  const std::int64_t bytes = detail::proc_bytes(proc_text("/proc/meminfo"), "MemTotal");
  const auto group = this_memory_group();  // a container's, or a job's
  return group && (bytes == 0 || group->limit < bytes) ? group->limit : bytes;
}

// Spaces with a device know its properties; host spaces have no such member.
template <class Space>
std::string device_name(const Space& space) {
  if constexpr (requires { space.cuda_device_prop().name; }) {
    return space.cuda_device_prop().name;
  } else if constexpr (requires { space.hip_device_prop().name; }) {
    return space.hip_device_prop().name;
  } else {
    return {};
  }
}

std::string backend_name() {
  const std::string name = ExecSpace::name();
  return name == "Cuda" ? "CUDA" : name;
}

}  // namespace

namespace detail {

std::string cpu_model(std::string_view cpuinfo) {
  std::string model(value_of(cpuinfo, "model name"));
  for (const char* noise : {"(R)", "(r)", "(TM)", "(tm)", " CPU", " Processor"}) {
    erase_all(model, noise);
  }
  model = model.substr(0, model.find(" @ "));  // a clock that nothing runs at
  erase_all(model, "  ");
  return std::string(trimmed(model));
}

std::string cpu_isa(std::string_view cpuinfo) {
  const std::string x86 = fmt::format(" {} ", value_of(cpuinfo, "flags"));
  const std::string arm = fmt::format(" {} ", value_of(cpuinfo, "Features"));
  const auto has = [&](const char* flag) {
    const std::string word = fmt::format(" {} ", flag);
    return x86.find(word) != std::string::npos || arm.find(word) != std::string::npos;
  };
  std::string isa = has("avx512f") ? "AVX-512"
                    : has("avx2")  ? "AVX2"
                    : has("avx")   ? "AVX"
                    : has("sve2")  ? "SVE2"
                    : has("sve")   ? "SVE"
                    : has("asimd") ? "NEON"
                                   : "";
  if (has("amx_tile")) isa += ", AMX";
  return isa;
}

std::int64_t proc_bytes(std::string_view text, std::string_view key) {
  const std::string_view value = value_of(text, key);  // "16284 kB"
  return 1024 * number_in<std::int64_t>(value.substr(0, value.find(' '))).value_or(0);
}

int proc_umask(std::string_view text) {
  return number_in<int>(value_of(text, "Umask"), 8).value_or(-1);
}

}  // namespace detail

Machine find_machine() {
  Machine machine;
  machine.host = host_name();
  const std::string cpuinfo = proc_text("/proc/cpuinfo");
  machine.cpu = detail::cpu_model(cpuinfo);
  machine.isa = detail::cpu_isa(cpuinfo);
  machine.cores = available_cores();
  machine.threads = Kokkos::DefaultHostExecutionSpace().concurrency();
  machine.memory_bytes = available_memory();
  machine.backend = backend_name();
  machine.device = device_name(ExecSpace());
  return machine;
}

// ::umask() tells it only by setting another, for all threads.
int current_umask() {
  return detail::proc_umask(proc_text("/proc/self/status"));
}

std::int64_t available_memory_now() {
  const std::int64_t bytes =
      detail::proc_bytes(proc_text("/proc/meminfo"), "MemAvailable");
  const auto group = this_memory_group();
  return group && (bytes == 0 || group->left < bytes) ? group->left : bytes;
}

std::int64_t peak_process_bytes() {
  return detail::proc_bytes(proc_text("/proc/self/status"), "VmHWM");
}

}  // namespace trireme
