// base/cpu_feature_list.hpp — private to src/base: the instruction sets that a compiler
// may use unasked. Expands X(name, macro) for each: its name to GCC and to people, and
// what a compiler defines where it may use it. The order is that of the bits.
#ifndef TRIREME_BASE_CPU_FEATURE_LIST_HPP_
#define TRIREME_BASE_CPU_FEATURE_LIST_HPP_

#define TRIREME_FOR_EACH_CPU_FEATURE(X)     \
  X("popcnt", __POPCNT__)                   \
  X("sse4.2", __SSE4_2__)                   \
  X("avx", __AVX__)                         \
  X("avx2", __AVX2__)                       \
  X("fma", __FMA__)                         \
  X("bmi", __BMI__)                         \
  X("bmi2", __BMI2__)                       \
  X("lzcnt", __LZCNT__)                     \
  X("avx512f", __AVX512F__)                 \
  X("avx512cd", __AVX512CD__)               \
  X("avx512bw", __AVX512BW__)               \
  X("avx512dq", __AVX512DQ__)               \
  X("avx512vl", __AVX512VL__)               \
  X("avx512vbmi", __AVX512VBMI__)           \
  X("avx512vbmi2", __AVX512VBMI2__)         \
  X("avx512vnni", __AVX512VNNI__)           \
  X("avx512vpopcntdq", __AVX512VPOPCNTDQ__) \
  X("avx512bf16", __AVX512BF16__)

#endif  // TRIREME_BASE_CPU_FEATURE_LIST_HPP_
