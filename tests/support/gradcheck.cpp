// tests/support/gradcheck.cpp — central differences at two steps along coordinates and
// random directions.
#include "support/gradcheck.hpp"

#include <cmath>
#include <limits>
#include <random>

namespace trireme::test {
namespace {

using Point = std::vector<double>;

double dot(const Point& a, const Point& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Unit vectors: some coordinates, and two random directions that have all of them.
std::vector<Point> directions_of(std::size_t n, std::size_t components) {
  std::vector<Point> directions;
  const std::size_t count = std::min(n, components);
  for (std::size_t k = 0; k < count; ++k) {
    Point unit(n, 0.0);
    unit[k * n / count] = 1.0;
    directions.push_back(unit);
  }
  std::mt19937 engine(12345);
  for (int k = 0; k < 2; ++k) {
    Point direction(n);
    for (double& d : direction) {
      d = ((engine() & 1u) != 0 ? 1.0 : -1.0) / std::sqrt(static_cast<double>(n));
    }
    directions.push_back(direction);
  }
  return directions;
}

double central_difference(const std::function<double(const Point&)>& f, const Point& x,
                          const Point& direction, double h) {
  Point left = x, right = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    left[i] -= h * direction[i];
    right[i] += h * direction[i];
  }
  return (f(right) - f(left)) / (2 * h);
}

}  // namespace

::testing::AssertionResult check_gradient(const std::function<double(const Point&)>& f,
                                          const Point& x, const Point& gradient,
                                          const GradientCheckOptions& options) {
  if (x.empty() || gradient.size() != x.size()) {
    return ::testing::AssertionFailure() << "the gradient has " << gradient.size()
                                         << " components, the point " << x.size();
  }
  const double h = options.step;
  double coarse2 = 0, fine2 = 0, extrapolated2 = 0, worst = 0, norm2 = 0;
  std::size_t worst_at = 0;
  const std::vector<Point> directions = directions_of(x.size(), options.components);
  for (std::size_t k = 0; k < directions.size(); ++k) {
    const double claimed = dot(gradient, directions[k]);
    const double coarse = central_difference(f, x, directions[k], h);
    const double fine = central_difference(f, x, directions[k], h / 2);
    const double error = std::abs((4 * fine - coarse) / 3 - claimed);
    if (!(error <= worst)) {  // takes NaN too
      worst = error;
      worst_at = k;
    }
    coarse2 += (coarse - claimed) * (coarse - claimed);
    fine2 += (fine - claimed) * (fine - claimed);
    extrapolated2 += error * error;
    norm2 += claimed * claimed;
  }
  const double norm = std::sqrt(norm2);
  const double error = std::sqrt(extrapolated2), rate = std::sqrt(coarse2 / fine2);
  // What rounding of f leaves of a difference quotient, generously.
  const double rounding = 32 * std::numeric_limits<double>::epsilon() *
                          std::max(1.0, std::abs(f(x))) / h *
                          std::sqrt(static_cast<double>(directions.size()));
  const auto describe = [&] {
    return ::testing::Message()
           << "gradient norm " << norm << ", errors " << std::sqrt(coarse2)
           << " at h = " << h << ", " << std::sqrt(fine2) << " at h / 2 (rate " << rate
           << "), " << error << " extrapolated; rounding " << rounding
           << "; worst in direction " << worst_at << " of " << directions.size() << " by "
           << worst;
  };
  if (!(error <= options.tolerance * norm + rounding)) {
    return ::testing::AssertionFailure() << "wrong gradient: " << describe();
  }
  // Quadratic functions have no error to fall.
  const bool measurable = std::sqrt(fine2) > 4 * rounding;
  if (measurable && !(rate > 3.6 && rate < 4.4)) {
    return ::testing::AssertionFailure()
           << "the error does not fall fourfold: " << describe();
  }
  return ::testing::AssertionSuccess() << describe();
}

}  // namespace trireme::test
