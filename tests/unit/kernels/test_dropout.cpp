// Dropout: masks are a function of global coordinates alone, and everything around them
// is right to the bit.
#include "kernels/dropout.hpp"

#include "kernels/impl/philox_lanes.hpp"
#include "kernels/reductions.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

// StepState in device memory.
class DropoutStep {
 public:
  explicit DropoutStep(std::uint64_t sample_base = 0, std::uint64_t seed = 99)
      : state_("state") {
    StepState state;
    state.seed = seed;
    state.sample_base = sample_base;
    Kokkos::deep_copy(state_, state);
  }
  StepStateView view() const { return StepStateView(state_.data()); }

 private:
  Kokkos::View<StepState, DeviceMemory> state_;
};

// Word of element j at a position of a sample, straight from the generator.
std::uint32_t word_at(std::uint64_t sample, std::uint64_t position, index_t h, index_t j,
                      std::uint16_t layer, random::Site site) {
  const random::Generator generator{
      .seed = 99, .owner = sample, .layer = layer, .site = site};
  const auto words =
      random::DropoutWords::call(generator, position * ((h + 7) / 8) + j / 8);
  return words.word[j % 8 / 2] >> (16 * (j % 2)) & 0xffffu;
}

template <int kRounds>
void expect_lanes_of_blocks() {
  random::Generator g{
      .seed = 0x123456789abcdefull, .owner = 0xfedcba987654ull, .layer = 77};
  g.site = random::Site::mlp_output;
  for (const std::uint64_t first :
       {0ull, 5ull, (1ull << 32) - 13, (1ull << 32) - 8, (1ull << 47) + 3}) {
    constexpr int kGroups = 3;
    constexpr int kWords = kGroups * kPhiloxWords;
    std::uint32_t by_call[kWords], by_word[kWords];
    std::uint16_t halves[2 * kWords];
    philox_lanes<kRounds, WordOrder::by_call>(g, first, kGroups, by_call);
    philox_lanes<kRounds, WordOrder::by_word>(g, first, kGroups, by_word);
    philox_lanes<kRounds, WordOrder::by_word>(g, first, kGroups, halves);
    for (int i = 0; i < kWords; ++i) {
      const auto one = g.block<kRounds>(first + i / 4).word[i % 4];
      ASSERT_EQ(by_call[i], one) << first << " " << i;
      const int at = i / 16 * 16 + i % 4 * 4 + i / 4 % 4;
      ASSERT_EQ(by_word[at], one) << first << " " << i;
      ASSERT_EQ(halves[2 * at], one & 0xffffu) << first << " " << i;
      ASSERT_EQ(halves[2 * at + 1], one >> 16) << first << " " << i;
    }
  }
}

TEST(DropoutPhilox, LanesEqualSingleBlocks) {
  expect_lanes_of_blocks<10>();
  expect_lanes_of_blocks<7>();
}

template <class T>
class DropoutOf : public ::testing::Test {};
TYPED_TEST_SUITE(DropoutOf, test::RealTypes);

