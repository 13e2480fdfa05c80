// Look-up in a shard of the table: repeated ids, and ids of other shards.
#include "kernels/embedding.hpp"

#include "kernels/reductions.hpp"
#include "support/arrays.hpp"
#include "support/gradcheck.hpp"

namespace trireme::kernels {
namespace {

using test::Array;
using Point = std::vector<double>;

constexpr index_t kRows = 9, kH = 5, kHeld = 6, kBegin = 10;
const Point kIds{10, 12, 12, 3, 15, 16, 12, 11, 10};
const Point kTable = test::uniform(kHeld * kH, 1), kDy = test::uniform(kRows * kH, 2);

TEST(EmbeddingGradient, OfTheTable) {
  const Array<std::int32_t> ids(kIds), scratch(2 * kRows);
  const Array<double> d_y(kDy), d_table(kHeld * kH);
  embedding_backward<double>(Exec(), ids.cvector(), d_y.cmatrix(kRows, kH), kBegin,
                             scratch.vector(), Accumulate::no, d_table.matrix(kHeld, kH));
  const auto loss = [&](const Point& p) {
    const Array<double> table(p), y(kRows * kH);
    embedding_forward<double>(Exec(), ids.cvector(), table.cmatrix(kHeld, kH), kBegin,
                              Write::overwrite, y.matrix(kRows, kH));
    const Point out = y.values();
    double sum = 0;
    for (index_t i = 0; i < kRows * kH; ++i) sum += kDy[i] * out[i];
    return sum;
  };
  EXPECT_TRUE(test::check_gradient(loss, kTable, d_table.values()));
}

TEST(EmbeddingGradient, OfTypesOfTokens) {
  const Array<std::int32_t> ids{0, 1, 1, 0, 1, 2, -1, 0, 1}, none(kRows, -1.0);
  const Array<double> d_y(kDy), d_table(2 * kH), words(kH), places(kH);
  const index_t blocks = partial_count(kRows, kH);
  const Array<double> partials(blocks * 2 * kH);
  embedding_backward_types<double>(Exec(), ids.cvector(), d_y.cmatrix(kRows, kH),
                                   partials.matrix(blocks, 2 * kH));
  add_partials<double>(Exec(), partials.cmatrix(blocks, 2 * kH), Accumulate::no,
                       d_table.vector());
  const auto loss = [&](const Point& p) {
    const Array<double> table(p), y(kRows * kH);
    embedding_dropout_forward<double>(Exec(), {}, {}, none.cvector(),
                                      words.cmatrix(1, kH), none.cvector(),
                                      places.cmatrix(1, kH), y.matrix(kRows, kH),
                                      {ids.cvector(), table.cmatrix(2, kH)});
    const Point out = y.values();
    double sum = 0;
    for (index_t i = 0; i < kRows * kH; ++i) sum += kDy[i] * out[i];
    return sum;
  };
  EXPECT_TRUE(test::check_gradient(loss, test::uniform(2 * kH, 3), d_table.values()));
}

}  // namespace
}  // namespace trireme::kernels
