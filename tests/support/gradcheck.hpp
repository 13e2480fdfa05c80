// tests/support/gradcheck.hpp — is this the gradient of that function? Error *and* rate.
//
// Central differences at h and h / 2 have errors c h^2 and c h^2 / 4 (+ rounding), so a
// right gradient g shows |D(h) - g| falling fourfold, and Richardson's extrapolation
// (4 D(h/2) - D(h)) / 3, whose error is O(h^4), agrees with g to many digits. A gradient
// that is wrong in its seventh digit fails both ways. Everything in double.
#ifndef TRIREME_TESTS_SUPPORT_GRADCHECK_HPP_
#define TRIREME_TESTS_SUPPORT_GRADCHECK_HPP_

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace trireme::test {

struct GradientCheckOptions {
  double step = 4e-3;       // h
  double tolerance = 1e-8;  // of the extrapolated error, relative to the gradient's norm
  // Components that are differentiated one by one, spread evenly; all of them take part
  // in two random directions besides.
  std::size_t components = 48;
};

// f maps a point to a number; `gradient` is claimed to be its gradient at x.
::testing::AssertionResult check_gradient(
    const std::function<double(const std::vector<double>&)>& f,
    const std::vector<double>& x, const std::vector<double>& gradient,
    const GradientCheckOptions& options = {});

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_GRADCHECK_HPP_
