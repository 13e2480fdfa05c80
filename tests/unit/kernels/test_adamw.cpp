// AdamW against the textbook update in double over fifty steps, chunks with and without
// decay, slabs that begin elsewhere, and gaps that must stay untouched, with and without
// a narrower copy; steps that are left out; the square sum over chunks, and what in them
// is not finite.
#include "kernels/adamw.hpp"

#include "base/error.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

DeviceArray<AdamWChunk> on_device(const std::vector<AdamWChunk>& chunks) {
  DeviceArray<AdamWChunk> result("chunks", chunks.size());
  auto host = Kokkos::create_mirror_view(result);
  for (std::size_t i = 0; i < chunks.size(); ++i) host(i) = chunks[i];
  Kokkos::deep_copy(result, host);
  return result;
}

template <class T>
class AdamwOf : public ::testing::Test {};
TYPED_TEST_SUITE(AdamwOf, test::RealTypes);

// Runs of odd lengths in 16808 elements, of which [100, 164) are nobody's. Gradients have
// three numbers before them, moments five, the copy seven: shards begin elsewhere.
constexpr index_t kElements = 16808;
std::vector<AdamWChunk> odd_chunks() {
  std::vector<AdamWChunk> chunks;
  const auto add = [&](index_t begin, std::int32_t count, std::int16_t decays) {
    chunks.push_back({.weight = begin,
                      .gradient = begin + 3,
                      .moment = begin + 5,
                      .count = count,
                      .decays = decays,
                      .compute = begin + 7});
  };
  add(0, 1, 1), add(1, 31, 0), add(32, 33, 1), add(65, 35, 0), add(164, 257, 1);
  add(421, 16384, 1), add(16805, 3, 0);
  return chunks;
}

// The copy, or no View where T needs none.
template <class T>
View1<T> copy_of(const Array<T>& copy) {
  return std::is_same_v<T, Accumulator<T>> ? View1<T>() : copy.vector();
}

