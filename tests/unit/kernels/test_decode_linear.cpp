// Linear layers of a step with what stands beside them, by teams: against the definition,
// norm, product and the rest apart, on odd sizes; what goes to the cache; the same bits
// for a row whatever rows are beside it, and with one thread and with several.
#include "kernels/decode_linear.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "kernels/impl/decode_attention.hpp"
#include "kernels/impl/decode_tiles.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using Values = std::vector<double>;
using Numbers = std::vector<std::int32_t>;

constexpr double kEpsilon = 1e-5;

Values part_of(const Values& values, index_t begin, index_t count) {
  return {values.begin() + begin, values.begin() + begin + count};
}

template <class T>
Values rounded(Values values) {
  for (double& x : values) x = test::to_double(test::from_double<T>(x));
  return values;
}

Values norm_of(const Values& x, const Values& gamma, const Values& beta) {
  const index_t h = std::ssize(gamma);
  Values y(x.size());
  for (index_t begin = 0; begin < std::ssize(x); begin += h) {
    double mean = 0, variance = 0;
    for (index_t j = 0; j < h; ++j) mean += x[begin + j] / static_cast<double>(h);
    for (index_t j = 0; j < h; ++j) {
      variance += std::pow(x[begin + j] - mean, 2) / static_cast<double>(h);
    }
    for (index_t j = 0; j < h; ++j) {
      y[begin + j] =
          (x[begin + j] - mean) / std::sqrt(variance + kEpsilon) * gamma[j] + beta[j];
    }
  }
  return y;
}

// x (rows, in) W^T
Values product_of(const Values& x, const Values& w, index_t in) {
  const index_t rows = std::ssize(x) / in, out = std::ssize(w) / in;
  Values y(rows * out);
  for (index_t m = 0; m < rows; ++m) {
    for (index_t n = 0; n < out; ++n) {
      for (index_t k = 0; k < in; ++k) y[m * out + n] += x[m * in + k] * w[n * in + k];
    }
  }
  return y;
}

double gelu_of(double z) {
  const double u = std::sqrt(2 / std::acos(-1.0)) * (z + 0.044715 * z * z * z);
  return 0.5 * z * (1 + std::tanh(u));
}

template <class T>
struct Layer {
  Layer(index_t columns, index_t outputs)
      : in(columns),
        out(outputs),
        x(test::uniform(kDecodeRows * in, 1, -1, 3)),
        gamma(test::uniform(in, 2, 0.5, 1.5)),
        beta(test::uniform(in, 3, -0.5, 0.5)),
        w(test::uniform(out * in, 4, -1 / std::sqrt(in), 1 / std::sqrt(in))),
        bias(test::uniform(out, 5)),
        residual(test::uniform(kDecodeRows * out, 6)) {}

  template <class Data>
  static View2<Data> rows_of(const test::Array<T>& array, index_t first, index_t count,
                             index_t columns) {
    return {array.vector().data() + first * columns, extent(count), extent(columns)};
  }
  DecodeInput<T> input(bool has_norm, index_t first, index_t rows) const {
    DecodeInput<T> from;
    from.rows = rows_of<const T>(x, first, rows, in);
    if (!has_norm) return from;
    from.gamma = gamma.cvector();
    from.beta = beta.cvector();
    from.epsilon = kEpsilon;
    return from;
  }
  // Rows [first, first + rows).
  Values run(bool has_norm, bool has_gelu, bool has_rest, index_t first, index_t rows,
             const Exec& exec = Exec()) const {
    const test::Array<T> y(rows * out, -7.0);
    DecodeOutput<T> to;
    to.y = y.matrix(rows, out);
    to.activation = has_gelu ? Activation::gelu_tanh : Activation::none;
    if (has_rest) {
      to.bias = bias.cvector();
      to.residual = rows_of<const T>(residual, first, rows, out);
    }
    decode_linear<T>(exec, input(has_norm, first, rows), WeightOperand<T>(weight()), to);
    exec.fence("test");
    return y.values();
  }
  View2<const T> weight() const { return w.cmatrix(out, in); }

  Values expected(bool has_norm, bool has_gelu, bool has_rest, index_t rows) const {
    Values from = part_of(x.values(), 0, rows * in);
    if (has_norm) from = rounded<T>(norm_of(from, gamma.values(), beta.values()));
    Values y = product_of(from, w.values(), in);
    const Values add = bias.values(), beside = residual.values();
    for (index_t i = 0; i < std::ssize(y); ++i) {
      if (has_rest) y[i] += add[i % out];
      if (has_gelu) y[i] = gelu_of(y[i]);
      if (has_rest) y[i] += beside[i];
    }
    return y;
  }

