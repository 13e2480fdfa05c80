// data/draws.hpp — the random numbers of one sample: which tokens of it are hidden, and
// whatever else is left to chance in it.
//
// They are a pure function of the seed, of the sample (SampleId) and of what they are
// for, so that every rank and every loader draws the same, in whatever order samples are
// made. Each purpose has a sequence of its own: drawing more for one moves no other.
// docs/math/random_numbers.md
#ifndef TRIREME_DATA_DRAWS_HPP_
#define TRIREME_DATA_DRAWS_HPP_

#include <cstdint>
#include <span>

#include "base/random.hpp"
#include "base/types.hpp"
#include "data/sample_index.hpp"

namespace trireme::data {

class Draws {
 public:
  // Part of the definition of a run's samples: a new purpose gets the next number.
  enum class Purpose : std::uint8_t {
    document = 0,
    hidden_spans = 1,
    kept_spans = 2,
    shift = 3,  // of a whole epoch: its window 0
    text = 4,
    pair = 5,
    truncation = 6,
    masked_words = 7,
    replacements = 8
  };

  Draws(std::uint64_t seed, const SampleId& sample, Purpose purpose);

  // 32 random bits.
  std::uint32_t word();
  // One of 0 ... n - 1, all alike, for n >= 1 (Lemire 2019: a word times n, where the few
  // words that would favour some are drawn again; two words where n is above 2^32).
  index_t below(index_t n);
  // With this probability, to 2^-32.
  bool happens(double probability);
  // Sets `chosen` of the marks to 1 and the others to 0, each choice of them alike (Floyd
  // 1987).
  void choose(index_t chosen, std::span<std::uint8_t> marks);

 private:
  index_t below_many(std::uint64_t n);

  random::Generator generator_;
  std::uint64_t next_block_;
  random::Words block_ = {};
  int taken_ = 4;  // of the block's words
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_DRAWS_HPP_
