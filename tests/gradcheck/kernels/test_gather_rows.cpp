// Picked rows of a part of a sequence, one of them twice and some of other parts.
#include "kernels/gather_rows.hpp"

#include "support/arrays.hpp"
#include "support/gradcheck.hpp"

namespace trireme::kernels {
namespace {

using test::Array;
using Point = std::vector<double>;

TEST(GatherRowsGradient, OfTheActivation) {
  constexpr index_t kBatch = 2, kRows = 10, kPicked = 12, kH = 5;
  const Array<std::int32_t> positions{4, 6, 5, 3, -1, 8, 4, 9, 2, 7, 6, 6};
  const PickedPositions picked{positions.cvector(), kBatch, 4};
  const Point weights = test::uniform(kPicked * kH, 1);
  const Array<double> d_y(weights), d_x(kRows * kH);
  gather_rows_backward<double>(Exec(), picked, d_y.cmatrix(kPicked, kH), Accumulate::no,
                               d_x.matrix(kRows, kH));
  const auto loss = [&](const Point& p) {
    const Array<double> x(p), y(kPicked * kH);
    gather_rows_forward<double>(Exec(), picked, x.cmatrix(kRows, kH),
                                y.matrix(kPicked, kH));
    const Point values = y.values();
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) sum += weights[i] * values[i];
    return sum;
  };
  EXPECT_TRUE(test::check_gradient(loss, test::uniform(kRows * kH, 2), d_x.values()));
}

}  // namespace
}  // namespace trireme::kernels
