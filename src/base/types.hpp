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

namespace trireme {

// Sizes, offsets and their products: always 64 bits.
using index_t = std::int64_t;
// An index as Kokkos, MPI and the standard library want it.
constexpr std::size_t extent(index_t n) {
  return static_cast<std::size_t>(n);
}

// Brain floating point: the upper half of a float; conversion rounds to nearest even.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  KOKKOS_FUNCTION explicit bf16(float value) {
    const auto word = Kokkos::bit_cast<std::uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) {  // NaN: keep it quiet, never round to inf
      bits = static_cast<std::uint16_t>((word >> 16) | 0x40u);
    } else {
      bits = static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
    }
  }
  KOKKOS_FUNCTION operator float() const {
    return Kokkos::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};
static_assert(sizeof(bf16) == 2);

// IEEE 754 binary16; conversion rounds to nearest even, overflow goes to infinity.
struct fp16 {
  std::uint16_t bits = 0;

  fp16() = default;
  KOKKOS_FUNCTION explicit fp16(float value) {
    const auto word = Kokkos::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 16) & 0x8000u;
    const std::uint32_t magnitude = word & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {  // NaN
      bits = static_cast<std::uint16_t>(sign | 0x7e00u);
    } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more
      bits = static_cast<std::uint16_t>(sign | 0x7c00u);
    } else if (magnitude <
               0x38800000u) {  // subnormal: let the float adder do the rounding
      const float sum = Kokkos::bit_cast<float>(magnitude) + 0.5f;
      bits = static_cast<std::uint16_t>(
          sign | (Kokkos::bit_cast<std::uint32_t>(sum) - 0x3f000000u));
    } else {
      const std::uint32_t odd = (magnitude >> 13) & 1u;
      bits = static_cast<std::uint16_t>(sign |
                                        ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
    }
  }
  KOKKOS_FUNCTION operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fu;
    const std::uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
      const float value = static_cast<float>(mantissa) * 5.9604644775390625e-8f;
      return sign != 0 ? -value : value;
    }
    if (exponent == 0x1f) {
      return Kokkos::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    }
    return Kokkos::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
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

// Expands X(T) for every element type that kernels are instantiated for.
#define TRIREME_FOR_EACH_REAL(X) X(float) X(double) X(::trireme::bf16) X(::trireme::fp16)
// The same for those that a model can be made of, and its memory planned in.
#define TRIREME_FOR_EACH_MODEL_TYPE(X) X(float) X(double) X(::trireme::bf16)

}  // namespace trireme

#endif  // TRIREME_BASE_TYPES_HPP_
