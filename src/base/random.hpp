// base/random.hpp — counter-based random numbers keyed by global coordinates.
//
// Every number is a pure function of (seed, stream, layer, site, sample or parameter,
// index) with *global* coordinates, so that masks and initial weights do not depend on
// the process grid. Philox-4x32 (Salmon et al., SC'11): ten rounds for initial weights,
// data and evaluation, of whose calls each serves four consecutive elements of a row,
// aligned to the global row start (element j of row r takes word j % 4 of call
// r * ceil(row_length / 4) + j / 4); seven rounds for dropout, which takes eight 16-bit
// words from a call (DropoutWords). docs/math/random_numbers.md
#ifndef TRIREME_BASE_RANDOM_HPP_
#define TRIREME_BASE_RANDOM_HPP_

// Philox needs none of Random123's types of SSE registers, whose headers take the
// compiler most of a second in every file.
#ifndef R123_USE_SSE
#define R123_USE_SSE 0
#endif
#include <Random123/philox.h>

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <string_view>

#include "base/philox.hpp"

namespace trireme::random {

enum class Stream : std::uint8_t {
  initialisation = 0,
  data = 1,
  dropout = 2,
  evaluation = 3,
  samples = 4
};

// Where in a layer a mask is applied.
enum class Site : std::uint8_t {
  embedding = 0,
  attention_probabilities = 1,
  attention_output = 2,
  mlp_output = 3,
  cross_attention_probabilities = 4,
  cross_attention_output = 5
};

// Identifies a sequence of numbers; block(n) gives words 4n .. 4n+3 of it.
struct Generator {
  std::uint64_t seed = 0;
  std::uint64_t owner =
      0;  // global sample, or hash of the parameter's name; 48 bits used
  std::uint16_t layer = 0;
  Site site = Site::embedding;
  Stream stream = Stream::dropout;

  // What Philox encrypts for block n < 2^48, and under which key.
  KOKKOS_INLINE_FUNCTION r123::Philox4x32::ctr_type counter(std::uint64_t n) const {
    return {{static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(owner),
             static_cast<std::uint32_t>((n >> 32) & 0xffffu) |
                 (static_cast<std::uint32_t>((owner >> 32) & 0xffffu) << 16),
             static_cast<std::uint32_t>(layer) |
                 (static_cast<std::uint32_t>(site) << 16) |
                 (static_cast<std::uint32_t>(stream) << 24)}};
  }
  KOKKOS_INLINE_FUNCTION r123::Philox4x32::key_type key() const {
    return {{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}};
  }

  template <unsigned kRounds = 10>
  KOKKOS_INLINE_FUNCTION Words block(std::uint64_t n) const {
    const auto plain = counter(n);
#if defined(__CUDA_ARCH__)
    return philox<kRounds, WideProduct>({{plain[0], plain[1], plain[2], plain[3]}},
                                        key()[0], key()[1]);
#else
    const auto value = r123::Philox4x32_R<kRounds>()(plain, key());
    return {{value[0], value[1], value[2], value[3]}};
#endif
  }
};

// The words of dropout masks. A call gives eight of 16 bits: word 2 m + e is half e (0 is
// the low one) of its 32-bit word m.
//   Rows of h elements: element j takes word j % 8 of call row * ceil(h / 8) + j / 8.
//   Rows of n keys: key 32 g + 8 i + 2 t + e (i, t in 0 ... 3, e in 0, 1) takes word
//   2 i + e of call row * 4 ceil(n / 32) + 4 g + t. This is what lane t of four holds of
//   a row in a fragment of a tensor core's product, which therefore draws just what it
//   needs.
struct DropoutWords {
  static constexpr unsigned kRounds = 7;
  static constexpr std::uint64_t kPerCall = 8;
  static constexpr std::uint64_t kKeysPerGroup = 32;  // of four calls
  static constexpr std::uint32_t kValues = 1u << 16;
  // Of this definition; a checkpoint that names none was written under the first, of
  // 32-bit words.
  static constexpr std::int64_t kVersion = 2;

  KOKKOS_INLINE_FUNCTION static std::uint64_t calls_per_row(std::uint64_t h) {
    return (h + kPerCall - 1) / kPerCall;
  }
  KOKKOS_INLINE_FUNCTION static std::uint64_t calls_per_key_row(std::uint64_t n) {
    return 4 * ((n + kKeysPerGroup - 1) / kKeysPerGroup);
  }
  KOKKOS_INLINE_FUNCTION static std::uint32_t half(std::uint32_t word, int e) {
    return (word >> (16 * e)) & 0xffffu;
  }
  KOKKOS_INLINE_FUNCTION static Words call(const Generator& generator, std::uint64_t n) {
    return generator.block<kRounds>(n);
  }
  // An element is dropped when its word is below T = round(65536 p), kept otherwise and
  // then scaled by 65536 / (65536 - T).
  KOKKOS_INLINE_FUNCTION static std::uint32_t threshold(double probability) {
    return static_cast<std::uint32_t>(probability * kValues + 0.5);
  }
  KOKKOS_INLINE_FUNCTION static double keep_scale(std::uint32_t threshold) {
    return static_cast<double>(kValues) / (kValues - threshold);
  }
  // Whether `probability` is none at all, or one that 16 bits can tell from 0 and from 1.
  static bool can_express(double probability) {
    return probability == 0.0 ||
           (probability > 0.0 && probability < 1.0 && threshold(probability) != 0 &&
            threshold(probability) != kValues);
  }
};

// Calls that one row of `length` elements takes.
KOKKOS_INLINE_FUNCTION std::uint64_t blocks_per_row(std::uint64_t length) {
  return (length + 3) / 4;
}

// FNV-1a, 48 bits: a parameter's identity is its name, whatever the grid or the order.
constexpr std::uint64_t owner_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) {
    hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ull;
  }
  return hash & 0xffffffffffffull;
}

}  // namespace trireme::random

#endif  // TRIREME_BASE_RANDOM_HPP_