  index_t in, out;
  test::Array<T> x, gamma, beta, w, bias, residual;
};

template <class T>
class DecodeLinearOf : public testing::Test {};
using Types = testing::Types<float, double, bf16, fp16>;
TYPED_TEST_SUITE(DecodeLinearOf, Types);

// Of sums in another order, and of a norm whose rounding falls to the other side.
template <class T>
double bound_of(index_t in, bool has_norm) {
  const double of_sums =
      8 * std::sqrt(in) * std::numeric_limits<Accumulator<T>>::epsilon();
  return (has_norm ? 2 : 1) * test::rounding<T>() + of_sums + 4e-7;
}

// Rows of one turn, of several, and ragged; more outputs than warps have single ones of.
TYPED_TEST(DecodeLinearOf, MatchesReference) {
  using T = TypeParam;
  const std::vector<std::pair<index_t, index_t>> sizes = {
      {1, 1},     {31, 5},   {64, 17},   {96, 33},    {257, 31},
      {1032, 20}, {2056, 9}, {16, 4099}, {1032, 2051}};
  for (const auto& [in, out] : sizes) {
    const Layer<T> layer(in, out);
    for (const index_t rows : {1, 2, 5, 16}) {
      for (const bool has_norm : {false, true}) {
        for (const bool has_rest : {false, true}) {
          SCOPED_TRACE(fmt::format("{} x {} of {}", in, out, rows));
          test::expect_close(layer.run(has_norm, !has_rest, has_rest, 0, rows),
                             layer.expected(has_norm, !has_rest, has_rest, rows),
                             bound_of<T>(in, has_norm), 1, "y");
        }
      }
    }
  }
}

TYPED_TEST(DecodeLinearOf, ARowHasTheBitsThatItHasAlone) {
  using T = TypeParam;
  const std::vector<std::pair<index_t, index_t>> sizes = {
      {96, 41}, {333, 11}, {2056, 9}, {16, 4099}, {1032, 2051}};
  for (const auto& [in, out] : sizes) {
    const Layer<T> layer(in, out);
    for (const bool has_norm : {false, true}) {
      const Values all = layer.run(has_norm, false, true, 0, kDecodeRows);
      for (const index_t first : {0, 5, 15}) {
        EXPECT_EQ(layer.run(has_norm, false, true, first, 1),
                  part_of(all, first * out, out));
      }
      EXPECT_EQ(layer.run(has_norm, false, true, 2, 3), part_of(all, 2 * out, 3 * out));
      EXPECT_EQ(layer.run(has_norm, false, true, 3, 7), part_of(all, 3 * out, 7 * out));
    }
  }
}

TYPED_TEST(DecodeLinearOf, ThreadsDoNotChangeBits) {
  const test::OneThread one;
  if (!one.exists) GTEST_SKIP() << "there is one thread only";
  const Layer<TypeParam> layer(333, 77);
  EXPECT_EQ(layer.run(true, true, true, 0, 5, one.exec),
            layer.run(true, true, true, 0, 5));
}

// The norm of a row whose mean is far larger than its differences, and of a constant one.
TEST(DecodeLinearNorm, OfRowsFarFromZero) {
  constexpr index_t kIn = 1100;
  Values x = test::uniform(2 * kIn, 1, 1000, 1001), identity(kIn * kIn);
  for (index_t j = 0; j < kIn; ++j) {
    x[kIn + j] = 1000;
    identity[j * kIn + j] = 1;
  }
  const test::Array<float> rows(x), gamma(kIn, 1.0), beta(kIn, 0.0), w(identity),
      y(2 * kIn);
  DecodeInput<float> from;
  from.rows = rows.cmatrix(2, kIn);
  from.gamma = gamma.cvector();
  from.beta = beta.cvector();
  from.epsilon = kEpsilon;
  DecodeOutput<float> to;
  to.y = y.matrix(2, kIn);
  decode_linear<float>(Exec(), from, WeightOperand<float>(w.cmatrix(kIn, kIn)), to);
  const Values want = norm_of(rows.values(), gamma.values(), beta.values());
  test::expect_close(part_of(y.values(), 0, kIn), part_of(want, 0, kIn), 1e-3, 1, "y");
  EXPECT_EQ(part_of(y.values(), kIn, kIn), Values(kIn, 0.0));
}

