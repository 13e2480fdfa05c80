// base/cpu_features.cpp — the instruction sets the compiler was allowed to use, as a
// constant. Compiled with the flags of all other files; it holds no code. The bits are in
// the order of cpu_check.cpp's table.
#include "base/cpu_check.hpp"

namespace trireme::detail {

const std::uint32_t build_cpu_features = 0
#ifdef __POPCNT__
                                         | 1u << 0
#endif
#ifdef __SSE4_2__
                                         | 1u << 1
#endif
#ifdef __AVX__
                                         | 1u << 2
#endif
#ifdef __AVX2__
                                         | 1u << 3
#endif
#ifdef __FMA__
                                         | 1u << 4
#endif
#ifdef __BMI__
                                         | 1u << 5
#endif
#ifdef __BMI2__
                                         | 1u << 6
#endif
#ifdef __LZCNT__
                                         | 1u << 7
#endif
#ifdef __AVX512F__
                                         | 1u << 8
#endif
#ifdef __AVX512CD__
                                         | 1u << 9
#endif
#ifdef __AVX512BW__
                                         | 1u << 10
#endif
#ifdef __AVX512DQ__
                                         | 1u << 11
#endif
#ifdef __AVX512VL__
                                         | 1u << 12
#endif
#ifdef __AVX512VBMI__
                                         | 1u << 13
#endif
#ifdef __AVX512VBMI2__
                                         | 1u << 14
#endif
#ifdef __AVX512VNNI__
                                         | 1u << 15
#endif
#ifdef __AVX512VPOPCNTDQ__
                                         | 1u << 16
#endif
#ifdef __AVX512BF16__
                                         | 1u << 17
#endif
    ;

}  // namespace trireme::detail
