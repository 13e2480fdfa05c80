// tests/unit/data/binomial.hpp — counts of random events against what they should be,
// within five standard deviations.
#ifndef TRIREME_TESTS_UNIT_DATA_BINOMIAL_HPP_
#define TRIREME_TESTS_UNIT_DATA_BINOMIAL_HPP_

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/types.hpp"

namespace trireme::test {

// Of `count` trials of this probability.
inline void expect_binomial(index_t observed, index_t count, double probability,
                            const std::string& what) {
  const double expected = static_cast<double>(count) * probability;
  EXPECT_NEAR(static_cast<double>(observed), expected,
              5.0 * std::sqrt(expected * (1.0 - probability)) + 1e-6)
      << what;
}

// Two counts of the same event, in as many trials each.
inline void expect_alike(index_t one, index_t other, const std::string& what) {
  EXPECT_NEAR(static_cast<double>(one), static_cast<double>(other),
              5.0 * std::sqrt(static_cast<double>(one + other)) + 1e-6)
      << what;
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_DATA_BINOMIAL_HPP_