TYPED_TEST(DropoutOf, MatchesReference) {
  using T = TypeParam;
  const double p = 0.3, u = test::rounding<T>();
  const std::uint32_t threshold = 19661;  // 65536 * 0.3, rounded
  const double keep_scale = 65536.0 / (65536.0 - threshold);
  for (const index_t batch : {1, 3}) {
    for (const index_t s : {1, 11}) {
      for (const index_t h : {1, 2, 31, 33, 257, 768}) {
        SCOPED_TRACE(::testing::Message() << s << " x " << batch << " x " << h);
        const index_t rows = s * batch;
        const DropoutStep step(1000);
        const DropoutDesc desc{.probability = p,
                               .batch = batch,
                               .sequence_begin = 5,
                               .layer = 9,
                               .site = random::Site::mlp_output};
        const Array<T> x(test::uniform(rows * h, 1)), bias(test::uniform(h, 2)),
            residual(test::uniform(rows * h, 3)), y(rows * h);
        const auto xs = x.values(), bs = bias.values(), rs = residual.values();
        for (int variant = 0; variant < 4; ++variant) {
          const bool with_bias = (variant & 1) != 0, with_residual = (variant & 2) != 0;
          std::vector<double> want(rows * h);
          for (index_t r = 0; r < rows; ++r) {
            for (index_t j = 0; j < h; ++j) {
              const bool kept = word_at(1000 + r % batch, 5 + r / batch, h, j, 9,
                                        random::Site::mlp_output) >= threshold;
              want[r * h + j] =
                  (kept ? (xs[r * h + j] + (with_bias ? bs[j] : 0)) * keep_scale : 0) +
                  (with_residual ? rs[r * h + j] : 0);
            }
          }
          bias_dropout_add_forward<T>(
              Exec(), desc, step.view(), x.cmatrix(rows, h),
              with_bias ? bias.cvector() : View1<const T>(),
              with_residual ? residual.cmatrix(rows, h) : View2<const T>(),
              y.matrix(rows, h));
          test::expect_close(y.values(), want, 4 * u, 2, "y");
          // Over x, and over the residual.
          const Array<T> over_x(xs);
          bias_dropout_add_forward<T>(
              Exec(), desc, step.view(), over_x.cmatrix(rows, h),
              with_bias ? bias.cvector() : View1<const T>(),
              with_residual ? residual.cmatrix(rows, h) : View2<const T>(),
              over_x.matrix(rows, h));
          EXPECT_EQ(over_x.bytes(), y.bytes());
          if (with_residual) {
            const Array<T> over_r(rs);
            bias_dropout_add_forward<T>(Exec(), desc, step.view(), x.cmatrix(rows, h),
                                        with_bias ? bias.cvector() : View1<const T>(),
                                        over_r.cmatrix(rows, h), over_r.matrix(rows, h));
            EXPECT_EQ(over_r.bytes(), y.bytes());
          }
        }
        // Backward draws the same mask: zero exactly where forward without residual is.
        const Array<T> d_y(rows * h, 1.0), d_x(rows * h), ones(rows * h, 1.0);
        bias_dropout_add_forward<T>(Exec(), desc, step.view(), ones.cmatrix(rows, h),
                                    View1<const T>(), View2<const T>(),
                                    y.matrix(rows, h));
        dropout_backward<T>(Exec(), desc, step.view(), d_y.cmatrix(rows, h),
                            d_x.matrix(rows, h));
        EXPECT_EQ(d_x.bytes(), y.bytes());
        dropout_backward<T>(Exec(), desc, step.view(), d_y.cmatrix(rows, h),
                            d_y.matrix(rows, h));
        EXPECT_EQ(d_y.bytes(), y.bytes());
      }
    }
  }
}

// Where nothing is dropped, too: there it is all that the pass does.
TYPED_TEST(DropoutOf, AFactorIsInTheSamePass) {
  using T = TypeParam;
  const DropoutStep step;
  const index_t rows = 31, h = 257;
  for (const double p : {0.0, 0.3}) {
    const DropoutDesc plain{.probability = p, .sequence_begin = 2, .layer = 4};
    DropoutDesc desc = plain;
    desc.factor = 0.25;  // exact
    const Array<T> x(test::uniform(rows * h, 1)), residual(test::uniform(rows * h, 2)),
        want(rows * h), y(rows * h), d_x(rows * h), both(rows * h);
    bias_dropout_add_forward<T>(Exec(), plain, step.view(), x.cmatrix(rows, h), {}, {},
                                want.matrix(rows, h));
    bias_dropout_add_forward<T>(Exec(), desc, step.view(), x.cmatrix(rows, h), {}, {},
                                y.matrix(rows, h));
    dropout_backward<T>(Exec(), desc, step.view(), x.cmatrix(rows, h),
                        d_x.matrix(rows, h));
    bias_dropout_add_forward<T>(Exec(), desc, step.view(), x.cmatrix(rows, h), {},
                                residual.cmatrix(rows, h), both.matrix(rows, h));
    std::vector<double> quarter = want.values(), sum = residual.values();
    for (index_t i = 0; i < rows * h; ++i) sum[i] += quarter[i] *= 0.25;
    test::expect_close(y.values(), quarter, test::rounding<T>(), 0.01, "y");
    EXPECT_EQ(d_x.bytes(), y.bytes());
    test::expect_close(both.values(), sum, 2 * test::rounding<T>(), 1, "with residual");
    // In place it is no copy that need not be made.
    dropout_backward<T>(Exec(), desc, step.view(), x.cmatrix(rows, h), x.matrix(rows, h));
    EXPECT_EQ(x.bytes(), y.bytes());
  }
}