// Sums are taken about the first columns. Where these are far from all others, they are
// taken again: about the first columns alone, 1e-4 would be lost.
TEST(DecodeLinearNorm, OfRowsWhoseFirstColumnsAreFarFromTheOthers) {
  // Rows that have a team of their own, and some that share one.
  for (const auto& [far, in] :
       {std::pair<index_t, index_t>{1, 4096}, {4, 4096}, {1, 1024}}) {
    Layer<float> layer(in, 20);
    Values x = layer.x.values();
    // Beside rows that are not like that.
    for (index_t row = 0; row < kDecodeRows; row += 2) {
      for (index_t c = 0; c < far; ++c) x[row * layer.in + c] = 1e4;
    }
    layer.x = test::Array<float>(x);
    const Values got = layer.run(true, false, false, 0, 3);
    test::expect_close(got, layer.expected(true, false, false, 3), 1e-5, 1, "y");
    // A row by itself has the same bits.
    EXPECT_EQ(layer.run(true, false, false, 1, 1), part_of(got, 20, 20));
  }
}

TEST(DecodeLinearRows, NoneIsNothing) {
  const Layer<float> layer(64, 33);
  const test::Array<float> y(0);
  DecodeOutput<float> to;
  to.y = y.matrix(0, 33);
  decode_linear<float>(Exec(), layer.input(true, 0, 0),
                       WeightOperand<float>(layer.weight()), to);
  Exec().fence("test");
}

TEST(DecodeLinearResidual, MayBeTheOutput) {
  const Layer<float> layer(64, 33);
  const test::Array<float> y(part_of(layer.residual.values(), 0, 2 * 33));
  DecodeOutput<float> to;
  to.y = y.matrix(2, 33);
  to.residual = y.cmatrix(2, 33);
  to.bias = layer.bias.cvector();
  decode_linear<float>(Exec(), layer.input(true, 0, 2),
                       WeightOperand<float>(layer.weight()), to);
  Exec().fence("test");
  EXPECT_EQ(y.values(), layer.run(true, false, true, 0, 2));
}

// To the last number that is divided by multiplying, and behind it.
TEST(DecodeLinearDivisor, DividesExactly) {
  for (const int by : {1, 2, 3, 5, 7, 64, 96, 65537, 2147483647}) {
    const impl::Divisor divisor(by);
    const auto most = static_cast<std::int64_t>(0xffffffffu / static_cast<unsigned>(by));
    for (const std::int64_t around : {std::int64_t{0}, std::int64_t{by}, most,
                                      most / by * by, std::int64_t{2147483646}}) {
      for (std::int64_t n = around - 2; n <= around + 2; ++n) {
        if (n < 0 || n > 2147483647) continue;
        EXPECT_EQ(divisor.quotient(static_cast<int>(n)), n / by) << n << " / " << by;
      }
    }
  }
}

test::Array<std::int32_t> numbers_on_device(const Numbers& numbers) {
  return test::Array<std::int32_t>(Values(numbers.begin(), numbers.end()));
}

constexpr index_t kTextPlaces = 5, kTextRoom = 200;

