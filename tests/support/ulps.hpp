// tests/support/ulps.hpp — how far a float is from the right number.
#ifndef TRIREME_TESTS_SUPPORT_ULPS_HPP_
#define TRIREME_TESTS_SUPPORT_ULPS_HPP_

#include <algorithm>
#include <cmath>

namespace trireme::test {

// In units of the last place of a float, of which the smallest is that of the smallest
// normal number; 0.5 where no float is nearer.
inline double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  if (static_cast<float>(want) == got) return 0.5;
  if (!std::isfinite(got)) return INFINITY;
  int exponent = 0;
  std::frexp(want, &exponent);
  return std::abs(got - want) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_ULPS_HPP_
