// base/cpu_check.hpp — does this CPU have every instruction set the program was built
// for?
//
// TRIREME_ARCH=native (the default) gives a program that dies of SIGILL on an older node
// of the same cluster. main() asks here first and can say so in words instead. Nothing
// here throws, allocates or uses a template: their code may be that of a file compiled
// with the very instructions in question. This file's own sources are compiled without
// TRIREME_ARCH.
#ifndef TRIREME_BASE_CPU_CHECK_HPP_
#define TRIREME_BASE_CPU_CHECK_HPP_

#include <cstddef>
#include <cstdint>

namespace trireme {

// True where this CPU can run this build. Otherwise `message` (at most `size` bytes,
// ended by 0) says what is lacking and how to build for this machine.
bool cpu_runs_this_build(char* message, std::size_t size) noexcept;

namespace detail {

// One bit per instruction set that a compiler may use unasked; bit i is named
// cpu_feature_name(i).
inline constexpr int kCpuFeatureCount = 18;
const char* cpu_feature_name(int bit) noexcept;

// What the compiler was allowed to use; constant data, compiled with TRIREME_ARCH.
extern const std::uint32_t build_cpu_features;
// What this CPU and its operating system offer; all bits on processors other than x86-64.
std::uint32_t host_cpu_features() noexcept;

// The message of cpu_runs_this_build for these two sets; true if none is lacking.
bool explain_cpu_features(std::uint32_t needed, std::uint32_t offered, char* message,
                          std::size_t size) noexcept;

}  // namespace detail

}  // namespace trireme

#endif  // TRIREME_BASE_CPU_CHECK_HPP_
