// base/types.hpp — element types: 2-byte bf16 and fp16, and the run-time tag DType.
//
// Kokkos' own bhalf_t is an alias of float where no GPU back end is on; byte counts,
// messages and checkpoints would then differ between builds. These are always two bytes.
#ifndef TRIREME_BASE_TYPES_HPP_
#define TRIREME_BASE_TYPES_HPP_

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace trireme {

// Sizes, offsets and their products: always 64 bits.
using index_t = std::int64_t;
// An index as Kokkos, MPI and the standard library want it.
constexpr std::size_t extent(index_t n) {
  return static_cast<std::size_t>(n);
}

// Conversions of both types choose between results and do not branch, so that the
// compiler makes vectors of them; a GPU has instructions for them, of which the NaNs are
// others. Both round to nearest even.

// Brain floating point: the upper half of a float.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  KOKKOS_FUNCTION explicit bf16(float value) {
#if defined(__CUDA_ARCH__)
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const auto word = Kokkos::bit_cast<std::uint32_t>(value);
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    const std::uint32_t quiet = (word >> 16) | 0x40u;  // never rounded to infinity
    const std::uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    bits = static_cast<std::uint16_t>(is_nan ? quiet : rounded);
#endif
  }
  KOKKOS_FUNCTION operator float() const {
    return Kokkos::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};
static_assert(sizeof(bf16) == 2);

// IEEE 754 binary16; overflow goes to infinity.
struct fp16 {
  std::uint16_t bits = 0;

  fp16() = default;
  KOKKOS_FUNCTION explicit fp16(float value) {
#if defined(__CUDA_ARCH__)
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const auto word = Kokkos::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 16) & 0x8000u;
    const std::uint32_t magnitude = word & 0x7fffffffu;
    // Of a subnormal result the float adder does the rounding.
    const float sum = Kokkos::bit_cast<float>(magnitude) + 0.5f;
    const std::uint32_t subnormal = Kokkos::bit_cast<std::uint32_t>(sum) - 0x3f000000u;
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + odd) >> 13;
    std::uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result;  // rounds to 65536 or more
    result = magnitude > 0x7f800000u ? 0x7e00u : result;   // NaN
    bits = static_cast<std::uint16_t>(sign | result);
#endif
  }
  KOKKOS_FUNCTION operator float() const {
#if defined(__CUDA_ARCH__)
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fu;
    const std::uint32_t mantissa = bits & 0x3ffu;
    // Zero or subnormal: mantissa * 2^-24.
    const float small =
        static_cast<float>(static_cast<std::int32_t>(mantissa)) * 5.9604644775390625e-8f;
    const std::uint32_t exponent_bits =
        exponent == 0x1fu ? 0x7f800000u : (exponent + 112u) << 23;
    const std::uint32_t magnitude = exponent == 0u
                                        ? Kokkos::bit_cast<std::uint32_t>(small)
                                        : exponent_bits | (mantissa << 13);
    return Kokkos::bit_cast<float>(sign | magnitude);
#endif
  }
};
static_assert(sizeof(fp16) == 2);

enum class DType : std::uint8_t {
  float32,
  float64,
  bfloat16,
  float16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64
};

// Bytes of one element.
std::size_t size_of(DType type);
// "float32", "bfloat16", ...
std::string_view name_of(DType type);

namespace detail {
template <class T>
struct DTypeOf;
#define TRIREME_DTYPE_OF(type, tag)            \
  template <>                                  \
  struct DTypeOf<type> {                       \
    static constexpr DType value = DType::tag; \
  }
TRIREME_DTYPE_OF(float, float32);
TRIREME_DTYPE_OF(double, float64);
TRIREME_DTYPE_OF(bf16, bfloat16);
TRIREME_DTYPE_OF(fp16, float16);
TRIREME_DTYPE_OF(std::int32_t, int32);
TRIREME_DTYPE_OF(std::int64_t, int64);
TRIREME_DTYPE_OF(std::uint8_t, uint8);
TRIREME_DTYPE_OF(std::uint16_t, uint16);
TRIREME_DTYPE_OF(std::uint32_t, uint32);
TRIREME_DTYPE_OF(std::uint64_t, uint64);
#undef TRIREME_DTYPE_OF

template <class T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
}  // namespace detail

template <class T>
inline constexpr DType dtype_of = detail::DTypeOf<T>::value;

// What sums, statistics, master weights, gradients and optimizer state are kept in when
// activations are T: float, or double where T is double (gradient checks).
template <class T>
using Accumulator = typename detail::AccumulatorOf<T>::type;

// Whether gradients of weights may be kept in T, too, instead of its Accumulator. fp16
// has too small a range for them: the loss scale would have to suit the largest sum.
template <class T>
inline constexpr bool has_narrow_gradients = std::is_same_v<T, bf16>;

// Expands X(T) for every element type that kernels and models are instantiated for.
#define TRIREME_FOR_EACH_REAL(X) X(float) X(double) X(::trireme::bf16) X(::trireme::fp16)
// The same of X(T, G) with every type G that gradients may have beside T.
#define TRIREME_FOR_EACH_GRADIENT(X)  \
  X(float, float)                     \
  X(double, double)                   \
  X(::trireme::bf16, float)           \
  X(::trireme::bf16, ::trireme::bf16) \
  X(::trireme::fp16, float)

}  // namespace trireme

#endif  // TRIREME_BASE_TYPES_HPP_
