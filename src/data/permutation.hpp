// data/permutation.hpp — a keyed permutation of 0 .. n-1 that is computed, not stored.
//
// A Feistel network over 2w bits (2^2w >= n), its round function Philox keyed by (seed,
// key, round), made a permutation of n by cycle walking: results outside are fed in
// again, fewer than four times on average (Black and Rogaway 2002). Any element costs
// some hundred nanoseconds and no memory, for 10^12 as for 10.
#ifndef TRIREME_DATA_PERMUTATION_HPP_
#define TRIREME_DATA_PERMUTATION_HPP_

#include <cstdint>

namespace trireme::data {

class Permutation {
 public:
  // n in [1, 2^62]; `key` of 48 bits tells apart the permutations of one seed.
  Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t key);

  std::uint64_t size() const { return n_; }
  // Where element i goes, i < n.
  std::uint64_t operator()(std::uint64_t i) const;

 private:
  std::uint64_t encrypt(std::uint64_t value) const;

  std::uint64_t n_;
  std::uint64_t seed_;
  std::uint64_t key_;
  int half_bits_;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_PERMUTATION_HPP_
