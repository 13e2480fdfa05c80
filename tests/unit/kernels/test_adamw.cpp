// AdamW against the textbook update in double over fifty steps, chunks with and without
// decay, and gaps that must stay untouched.
#include "kernels/adamw.hpp"

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
  const std::vector<AdamWChunk> chunks = {{0, 1, 1},    {1, 31, 0},    {32, 33, 1},
                                          {65, 35, 0},  {164, 257, 1}, {421, 16384, 1},
                                          {16805, 3, 0}};
  const index_t n = 16808;
  const AdamWDesc desc{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  const DeviceArray<AdamWChunk> device_chunks = on_device(chunks);
  const View1<const AdamWChunk> chunk_view(device_chunks.data(), chunks.size());

  const Array<T> weight(test::uniform(n, 1)), m(n), v(n);
  std::vector<double> w = weight.values(), ms(n), vs(n);
  const std::vector<double> before = w;
  std::vector<int> decays(n, -1);
  for (const AdamWChunk& c : chunks) {
    for (index_t i = c.begin; i < c.begin + c.count; ++i) decays[i] = c.decays;
  }
  Kokkos::View<StepState, DeviceMemory> state("state");
  for (int k = 1; k <= 50; ++k) {
    StepState step;
    step.learning_rate = 1e-3 * k;
    step.bias_correction1 = 1 - std::pow(desc.beta1, k);
    step.bias_correction2 = 1 - std::pow(desc.beta2, k);
    step.gradient_scale = 0.25;
    Kokkos::deep_copy(state, step);
    const Array<T> g_now(test::uniform(n, 100 + k));
    const auto g = g_now.values();
    adamw<T>(Exec(), desc, StepStateView(state.data()), chunk_view, g_now.cvector(),
             weight.vector(), m.vector(), v.vector());
    Kokkos::fence("test");
    for (index_t i = 0; i < n; ++i) {
      if (decays[i] < 0) continue;
      const double scaled = 0.25 * g[i];
      ms[i] = desc.beta1 * ms[i] + (1 - desc.beta1) * scaled;
      vs[i] = desc.beta2 * vs[i] + (1 - desc.beta2) * scaled * scaled;
      const double m_hat = ms[i] / step.bias_correction1;
      const double v_hat = vs[i] / step.bias_correction2;
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
  const DeviceArray<AdamWChunk> chunks = on_device({{0, 2, 1}, {2, 2, 0}});
  Kokkos::View<StepState, DeviceMemory> state("state");
  StepState step;
  step.learning_rate = 3e-4;
  step.bias_correction1 = 0.1;
  step.bias_correction2 = 0.05;
  Kokkos::deep_copy(state, step);
  const Array<double> gradient(4), weight({1.0, -2.0, 1.0, -2.0}), m(4), v(4);
  adamw<double>(Exec(), desc, StepStateView(state.data()),
                View1<const AdamWChunk>(chunks.data(), 2), gradient.cvector(),
                weight.vector(), m.vector(), v.vector());
  EXPECT_EQ(weight.values(),
            (std::vector<double>{1.0 - 3e-5, -2.0 * (1 - 3e-5), 1.0, -2.0}));
}

TEST(AdamwShapes, DifferentSlabsAreRefused) {
  const Array<float> gradient(4), weight(4), m(3), v(4);
  Kokkos::View<StepState, DeviceMemory> state("state");
  EXPECT_THROW(adamw<float>(Exec(), {}, StepStateView(state.data()),
                            View1<const AdamWChunk>(nullptr, 0), gradient.cvector(),
                            weight.vector(), m.vector(), v.vector()),
               std::exception);
}

}  // namespace
}  // namespace trireme::kernels