TYPED_TEST(AdamwOf, FiftyStepsMatchTheFormula) {
  using T = TypeParam;
  using A = Accumulator<T>;
  std::vector<AdamWChunk> chunks = odd_chunks();
  if (std::is_same_v<T, A>) {
    for (AdamWChunk& chunk : chunks) chunk.compute = 0;
  }
  const index_t n = kElements;
  const AdamWDesc desc{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  const DeviceArray<AdamWChunk> device_chunks = on_device(chunks);
  const View1<const AdamWChunk> chunk_view(device_chunks.data(), chunks.size());

  const Array<A> weight(test::uniform(n, 1)), m(n + 5), v(n + 5);
  const Array<T> copy(n + 7, 3.0);
  std::vector<double> w = weight.values(), ms(n + 5), vs(n + 5);
  const std::vector<double> before = w;
  std::vector<int> decays(n, -1);
  for (const AdamWChunk& c : chunks) {
    for (index_t i = c.weight; i < c.weight + c.count; ++i) decays[i] = c.decays;
  }
  Kokkos::View<StepState, DeviceMemory> state("state");
  for (int k = 1; k <= 50; ++k) {
    StepState step;
    step.learning_rate = 1e-3 * k;
    step.bias_correction1 = 1 - std::pow(desc.beta1, k);
    step.bias_correction2 = 1 - std::pow(desc.beta2, k);
    step.gradient_scale = 0.25;
    Kokkos::deep_copy(state, step);
    const Array<A> g_now(test::uniform(n + 3, 100 + k));
    const auto g = g_now.values();
    adamw<T>(Exec(), desc, StepStateView(state.data()), chunk_view, n, g_now.cvector(),
             weight.vector(), m.vector(), v.vector(), copy_of(copy));
    Kokkos::fence("test");
    for (index_t i = 0; i < n; ++i) {
      if (decays[i] < 0) continue;
      const double scaled = 0.25 * g[i + 3];
      double& m_i = ms[i + 5];
      double& v_i = vs[i + 5];
      m_i = desc.beta1 * m_i + (1 - desc.beta1) * scaled;
      v_i = desc.beta2 * v_i + (1 - desc.beta2) * scaled * scaled;
      const double m_hat = m_i / step.bias_correction1;
      const double v_hat = v_i / step.bias_correction2;
      w[i] -= step.learning_rate * m_hat / (std::sqrt(v_hat) + desc.epsilon) +
              (decays[i] == 1 ? step.learning_rate * desc.weight_decay * w[i] : 0.0);
    }
  }
  const double u = test::rounding<A>();
  test::expect_close(weight.values(), w, 50 * u, 1, "weight");
  test::expect_close(m.values(), ms, 16 * u, 1, "exp_avg");
  test::expect_close(v.values(), vs, 16 * u, 0.01, "exp_avg_sq");
  const std::vector<double> after = weight.values(), rounded = Array<T>(after).values(),
                            copied = copy.values();
  for (index_t i = 100; i < 164; ++i) ASSERT_EQ(after[i], before[i]);
  for (index_t i = 0; i < n + 7; ++i) {
    const bool is_copied = !std::is_same_v<T, A> && i >= 7 && decays[i - 7] >= 0;
    ASSERT_EQ(copied[i], is_copied ? rounded[i - 7] : 3.0) << i;
  }
}

// The flag of the state, and nothing else, decides: not a bit is written, whatever the
// gradients are.
TYPED_TEST(AdamwOf, AStepThatIsLeftOutWritesNothing) {
  using T = TypeParam;
  using A = Accumulator<T>;
  const std::vector<AdamWChunk> chunks = odd_chunks();
  const DeviceArray<AdamWChunk> device_chunks = on_device(chunks);
  const View1<const AdamWChunk> chunk_view(device_chunks.data(), chunks.size());
  const index_t n = kElements;
  std::vector<double> bad = test::uniform(n + 3, 1);
  bad[500] = NAN;
  bad[501] = INFINITY;
  const Array<A> gradient(bad), weight(test::uniform(n, 2)), m(test::uniform(n + 5, 3)),
      v(test::uniform(n + 5, 4, 0, 1));
  const Array<T> copy(test::uniform(n + 7, 5));
  const auto bytes = [&] {
    return std::vector{weight.bytes(), m.bytes(), v.bytes(), copy.bytes()};
  };
  const auto before = bytes();
  Kokkos::View<StepState, DeviceMemory> state("state");
  for (const std::int32_t skips : {1, 0}) {
    StepState step;
    step.learning_rate = 1e-3;
    step.skips_update = skips;
    Kokkos::deep_copy(state, step);
    adamw<T>(Exec(), {}, StepStateView(state.data()), chunk_view, n, gradient.cvector(),
             weight.vector(), m.vector(), v.vector(), copy.vector());
    EXPECT_EQ(bytes() == before, skips != 0);
  }
}

// Zero gradients and zero moments: only the decay moves the weight, by lr wd w, to the
// last digits (1 - lr wd in float would be off by a part in a thousand here).
TEST(AdamwDecay, IsAccurate) {
  const AdamWDesc desc{.weight_decay = 0.1};
  const DeviceArray<AdamWChunk> chunks = on_device({{0, 0, 0, 2, 1}, {2, 2, 2, 2, 0}});
  Kokkos::View<StepState, DeviceMemory> state("state");
  StepState step;
  step.learning_rate = 3e-4;
  step.bias_correction1 = 0.1;
  step.bias_correction2 = 0.05;
  Kokkos::deep_copy(state, step);
  const Array<double> gradient(4), weight({1.0, -2.0, 1.0, -2.0}), m(4), v(4);
  adamw<double>(Exec(), desc, StepStateView(state.data()),
                View1<const AdamWChunk>(chunks.data(), 2), 4, gradient.cvector(),
                weight.vector(), m.vector(), v.vector(), {});
  EXPECT_EQ(weight.values(),
            (std::vector<double>{1.0 - 3e-5, -2.0 * (1 - 3e-5), 1.0, -2.0}));
}

template <class T>
class AdamwSquareSumOf : public ::testing::Test {};
using MasterTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AdamwSquareSumOf, MasterTypes);