// Queries go to y, keys and values to the last positions of their texts.
TYPED_TEST(DecodeLinearOf, KeysAndValuesGoToTheCache) {
  using T = TypeParam;
  constexpr index_t kQueries = 24, kColumns = 5, kRows = 3;
  const Layer<T> layer(40, kQueries + 2 * kColumns);
  const auto places = numbers_on_device({3, 0, 4}),
             lengths = numbers_on_device({1, 0, 200});
  CachedTexts texts;
  texts.count = kRows;
  texts.capacity = texts.longest = kTextRoom;
  texts.places = places.cvector();
  texts.lengths = lengths.cvector();
  const test::Array<T> y(kRows * kQueries), k(kTextPlaces * kTextRoom * kColumns, -7.0),
      v(kTextPlaces * kTextRoom * kColumns, -7.0);
  DecodeOutput<T> to;
  to.y = y.matrix(kRows, kQueries);
  to.bias = layer.bias.cvector();
  to.k = k.matrix(kTextPlaces * kTextRoom, kColumns);
  to.v = v.matrix(kTextPlaces * kTextRoom, kColumns);
  to.texts = texts;
  decode_linear<T>(Exec(), layer.input(true, 0, kRows), WeightOperand<T>(layer.weight()),
                   to);
  Exec().fence("test");
  const test::Array<T> whole(kRows * layer.out);
  DecodeOutput<T> all;
  all.y = whole.matrix(kRows, layer.out);
  all.bias = layer.bias.cvector();
  decode_linear<T>(Exec(), layer.input(true, 0, kRows), WeightOperand<T>(layer.weight()),
                   all);
  Exec().fence("test");
  const Values qkv = whole.values();
  Values want_k(k.values().size(), -7.0), want_v = want_k;
  for (const auto& [row, position] :
       {std::pair<index_t, index_t>{0, 3 * kTextRoom}, {2, 4 * kTextRoom + 199}}) {
    for (index_t c = 0; c < kColumns; ++c) {
      const index_t from = row * layer.out + kQueries + c;
      want_k[position * kColumns + c] = qkv[from];
      want_v[position * kColumns + c] = qkv[from + kColumns];
    }
  }
  EXPECT_EQ(k.values(), want_k);
  EXPECT_EQ(v.values(), want_v);
  for (index_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(part_of(y.values(), row * kQueries, kQueries),
              part_of(qkv, row * layer.out, kQueries));
  }
}

// Attention's tiles, and the product of what they are combined to.
template <class T>
struct Attended {
  Attended(const CachedHeads& of, const Numbers& at, const Numbers& of_length)
      : heads(of),
        count(std::ssize(at)),
        in(of.heads * of.head_dim),
        width(in + 2 * of.kv_heads * of.head_dim),
        columns(of.kv_heads * of.head_dim),
        device_places(numbers_on_device(at)),
        device_lengths(numbers_on_device(of_length)),
        k(test::uniform(kTextPlaces * kTextRoom * columns, 1)),
        v(test::uniform(kTextPlaces * kTextRoom * columns, 2)),
        qkv(test::uniform(count * width, 3)),
        w(test::uniform(kOut * in, 4, -1, 1)) {}

  CachedTexts texts() const {
    CachedTexts of;
    of.count = count;
    of.capacity = of.longest = kTextRoom;
    of.places = device_places.cvector();
    of.lengths = device_lengths.cvector();
    return of;
  }
  test::Array<Accumulator<T>> scratch() const {
    return test::Array<Accumulator<T>>(decode_attention_scratch_elements(texts(), heads),
                                       NAN);
  }
  View2<const T> keys() const { return k.cmatrix(kTextPlaces * kTextRoom, columns); }
  View2<const T> values() const { return v.cmatrix(kTextPlaces * kTextRoom, columns); }
  Values run() const {
    const auto tiles = scratch();
    decode_attention_tiles<T>(Exec(), texts(), heads, qkv.cmatrix(count, width), keys(),
                              values(), tiles.vector());
    DecodeInput<T> from;
    from.tiles = tiles.cvector();
    from.texts = texts();
    from.heads = heads;
    return product(from);
  }
  // Attention's output by a launch of its own.
  Values apart() const {
    const test::Array<T> o(count * in, -7.0);
    const auto tiles = scratch();
    impl::decode_attention_by_teams<T>(Exec(), texts(), heads, qkv.cmatrix(count, width),
                                       keys(), values(), tiles.vector(),
                                       o.matrix(count, in));
    DecodeInput<T> from;
    from.rows = o.cmatrix(count, in);
    return product(from);
  }
  Values product(const DecodeInput<T>& from) const {
    const test::Array<T> y(count * kOut, -7.0);
    DecodeOutput<T> to;
    to.y = y.matrix(count, kOut);
    decode_linear<T>(Exec(), from, WeightOperand<T>(w.cmatrix(kOut, in)), to);
    Exec().fence("test");
    return y.values();
  }

  static constexpr index_t kOut = 19;
  CachedHeads heads;
  index_t count, in, width, columns;
  test::Array<std::int32_t> device_places, device_lengths;
  test::Array<T> k, v, qkv, w;
};

// To the bits of a combination by itself: one order of sums, one rounding.
TYPED_TEST(DecodeLinearOf, CombinesWhatAttentionLeft) {
  using T = TypeParam;
  for (const CachedHeads& heads :
       {CachedHeads{1, 1, 1, 0.7}, CachedHeads{6, 3, 31, 0.2},
        CachedHeads{4, 4, 64, 0.125}, CachedHeads{6, 2, 40, 0.1},
        CachedHeads{24, 8, 64, 0.125}}) {
    const Attended<T> attended(heads, {3, 0, 4, 1, 2}, {1, 200, 0, 65, 33});
    const Values got = attended.run();
    EXPECT_EQ(got, attended.apart()) << heads.head_dim;
    EXPECT_EQ(part_of(got, 2 * attended.kOut, attended.kOut), Values(attended.kOut, 0.0));
  }
}

