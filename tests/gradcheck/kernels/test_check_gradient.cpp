// The check itself must be able to fail: gradients that are wrong by little, in one
// place, by sign, and functions that have none.
#include <cmath>

#include "support/gradcheck.hpp"

namespace trireme::test {
namespace {

using Point = std::vector<double>;

double wave(const Point& x) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum += std::sin(1.5 * x[i] + static_cast<double>(i)) * std::exp(0.5 * x[i]);
  }
  return sum;
}

Point wave_gradient(const Point& x) {
  Point g(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double a = 1.5 * x[i] + static_cast<double>(i), e = std::exp(0.5 * x[i]);
    g[i] = (1.5 * std::cos(a) + 0.5 * std::sin(a)) * e;
  }
  return g;
}

Point somewhere(std::size_t n) {
  Point x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = std::sin(7.0 * static_cast<double>(i));
  return x;
}

TEST(CheckGradientPasses, RightGradients) {
  for (const std::size_t n : {1u, 5u, 200u}) {
    const Point x = somewhere(n);
    EXPECT_TRUE(check_gradient(wave, x, wave_gradient(x))) << n;
  }
  // Linear and quadratic: no error to fall.
  const Point x = somewhere(10);
  EXPECT_TRUE(check_gradient([](const Point& p) { return 3 * p[2] - p[7]; }, x,
                             {0, 0, 3, 0, 0, 0, 0, -1, 0, 0}));
  EXPECT_TRUE(check_gradient([](const Point& p) { return p[0] * p[1]; }, {2, 5}, {5, 2}));
}

TEST(CheckGradientFails, WrongByAPartInTenThousand) {
  const Point x = somewhere(40);
  for (const double factor : {1 + 1e-4, 1 - 1e-4, 1 + 1e-7, -1.0, 0.0}) {
    Point g = wave_gradient(x);
    for (double& component : g) component *= factor;
    EXPECT_FALSE(check_gradient(wave, x, g)) << factor;
  }
}

TEST(CheckGradientFails, WrongInOneComponentOfMany) {
  for (const std::size_t at : {0u, 1u, 123u, 499u}) {  // only few are checked one by one
    const Point x = somewhere(500);
    Point g = wave_gradient(x);
    g[at] *= 1 + 1e-4;
    EXPECT_FALSE(check_gradient(wave, x, g)) << at;
  }
}

TEST(CheckGradientFails, OfALinearFunction) {
  EXPECT_FALSE(check_gradient([](const Point& p) { return 3 * p[0] + p[1]; }, {1, 1},
                              {3.0003, 1}));
}

TEST(CheckGradientFails, NoGradientAtAll) {
  EXPECT_FALSE(
      check_gradient([](const Point& p) { return std::abs(p[0]) + std::sin(p[0]); },
                     {1e-4}, {2.0}));  // a kink
  EXPECT_FALSE(check_gradient([](const Point& p) { return std::sqrt(p[0]); }, {1e-3},
                              {0.5 / std::sqrt(1e-3)}));  // NaN within the step
  EXPECT_FALSE(check_gradient(wave, {1, 2}, {1}));
  EXPECT_FALSE(check_gradient(wave, {}, {}));
}

}  // namespace
}  // namespace trireme::test