TYPED_TEST(AdamwSquareSumOf, Chunks) {
  using T = TypeParam;
  const index_t n = 40000;
  const Array<T> g(test::uniform(n, 1));
  const std::vector<AdamWChunk> chunks = {
      {0, 7, 0, 1, 0},       {0, 100, 0, 16384, 1}, {0, 16500, 0, 33, 0, 0},
      {0, 20000, 0, 257, 0}, {0, 39999, 0, 1, 1},   {0, 30000, 0, 16, 1, 0},
      {0, 35000, 0, 31, 0}};
  const auto values = g.values();
  long double want = 2.5L;
  for (const AdamWChunk& c : chunks) {
    for (index_t i = c.gradient; i < c.gradient + c.count && c.in_norm != 0; ++i) {
      want += static_cast<long double>(values[i]) * values[i];
    }
  }
  const auto device_chunks = on_device(chunks);
  const View1<const AdamWChunk> chunk_view(device_chunks.data(), chunks.size());
  const Array<double> partial(2 * chunks.size(), 1e300), totals({2.5, 7.0});
  square_sum_of_chunks<T>(Exec(), chunk_view, 0, g.cvector(), partial.vector(),
                          totals.vector());
  EXPECT_NEAR(totals.values()[0], static_cast<double>(want),
              1e-14 * static_cast<double>(want));
  EXPECT_EQ(totals.values()[1], 7.0);
  square_sum_of_chunks<T>(Exec(), View1<const AdamWChunk>(nullptr, 0), 0, g.cvector(),
                          partial.vector(), totals.vector());
  EXPECT_NEAR(totals.values()[0], static_cast<double>(want), 1e-14 * want);
  const Array<double> small(2 * chunks.size() - 1), one(1);
  EXPECT_THROW(square_sum_of_chunks<T>(Exec(), chunk_view, 0, g.cvector(), small.vector(),
                                       totals.vector()),
               Error);
  EXPECT_THROW(square_sum_of_chunks<T>(Exec(), chunk_view, 0, g.cvector(),
                                       partial.vector(), one.vector()),
               Error);
}

// Gradients of 16 bits: the bits of their sum and of an update are those of the same
// numbers in float.
TEST(AdamwNarrow, GradientsAreWidened) {
  std::vector<AdamWChunk> chunks = odd_chunks();
  const index_t n = kElements;
  const auto device_chunks = on_device(chunks);
  const View1<const AdamWChunk> chunk_view(device_chunks.data(), chunks.size());
  std::vector<double> numbers = test::uniform(n + 3, 5, -1e-3, 1e-3);
  Kokkos::View<StepState, DeviceMemory> state("state");
  StepState step;
  step.learning_rate = 1e-2;
  step.bias_correction1 = 0.1;
  step.bias_correction2 = 0.05;
  step.gradient_scale = 0.25;
  Kokkos::deep_copy(state, step);
  const Array<bf16> narrow(numbers);
  const Array<float> wide(narrow.values());
  struct Update {
    Array<float> weight = Array<float>(test::uniform(kElements, 1));
    Array<float> m = Array<float>(kElements + 5), v = Array<float>(kElements + 5);
    Array<bf16> copy = Array<bf16>(kElements + 7);
  };
  const Update got, want;
  const AdamWDesc desc{.weight_decay = 0.1};
  adamw<bf16, bf16>(Exec(), desc, StepStateView(state.data()), chunk_view, n,
                    narrow.cvector(), got.weight.vector(), got.m.vector(), got.v.vector(),
                    got.copy.vector());
  adamw<bf16>(Exec(), desc, StepStateView(state.data()), chunk_view, n, wide.cvector(),
              want.weight.vector(), want.m.vector(), want.v.vector(), want.copy.vector());
  EXPECT_EQ(got.weight.bytes(), want.weight.bytes());
  EXPECT_EQ(got.m.bytes(), want.m.bytes());
  EXPECT_EQ(got.v.bytes(), want.v.bytes());
  EXPECT_EQ(got.copy.bytes(), want.copy.bytes());
  EXPECT_NE(got.m.values(), std::vector<double>(extent(n + 5)));

  // Two that are not finite, in chunks that the norm counts.
  for (const bool is_bad : {false, true}) {
    if (is_bad) numbers[5] = INFINITY, numbers[2000] = NAN;
    const Array<bf16> g(numbers);
    const Array<float> same(g.values());
    const Array<double> partial(2 * chunks.size()), sums(2), expected(2);
    square_sum_of_chunks<bf16>(Exec(), chunk_view, 0, g.cvector(), partial.vector(),
                               sums.vector());
    square_sum_of_chunks<float>(Exec(), chunk_view, 0, same.cvector(), partial.vector(),
                                expected.vector());
    EXPECT_EQ(sums.bytes(), expected.bytes());
    EXPECT_EQ(sums.values()[1], is_bad ? 2.0 : 0.0);
  }
}