// The gradient and the sums for the bias in one pass: the bits of two.
TYPED_TEST(DropoutOf, BackwardLeavesSumsForTheBias) {
  using T = TypeParam;
  using A = Accumulator<T>;
  const DropoutStep step;
  for (const double p : {0.0, 0.3}) {
    for (const auto& [rows, h] : {std::pair{1, 1},
                                  {31, 33},
                                  {33, 1100},
                                  {257, 31},
                                  {31, 16},
                                  {33, 32},
                                  {19, 64},
                                  {2000, 17}}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << h << ", " << p);
      const DropoutDesc desc{.probability = p, .sequence_begin = 2, .layer = 4};
      const index_t blocks = partial_count(rows, h);
      const Array<T> d_y(test::uniform(rows * h, 1)), d_x(rows * h), want_x(rows * h);
      const Array<A> partials(blocks * h, 1e30), want(h),
          scratch(sum_rows_scratch_elements(h));
      const auto backward = [&](const Array<T>& from, const View2<T>& to) {
        bias_dropout_add_backward<T>(Exec(), desc, step.view(), from.cmatrix(rows, h), to,
                                     partials.matrix(blocks, h));
        const Array<A> sum(h);
        add_partials<A>(Exec(), partials.cmatrix(blocks, h), Accumulate::yes,
                        sum.vector());
        return sum.bytes();
      };
      dropout_backward<T>(Exec(), desc, step.view(), d_y.cmatrix(rows, h),
                          want_x.matrix(rows, h));
      sum_rows<T>(Exec(), want_x.cmatrix(rows, h), scratch.vector(), Accumulate::yes,
                  want.vector());
      EXPECT_EQ(backward(d_y, d_x.matrix(rows, h)), want.bytes());
      EXPECT_EQ(d_x.bytes(), want_x.bytes());
      const Array<T> in_place(d_y.values());
      EXPECT_EQ(backward(in_place, in_place.matrix(rows, h)), want.bytes());
      EXPECT_EQ(in_place.bytes(), want_x.bytes());
      if (p == 0.0) {
        EXPECT_EQ(backward(d_y, View2<T>()), want.bytes());
      }
    }
  }
}

TYPED_TEST(DropoutOf, ProbabilityZeroKeepsEverything) {
  using T = TypeParam;
  const index_t rows = 6, h = 33;
  const DropoutStep step;
  const DropoutDesc desc{.batch = 2};
  const Array<T> x(test::uniform(rows * h, 1)), y(rows * h);
  bias_dropout_add_forward<T>(Exec(), desc, step.view(), x.cmatrix(rows, h),
                              View1<const T>(), View2<const T>(), y.matrix(rows, h));
  EXPECT_EQ(y.bytes(), x.bytes());
  const Array<T> d_x(rows * h);
  dropout_backward<T>(Exec(), desc, step.view(), x.cmatrix(rows, h), d_x.matrix(rows, h));
  EXPECT_EQ(d_x.bytes(), x.bytes());
}

