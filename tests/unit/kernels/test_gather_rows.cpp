// Rows picked by position, where a rank has all positions and where it has some; their
// gradient without two writers of a row; means over positions.
#include "kernels/gather_rows.hpp"

#include <gmock/gmock.h>

#include <utility>

#include "base/error.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

// Positions of some samples, some of them none; -1 at the end of a sample, as data has
// it, and in between; the first one twice where there are three.
std::vector<double> some_positions(index_t count, index_t batch, index_t length) {
  std::vector<double> positions;
  for (index_t i = 0; i < count; ++i) {
    for (index_t n = 0; n < batch; ++n) {
      const bool is_none = i % 7 == 5 || (n == 1 && i > count / 2);
      const index_t at = i == 2 ? n : (i * 13 + n) % length;
      positions.push_back(is_none ? -1.0 : static_cast<double>(at % length));
    }
  }
  return positions;
}

template <class T>
class GatherRowsOf : public ::testing::Test {};
TYPED_TEST_SUITE(GatherRowsOf, test::RealTypes);

TYPED_TEST(GatherRowsOf, BothPassesMatchLoops) {
  using T = TypeParam;
  for (const auto& [length, batch, count] :
       {std::tuple{1, 1, 1}, {31, 3, 5}, {128, 8, 20}, {33, 2, 40}}) {
    for (const index_t h : {1, 31, 64, 257}) {
      SCOPED_TRACE(::testing::Message() << length << " " << batch << " " << h);
      const Array<std::int32_t> positions(some_positions(count, batch, length));
      const Array<T> x(test::uniform(length * batch * h, 1)),
          d_y(test::uniform(count * batch * h, 2)), y(count * batch * h, NAN),
          d_x(length * batch * h, NAN), added(test::uniform(length * batch * h, 3));
      const auto at = positions.values(), xs = x.values(), d = d_y.values();
      std::vector<double> want(count * batch * h), d_want(length * batch * h),
          sum = added.values();
      for (index_t i = 0; i < count * batch * h; ++i) {
        const auto position = static_cast<index_t>(at[i / h]);
        if (position < 0) continue;
        const index_t from = (position * batch + i / h % batch) * h + i % h;
        want[i] = xs[from];
        d_want[from] += d[i];
        sum[from] += d[i];
      }
      const PickedPositions picked{positions.cvector(), batch};
      gather_rows_forward<T>(Exec(), picked, x.cmatrix(length * batch, h),
                             y.matrix(count * batch, h));
      EXPECT_EQ(y.values(), want);
      gather_rows_backward<T>(Exec(), picked, d_y.cmatrix(count * batch, h),
                              Accumulate::no, d_x.matrix(length * batch, h));
      test::expect_close(d_x.values(), d_want, 4 * test::rounding<T>(), 2, "d_x");
      gather_rows_backward<T>(Exec(), picked, d_y.cmatrix(count * batch, h),
                              Accumulate::yes, added.matrix(length * batch, h));
      test::expect_close(added.values(), sum, 4 * test::rounding<T>(), 2, "added");
    }
  }
}

// Ranks of a sequence: the sum over them has the bits of one that has it all.
TYPED_TEST(GatherRowsOf, PartsOfASequenceGiveTheWhole) {
  using T = TypeParam;
  const index_t length = 24, batch = 3, count = 9, h = 33;
  const Array<std::int32_t> positions(some_positions(count, batch, length));
  const Array<T> x(test::uniform(length * batch * h, 1)), y(count * batch * h),
      d_y(test::uniform(count * batch * h, 2)), d_x(length * batch * h);
  const PickedPositions all{positions.cvector(), batch};
  gather_rows_forward<T>(Exec(), all, x.cmatrix(length * batch, h),
                         y.matrix(count * batch, h));
  gather_rows_backward<T>(Exec(), all, d_y.cmatrix(count * batch, h), Accumulate::no,
                          d_x.matrix(length * batch, h));
  std::vector<double> sum(count * batch * h), d_parts;
  for (const auto& [begin, end] : {std::pair{0, 8}, {8, 16}, {16, 24}}) {
    const PickedPositions picked{positions.cvector(), batch, begin};
    const index_t rows = (end - begin) * batch;
    const View2<const T> x_part(x.vector().data() + begin * batch * h, rows, h);
    const Array<T> y_part(count * batch * h, NAN), d_part(rows * h, NAN);
    gather_rows_forward<T>(Exec(), picked, x_part, y_part.matrix(count * batch, h));
    gather_rows_backward<T>(Exec(), picked, d_y.cmatrix(count * batch, h), Accumulate::no,
                            d_part.matrix(rows, h));
    const auto part = y_part.values(), d = d_part.values();
    for (index_t i = 0; i < count * batch * h; ++i) sum[i] += part[i];
    d_parts.insert(d_parts.end(), d.begin(), d.end());
  }
  EXPECT_EQ(sum, y.values());
  EXPECT_EQ(d_parts, d_x.values());
}

