// AdamW against the textbook update in double over fifty steps, chunks with and without
// decay, slabs that begin elsewhere, and gaps that must stay untouched; the square sum
// over chunks.
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

using MasterTypes = ::testing::Types<float, double>;
template <class T>
class AdamwOf : public ::testing::Test {};
TYPED_TEST_SUITE(AdamwOf, MasterTypes);

TYPED_TEST(AdamwOf, FiftyStepsMatchTheFormula) {
  using T = TypeParam;
  // Runs of odd lengths; [100, 164) is nobody's.
  std::vector<AdamWChunk> chunks;
  const auto add = [&](index_t begin, std::int32_t count, std::int16_t decays) {
    // Gradients have three numbers before them, moments five: shards begin elsewhere.
    chunks.push_back({begin, begin + 3, begin + 5, count, decays});
  };
  add(0, 1, 1), add(1, 31, 0), add(32, 33, 1), add(65, 35, 0), add(164, 257, 1);
  add(421, 16384, 1), add(16805, 3, 0);
  const index_t n = 16808;
  const AdamWDesc desc{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  const DeviceArray<AdamWChunk> device_chunks = on_device(chunks);
  const View1<const AdamWChunk> chunk_view(device_chunks.data(), chunks.size());

  const Array<T> weight(test::uniform(n, 1)), m(n + 5), v(n + 5);
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
    const Array<T> g_now(test::uniform(n + 3, 100 + k));
    const auto g = g_now.values();
    adamw<T>(Exec(), desc, StepStateView(state.data()), chunk_view, n, g_now.cvector(),
             weight.vector(), m.vector(), v.vector());
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
  const double u = test::rounding<T>();
  test::expect_close(weight.values(), w, 50 * u, 1, "weight");
  test::expect_close(m.values(), ms, 16 * u, 1, "exp_avg");
  test::expect_close(v.values(), vs, 16 * u, 0.01, "exp_avg_sq");
  for (index_t i = 100; i < 164; ++i) ASSERT_EQ(weight.values()[i], before[i]);
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
                weight.vector(), m.vector(), v.vector());
  EXPECT_EQ(weight.values(),
            (std::vector<double>{1.0 - 3e-5, -2.0 * (1 - 3e-5), 1.0, -2.0}));
}

TYPED_TEST(AdamwOf, SquareSumOfChunks) {
  using T = TypeParam;
  const index_t n = 40000;
  const Array<T> g(test::uniform(n, 1));
  const std::vector<AdamWChunk> chunks = {
      {0, 7, 0, 1, 0},       {0, 100, 0, 16384, 1}, {0, 16500, 0, 33, 0, 0},
      {0, 20000, 0, 257, 0}, {0, 39999, 0, 1, 1},   {0, 30000, 0, 16, 1, 0}};
  const auto values = g.values();
  long double want = 2.5L;
  for (const AdamWChunk& c : chunks) {
    for (index_t i = c.gradient; i < c.gradient + c.count && c.in_norm != 0; ++i) {
      want += static_cast<long double>(values[i]) * values[i];
    }
  }
  const auto device_chunks = on_device(chunks);
  const View1<const AdamWChunk> chunk_view(device_chunks.data(), chunks.size());
  const Array<double> partial(chunks.size(), 1e300), total(1, 2.5);
  square_sum_of_chunks<T>(Exec(), chunk_view, 0, g.cvector(), partial.vector(),
                          total.scalar());
  EXPECT_NEAR(total.values()[0], static_cast<double>(want),
              1e-14 * static_cast<double>(want));
  square_sum_of_chunks<T>(Exec(), View1<const AdamWChunk>(nullptr, 0), 0, g.cvector(),
                          partial.vector(), total.scalar());
  EXPECT_NEAR(total.values()[0], static_cast<double>(want), 1e-14 * want);
  const Array<double> small(2);
  EXPECT_THROW(square_sum_of_chunks<T>(Exec(), chunk_view, 0, g.cvector(), small.vector(),
                                       total.scalar()),
               Error);
}

// The squares are taken in double: no overflow, no underflow of float squares.
TEST(AdamwSquareSum, RangeOfFloat) {
  const Array<float> g({3e38, 1e-30});
  const auto chunks = on_device({{0, 0, 0, 2, 0}});
  const Array<double> partial(1), total(1);
  square_sum_of_chunks<float>(Exec(), View1<const AdamWChunk>(chunks.data(), 1), 0,
                              g.cvector(), partial.vector(), total.scalar());
  EXPECT_NEAR(total.values()[0] / 9e76, 1.0, 1e-6);
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
  const Array<double> partial(runs.size());
  std::vector<double> sums;
  for (const Exec& exec : {one.exec, Exec()}) {
    const Array<double> total(1);
    square_sum_of_chunks<float>(exec, View1<const AdamWChunk>(chunks.data(), runs.size()),
                                0, g.cvector(), partial.vector(), total.scalar());
    exec.fence("test");
    sums.push_back(total.values()[0]);
  }
  EXPECT_EQ(sums[0], sums[1]);
}

}  // namespace
}  // namespace trireme::kernels