// The mask of a (s, b) activation, as (sample, position, j) -> kept.
std::vector<double> mask_of(const Exec& exec, index_t s, index_t b, index_t h,
                            index_t sequence_begin, std::uint64_t sample_base,
                            std::uint16_t layer = 1, std::uint64_t seed = 99) {
  const DropoutStep step(sample_base, seed);
  const Array<float> ones(s * b * h, 1.0), y(s * b * h);
  const DropoutDesc desc{.probability = 0.1,
                         .batch = b,
                         .sequence_begin = sequence_begin,
                         .layer = layer,
                         .site = random::Site::attention_output};
  bias_dropout_add_forward<float>(exec, desc, step.view(), ones.cmatrix(s * b, h),
                                  View1<const float>(), View2<const float>(),
                                  y.matrix(s * b, h));
  exec.fence("test");
  return y.values();
}

TEST(DropoutMask, ShardsAndMicroBatchesGiveTheSameMask) {
  const index_t s = 12, b = 4, h = 50;
  const auto whole = mask_of(Exec(), s, b, h, 0, 100);
  // Three sequence shards.
  for (index_t part = 0; part < 3; ++part) {
    const auto shard = mask_of(Exec(), s / 3, b, h, part * s / 3, 100);
    EXPECT_TRUE(
        std::equal(shard.begin(), shard.end(), whole.begin() + part * s / 3 * b * h));
  }
  // Micro-batches of one sample.
  for (index_t sample = 0; sample < b; ++sample) {
    const auto alone = mask_of(Exec(), s, 1, h, 0, 100 + sample);
    for (index_t pos = 0; pos < s; ++pos) {
      for (index_t j = 0; j < h; ++j) {
        ASSERT_EQ(alone[pos * h + j], whole[(pos * b + sample) * h + j]);
      }
    }
  }
  const test::OneThread one;
  if (one.exists) {
    EXPECT_EQ(mask_of(one.exec, s, b, h, 0, 100), whole);
  }
}

TEST(DropoutMask, DependsOnEveryKeyAndKeepsTheRightFraction) {
  const index_t s = 64, b = 4, h = 301;
  const auto base = mask_of(Exec(), s, b, h, 0, 100);
  EXPECT_NE(mask_of(Exec(), s, b, h, 0, 100, 2), base);
  EXPECT_NE(mask_of(Exec(), s, b, h, 0, 101), base);
  EXPECT_NE(mask_of(Exec(), s, b, h, 1, 100), base);
  EXPECT_NE(mask_of(Exec(), s, b, h, 0, 100, 1, 98), base);
  double kept = 0;
  for (const double v : base) kept += v != 0;
  const auto n = static_cast<double>(base.size());
  EXPECT_NEAR(kept / n, 0.9, 5 * std::sqrt(0.09 / n));
}

// The mask of one run, for ever: a change here breaks every resumed run.
TEST(DropoutMask, KnownAnswer) {
  const auto mask = mask_of(Exec(), 2, 2, 37, 3, 7);
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const double v : mask) hash = (hash ^ (v != 0 ? 1u : 0u)) * 0x100000001b3ull;
  EXPECT_EQ(hash, 0xb8fa4bac5138642eull);
}

TEST(DropoutErrors, WrongUse) {
  const DropoutStep step;
  const Array<float> x(12), y(12);
  for (const double p : {-0.1, 1.0, 1.5, 7e-6, 1 - 7e-6, static_cast<double>(NAN)}) {
    EXPECT_THROW(bias_dropout_add_forward<float>(
                     Exec(), DropoutDesc{.probability = p}, step.view(), x.cmatrix(4, 3),
                     View1<const float>(), View2<const float>(), y.matrix(4, 3)),
                 std::exception)
        << p;
  }
  EXPECT_THROW(
      dropout_backward<float>(Exec(), DropoutDesc{.probability = 0.1, .batch = 3},
                              step.view(), x.cmatrix(4, 3), y.matrix(4, 3)),
      std::exception);
}

}  // namespace
}  // namespace trireme::kernels
