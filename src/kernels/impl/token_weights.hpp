// kernels/impl/token_weights.hpp — what a draw of a token is made of, the same bits on
// every machine: whole numbers as weights, whose sums know no order.
//
// Multiplications and additions are separate here, as g++ compiles them; a source that
// nvcc compiles is named by trireme_plain_arithmetic in CMakeLists.txt. Definition and
// bounds: docs/math/generation.md
#ifndef TRIREME_KERNELS_IMPL_TOKEN_WEIGHTS_HPP_
#define TRIREME_KERNELS_IMPL_TOKEN_WEIGHTS_HPP_

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "base/random.hpp"
#include "kernels/impl/vector_math.hpp"

namespace trireme::kernels {

// The weight of the largest logit. With fewer tokens than kMostTokens all sums are below
// 2^53: exact in double, too.
inline constexpr std::uint64_t kLargestWeight = std::uint64_t{1} << 32;
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 21;

// 2^32 exp((logit - largest) inverse_temperature), rounded to a whole number; 0 where
// that is none. largest is not below logit.
KOKKOS_FORCEINLINE_FUNCTION float token_weight(float logit, float largest,
                                               float inverse_temperature) {
  // The nearest whole number of log2, and what is left of x: |r| <= ln 2 / 2.
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
  const float x = (logit - largest) * inverse_temperature;
  const float shifted = x * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two pieces
  float q = 0x1.6db4eap-10f;  // (exp(r) - 1 - r) / r^2, as vector_exp has it
  q = q * r + 0x1.123bdep-7f;
  q = q * r + 0x1.55545ep-5f;
  q = q * r + 0x1.55548ep-3f;
  q = q * r + 0.5f;
  const float p = (q * r + 1.0f) * r + 1.0f;
  const std::uint32_t word =
      Kokkos::bit_cast<std::uint32_t>(p) +
      ((Kokkos::bit_cast<std::uint32_t>(shifted) + 32u) << 23);  // times 2^(32 + n)
  // Below exp(-23) the weight rounds to 0; NaN, which an infinite difference times 0 is,
  // counts as that.
  const float y = x > -23.0f ? Kokkos::bit_cast<float>(word) : 0.0f;
  constexpr float kWhole =
      8388608.0f;  // 2^23, from which on there are whole numbers only
  return y < kWhole ? (y + kWhole) - kWhole : y;
}

// As token_weight() wants it: one beyond float's numbers is as good as the smallest or
// the largest of them.
inline float inverse_of(double temperature) {
  const double inverse = 1.0 / temperature;
  constexpr auto kMost = static_cast<double>(Kokkos::Experimental::finite_max_v<float>);
  return static_cast<float>(inverse < kMost ? inverse : kMost);
}

// Words in the order of finite logits, in which both zeros are one: a < b where and only
// where order_of(a) < order_of(b). What is not finite is above all others.
KOKKOS_FORCEINLINE_FUNCTION std::uint32_t order_of(float logit) {
  const auto word = Kokkos::bit_cast<std::uint32_t>(logit);
  const std::uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) return 0xffffffffu;
  return word > 0x80000000u ? ~word : magnitude | 0x80000000u;
}

// The upper half of a b.
KOKKOS_FORCEINLINE_FUNCTION std::uint64_t multiply_high(std::uint64_t a,
                                                        std::uint64_t b) {
  constexpr std::uint64_t kLow = 0xffffffffu;
  const std::uint64_t a0 = a & kLow, a1 = a >> 32, b0 = b & kLow, b1 = b >> 32;
  const std::uint64_t low = a0 * b0;
  const std::uint64_t middle = a1 * b0 + (low >> 32);  // below 2^64
  const std::uint64_t other = a0 * b1 + (middle & kLow);
  return a1 * b1 + (middle >> 32) + (other >> 32);
}

// The number u in [0, 1) that decides, in units of 2^-64, of which 53 bits are random.
// owner: the prompt's number + 2^32 the sample's; position: of the token in its text.
KOKKOS_FORCEINLINE_FUNCTION std::uint64_t number_of_draw(std::uint64_t seed,
                                                         std::uint64_t owner,
                                                         std::uint64_t position) {
  const random::Generator generator{
      .seed = seed, .owner = owner, .stream = random::Stream::evaluation};
  const random::Words words = generator.block(position);
  return (static_cast<std::uint64_t>(words.word[0]) << 32) |
         (words.word[1] & ~std::uint32_t{0x7ff});
}

// The least sum of weights that is top_p of the total, at least 1.
KOKKOS_FORCEINLINE_FUNCTION std::uint64_t share_of(double top_p, std::uint64_t total) {
  const double share = top_p * static_cast<double>(total);
  const auto whole = static_cast<std::uint64_t>(share);
  const std::uint64_t least = static_cast<double>(whole) < share ? whole + 1 : whole;
  return least > 0 ? least : 1;
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_TOKEN_WEIGHTS_HPP_