TYPED_TEST(DecodeLinearOf, ATextHasTheBitsThatItHasAlone) {
  using T = TypeParam;
  const CachedHeads heads{6, 2, 40, 0.1};
  const Numbers places{3, 0, 4, 1, 2}, lengths{1, 200, 64, 65, 129};
  const Attended<T> all(heads, places, lengths);
  const Values together = all.run(), queries = all.qkv.values();
  for (std::size_t i = 0; i < 5; ++i) {
    Attended<T> alone(heads, {places[i]}, {lengths[i]});
    const auto row = static_cast<index_t>(i);
    alone.qkv = test::Array<T>(part_of(queries, row * all.width, all.width));
    EXPECT_EQ(alone.run(), part_of(together, row * all.kOut, all.kOut)) << i;
  }
}

// Rows whose norm, and attention, fit what a team has: at most sixteen.
TEST(DecodeLinearWay, IsThatOfAGpu) {
  EXPECT_EQ(has_decode_linear<bf16>(1, 768), !kHostExecution);
  EXPECT_EQ(has_decode_linear<bf16>(16, 12288), !kHostExecution);
  EXPECT_FALSE(has_decode_linear<bf16>(17, 768));
  EXPECT_FALSE(has_decode_linear<bf16>(0, 768));
  EXPECT_FALSE(has_decode_linear<double>(1, 12288));
}

// 3 rows of 40, normed, by 24 + 2 * 5 rows of W: 2 * 3 * 34 * 40 FLOPs; bytes of x, gamma
// and beta, W, bias, y and what goes to the cache.
TEST(DecodeLinearCosts, AreThoseOfOperands) {
  Tally tally;
  const auto of = [](index_t rows, index_t columns) {
    return View2<bf16>(nullptr, extent(rows), extent(columns));
  };
  DecodeInput<bf16> from;
  from.rows = of(3, 40);
  from.gamma = from.beta = View1<const bf16>(nullptr, 40);
  DecodeOutput<bf16> to;
  to.y = of(3, 24);
  to.bias = View1<const bf16>(nullptr, 34);
  to.k = to.v = of(kTextPlaces * kTextRoom, 5);
  to.texts.count = 3;
  decode_linear<bf16>(Exec::shape_only(tally), from, WeightOperand<bf16>(of(34, 40)), to);
  const KernelTally found = tally.kernel("trireme::kernels::decode_linear");
  EXPECT_EQ(found.calls, 1);
  EXPECT_EQ(found.cost.flops, 2.0 * 3 * 34 * 40);
  EXPECT_EQ(found.cost.bytes, 2 * (3 * 40 + 2 * 40 + 34 * 40 + 34 + 3 * 34));
}

TEST(DecodeLinearErrors, AreNamed) {
  const auto of = [](index_t rows, index_t columns) {
    return View2<float>(nullptr, extent(rows), extent(columns));
  };
  const auto message_of = [&](index_t rows, index_t in, index_t y_columns,
                              index_t norm_columns = 0) {
    Tally tally;
    DecodeInput<float> from;
    from.rows = of(rows, in);
    from.gamma = from.beta = View1<const float>(nullptr, extent(norm_columns));
    DecodeOutput<float> to;
    to.y = of(rows, y_columns);
    try {
      decode_linear<float>(Exec::shape_only(tally), from, WeightOperand<float>(of(7, in)),
                           to);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(message_of(16, 8, 7), "nothing was thrown");
  EXPECT_THAT(message_of(17, 8, 7), testing::HasSubstr("17 rows of 8 columns, 16 at"));
  EXPECT_THAT(message_of(2, 8, 6), testing::HasSubstr("y is (2, 6), expected (2, 7)"));
  EXPECT_THAT(message_of(2, 8, 7, 9), testing::HasSubstr("gamma has 9 elements"));
  EXPECT_THAT(message_of(2, 50000, 7, 50000),
              testing::HasSubstr("a row of 50,000 elements does not fit"));
}

}  // namespace
}  // namespace trireme::kernels
