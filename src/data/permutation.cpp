// data/permutation.cpp — see permutation.hpp.
#include "data/permutation.hpp"

#include <bit>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/random.hpp"

namespace trireme::data {
namespace {

// Four rounds make a pseudo-random permutation of large domains (Luby and Rackoff 1988);
// the halves of small ones have few bits, and want more.
constexpr int kRounds = 10;

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t key)
    : n_(n), seed_(seed), key_(key) {
  TRIREME_REQUIRE(n >= 1 && n <= (std::uint64_t{1} << 62),
                  "a permutation of {}, expected 1 to 2^62", format_plural(n, "element"));
  const int bits = n == 1 ? 1 : std::bit_width(n - 1);
  half_bits_ = (bits + 1) / 2;
}

std::uint64_t Permutation::encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (int round = 0; round < kRounds; ++round) {
    const random::Generator generator = {.seed = seed_,
                                         .owner = key_,
                                         .layer = static_cast<std::uint16_t>(round),
                                         .stream = random::Stream::data};
    const std::uint64_t next = left ^ (generator.block(right).word[0] & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

std::uint64_t Permutation::operator()(std::uint64_t i) const {
  TRIREME_REQUIRE(i < n_, "element {} of a permutation of {}", i, n_);
  // Ends: the cycle of i in the larger domain comes back to i, which is below n.
  do {
    i = encrypt(i);
  } while (i >= n_);
  return i;
}

}  // namespace trireme::data
