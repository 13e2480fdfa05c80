// tests/fuzz/mutator.hpp — changes inputs of readers as accidents and attackers would:
// bits, lengths, numbers at the edges of their types, nesting, pieces of other inputs.
#ifndef TRIREME_TESTS_FUZZ_MUTATOR_HPP_
#define TRIREME_TESTS_FUZZ_MUTATOR_HPP_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace trireme::fuzz {

// The same seed gives the same inputs, on every machine.
class Mutator {
 public:
  // words: what a format is made of, put in whole; mutants are at most this long.
  Mutator(std::uint64_t seed, std::vector<std::string> words, std::size_t most_bytes);

  // One of the pool, half the time one of the first `seeds`, changed in one to four ways.
  std::string mutant(const std::vector<std::string>& pool, std::size_t seeds);

 private:
  std::size_t below(std::size_t limit);  // from 0; 0 where the limit is 0
  void change(std::string& input, const std::vector<std::string>& pool);
  void overwrite_integer(std::string& input);
  void replace_number(std::string& input);
  void nest(std::string& input);

  std::mt19937_64 random_;
  std::vector<std::string> words_;
  std::size_t most_bytes_;
};

}  // namespace trireme::fuzz

#endif  // TRIREME_TESTS_FUZZ_MUTATOR_HPP_
