// base/cpu_features.cpp — the instruction sets the compiler was allowed to use, as a
// constant. Compiled with the flags of all other files; it holds no code.
#include "base/cpu_check.hpp"
#include "base/cpu_feature_list.hpp"

namespace trireme::detail {
namespace {

// The text of a macro is its value, 1, where it is defined, and its own name where not.
#define TRIREME_TEXT_OF(macro) #macro
#define TRIREME_IS_DEFINED(name, macro) TRIREME_TEXT_OF(macro)[0] == '1',
constexpr bool kIsUsed[] = {TRIREME_FOR_EACH_CPU_FEATURE(TRIREME_IS_DEFINED)};
static_assert(sizeof kIsUsed == kCpuFeatureCount);

constexpr std::uint32_t bits_used() {
  std::uint32_t bits = 0;
  for (int bit = 0; bit < kCpuFeatureCount; ++bit)
    bits |= (kIsUsed[bit] ? 1u : 0u) << bit;
  return bits;
}

}  // namespace

constinit const std::uint32_t build_cpu_features = bits_used();

}  // namespace trireme::detail