// Each number that is not finite counts once, where its chunk is in the norm.
TYPED_TEST(AdamwSquareSumOf, CountsWhatIsNotFinite) {
  using T = TypeParam;
  const std::vector<AdamWChunk> chunks = {{0, 0, 0, 16384, 0},
                                          {0, 16384, 0, 257, 0},
                                          {0, 16700, 0, 33, 0, 0},
                                          {0, 17000, 0, 1, 0},
                                          {0, 18000, 0, 31, 0}};
  std::vector<double> values = test::uniform(20000, 1);
  for (const index_t i : {0, 31, 32, 16383}) values[i] = NAN;
  values[16640] = INFINITY, values[16639] = -INFINITY;  // together no NaN
  values[16700] = NAN;                                  // not in the norm
  values[16650] = NAN, values[17001] = NAN;             // in no chunk
  values[17000] = -NAN;
  const Array<T> g(values);
  const auto device_chunks = on_device(chunks);
  const Array<double> partial(2 * chunks.size()), totals({0.0, 100.0});
  square_sum_of_chunks<T>(Exec(),
                          View1<const AdamWChunk>(device_chunks.data(), chunks.size()), 0,
                          g.cvector(), partial.vector(), totals.vector());
  EXPECT_TRUE(std::isnan(totals.values()[0]));
  EXPECT_EQ(totals.values()[1], 107.0);
}

// The squares are taken in double: no overflow, no underflow of float squares.
TEST(AdamwSquareSum, RangeOfFloat) {
  const Array<float> g({3e38, 1e-30});
  const auto chunks = on_device({{0, 0, 0, 2, 0}});
  const Array<double> partial(2), totals(2);
  square_sum_of_chunks<float>(Exec(), View1<const AdamWChunk>(chunks.data(), 1), 0,
                              g.cvector(), partial.vector(), totals.vector());
  EXPECT_NEAR(totals.values()[0] / 9e76, 1.0, 1e-6);
  EXPECT_EQ(totals.values()[1], 0.0);
}

// Squares of double overflow although no number is infinite.
TEST(AdamwSquareSum, OverflowIsNoInfiniteNumber) {
  const Array<double> g({1e200, 1.0});
  const auto chunks = on_device({{0, 0, 0, 2, 0}});
  const Array<double> partial(2), totals(2);
  square_sum_of_chunks<double>(Exec(), View1<const AdamWChunk>(chunks.data(), 1), 0,
                               g.cvector(), partial.vector(), totals.vector());
  EXPECT_TRUE(std::isinf(totals.values()[0]));
  EXPECT_EQ(totals.values()[1], 0.0);
}

TEST(AdamwSquareSum, BitsDoNotDependOnThreads) {
  const test::OneThread one;
  if (!one.exists) GTEST_SKIP() << "needs a host with two threads";
  const Array<float> g(test::uniform(100000, 1));
  std::vector<AdamWChunk> runs;
  for (index_t at = 0; at < 100000; at += 977) {
    runs.push_back(
        {0, at, 0, static_cast<std::int32_t>(std::min<index_t>(977, 100000 - at)), 0});
  }
  const auto chunks = on_device(runs);
  const Array<double> partial(2 * runs.size());
  std::vector<double> sums;
  for (const Exec& exec : {one.exec, Exec()}) {
    const Array<double> totals(2);
    square_sum_of_chunks<float>(exec, View1<const AdamWChunk>(chunks.data(), runs.size()),
                                0, g.cvector(), partial.vector(), totals.vector());
    exec.fence("test");
    sums.push_back(totals.values()[0]);
  }
  EXPECT_EQ(sums[0], sums[1]);
}

}  // namespace
}  // namespace trireme::kernels
