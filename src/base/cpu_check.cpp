// base/cpu_check.cpp — compiled for the plainest CPU of its kind (CMakeLists.txt), and
// plain in its means, since it runs before anything is known about the CPU.
#include "base/cpu_check.hpp"

#include <cstdio>

#include "base/cpu_feature_list.hpp"

namespace trireme {

namespace detail {

const char* cpu_feature_name(int bit) noexcept {
#define TRIREME_NAME(name, macro) name,
  static const char* const names[kCpuFeatureCount] = {
      TRIREME_FOR_EACH_CPU_FEATURE(TRIREME_NAME)};
  return bit >= 0 && bit < kCpuFeatureCount ? names[bit] : "?";
}

#if defined(__x86_64__)
std::uint32_t host_cpu_features() noexcept {
  __builtin_cpu_init();
  // __builtin_cpu_supports takes literals only; it also asks whether the system saves the
  // wide registers.
  std::uint32_t features = 0;
  int bit = 0;
#define TRIREME_ADD(name, macro) \
  features |= (__builtin_cpu_supports(name) != 0 ? 1u : 0u) << bit++;
  TRIREME_FOR_EACH_CPU_FEATURE(TRIREME_ADD)
  return features;
}
#else
std::uint32_t host_cpu_features() noexcept {
  return ~std::uint32_t{0};
}
#endif

bool explain_cpu_features(std::uint32_t needed, std::uint32_t offered, char* message,
                          std::size_t size) noexcept {
  const std::uint32_t lacking = needed & ~offered;
  if (lacking == 0) return true;
  char names[256] = "";
  std::size_t used = 0;
  for (int bit = 0; bit < kCpuFeatureCount; ++bit) {
    if ((lacking >> bit & 1u) == 0) continue;
    const int written = std::snprintf(names + used, sizeof names - used, "%s%s",
                                      used == 0 ? "" : ", ", cpu_feature_name(bit));
    if (written > 0) used += static_cast<std::size_t>(written);
    if (used >= sizeof names) break;
  }
  std::snprintf(
      message, size,
      "this program was built with TRIREME_ARCH=%s and uses instructions "
      "that this machine's CPU does not have: %s.\n"
      "Build it on this kind of machine (cmake -DTRIREME_ARCH=native), or for every "
      "x86-64 machine since 2013 (cmake -DTRIREME_ARCH=x86-64-v3).",
      TRIREME_ARCH_NAME, names);
  return false;
}

}  // namespace detail

bool cpu_runs_this_build(char* message, std::size_t size) noexcept {
  return detail::explain_cpu_features(detail::build_cpu_features,
                                      detail::host_cpu_features(), message, size);
}

}  // namespace trireme