TYPED_TEST(GatherRowsOf, MeansOverThePositionsThatAreThere) {
  using T = TypeParam;
  for (const index_t h : {1, 31, 64, 257}) {
    const index_t length = 33, batch = 4;
    const Array<std::int32_t> lengths{33, 0, 7, 40};
    const Array<T> x(test::uniform(length * batch * h, 1)), y(batch * h, NAN),
        all(batch * h, NAN);
    const auto xs = x.values();
    std::vector<double> want(batch * h), want_all(batch * h);
    for (index_t i = 0; i < length * batch * h; ++i) {
      const index_t n = i / h % batch, position = i / h / batch;
      const index_t wanted = n == 1 ? 0 : n == 2 ? 7 : 33;
      if (position < wanted) want[n * h + i % h] += xs[i] / static_cast<double>(wanted);
      want_all[n * h + i % h] += xs[i] / 33;
    }
    mean_rows<T>(Exec(), lengths.cvector(), x.cmatrix(length * batch, h),
                 y.matrix(batch, h));
    test::expect_close(y.values(), want, 2 * test::rounding<T>() + 1e-6, 1, "means");
    mean_rows<T>(Exec(), {}, x.cmatrix(length * batch, h), all.matrix(batch, h));
    test::expect_close(all.values(), want_all, 2 * test::rounding<T>() + 1e-6, 1, "all");
  }
}

// To some columns of longer rows, the rest of which stays.
TYPED_TEST(GatherRowsOf, CopiesAsFloat) {
  using T = TypeParam;
  const index_t rows = 5, columns = 7, all = 20, begin = 3;
  const Array<T> x(test::uniform(rows * columns, 1));
  const Array<float> y(rows * all, -2.0);
  const View2<float> part =
      Kokkos::subview(y.matrix(rows, all), Kokkos::ALL,
                      std::pair<index_t, index_t>(begin, begin + columns));
  copy_rows_as_float<T>(Exec(), x.cmatrix(rows, columns), part);
  const auto xs = x.values(), got = y.values();
  for (index_t i = 0; i < rows * all; ++i) {
    const index_t j = i % all - begin;
    const bool is_copied = j >= 0 && j < columns;
    const double want = is_copied ? xs[extent(i / all * columns + j)] : -2.0;
    EXPECT_EQ(got[extent(i)], static_cast<double>(static_cast<float>(want))) << i;
  }
}

TEST(GatherRows, WrongExtentsAreNamed) {
  const Array<std::int32_t> positions(6);
  const Array<float> x(12 * 2), y(6 * 2);
  const auto expect = [&](const PickedPositions& picked, const char* message) {
    const auto throws = ::testing::ThrowsMessage<Error>(::testing::HasSubstr(message));
    EXPECT_THAT(
        [&] {
          gather_rows_forward<float>(Exec(), picked, x.cmatrix(12, 2), y.matrix(6, 2));
        },
        throws);
    EXPECT_THAT(
        [&] {
          gather_rows_backward<float>(Exec(), picked, y.cmatrix(6, 2), Accumulate::no,
                                      x.matrix(12, 2));
        },
        throws);
  };
  expect({positions.cvector(), 5}, "12 rows, of which 6 are picked, are no multiples");
  expect({View1<const std::int32_t>(), 2}, "positions has 0 elements, expected 6");
  EXPECT_THAT(
      [&] {
        mean_rows<float>(Exec(), {}, x.cmatrix(12, 2), View2<float>(nullptr, 5, 2));
      },
      ::testing::ThrowsMessage<Error>(
          ::testing::HasSubstr("no multiple of the batch 5")));
}

}  // namespace
}  // namespace trireme::kernels
