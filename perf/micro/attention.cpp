// perf/micro/attention.cpp — causal attention of GPT-2 124M: 12 heads of 64.
#include "kernels/attention.hpp"
#include "bounds.hpp"

namespace trireme::perf {
namespace {

constexpr index_t kHeads = 12, kHeadDim = 64, kHidden = kHeads * kHeadDim;

// Arguments: batch, sequence, percent dropped. FLOPs: half of the square, as causal.
struct Problem {
  explicit Problem(const benchmark::State& state)
      : batch(state.range(0)),
        sequence(state.range(1)),
        qkv(normals<float>("qkv", batch * sequence, 3 * kHidden)),
        o(normals<float>("o", batch * sequence, kHidden)),
        lse("lse", batch * kHeads * sequence),
        step("step") {
    desc.batch = batch;
    desc.q_length = desc.kv_length = desc.mask_queries = desc.mask_keys = sequence;
    desc.heads = desc.kv_heads = kHeads;
    desc.head_dim = kHeadDim;
    desc.scale = 0.125;
    desc.dropout = static_cast<double>(state.range(2)) / 100;
  }
  double flops() const {  // of q k^T and of p v
    return 2.0 * 2.0 * batch * kHeads * kHeadDim * sequence * (sequence + 1) / 2;
  }
  template <class T>
  kernels::HeadsView<T> part(const DeviceArray<float>& array, index_t index,
                             index_t width) const {
    return {array.data() + index * kHidden, batch * width, width};
  }

  index_t batch, sequence;
  kernels::AttentionDesc desc;
  DeviceArray<float> qkv, o, lse;
  Kokkos::View<kernels::StepState, DeviceMemory> step;
};

void attention_forward(benchmark::State& state) {
  const Problem p(state);
  run_compute_bound(state, p.flops(), [&](const Exec& exec) {
    kernels::attention_forward<float>(exec, p.desc, kernels::StepStateView(p.step.data()),
                                      p.part<const float>(p.qkv, 0, 3 * kHidden),
                                      p.part<const float>(p.qkv, 1, 3 * kHidden),
                                      p.part<const float>(p.qkv, 2, 3 * kHidden),
                                      p.part<float>(p.o, 0, kHidden), vector(p.lse));
  });
}

void attention_backward(benchmark::State& state) {
  const Problem p(state);
  const auto d_o = normals<float>("d_o", p.batch * p.sequence, kHidden),
             d_qkv = normals<float>("d_qkv", p.batch * p.sequence, 3 * kHidden);
  const DeviceArray<float> scratch("scratch",
                                   kernels::attention_backward_scratch_elements(p.desc));
  // Five products in place of two.
  run_compute_bound(state, 2.5 * p.flops(), [&](const Exec& exec) {
    kernels::attention_backward<float>(
        exec, p.desc, kernels::StepStateView(p.step.data()),
        p.part<const float>(p.qkv, 0, 3 * kHidden),
        p.part<const float>(p.qkv, 1, 3 * kHidden),
        p.part<const float>(p.qkv, 2, 3 * kHidden), p.part<const float>(p.o, 0, kHidden),
        vector(p.lse), p.part<const float>(d_o, 0, kHidden), vector(scratch),
        p.part<float>(d_qkv, 0, 3 * kHidden), p.part<float>(d_qkv, 1, 3 * kHidden),
        p.part<float>(d_qkv, 2, 3 * kHidden));
  });
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"batch", "sequence", "dropout"})
      ->Args({4, 256, 0})
      ->Args({4, 256, 10})
      ->Args({1, 1024, 0})
      ->Args({1, 1024, 10})
      ->UseRealTime();
}
BENCHMARK(attention_forward)->Apply(shapes);
BENCHMARK(attention_backward)->Apply(shapes);

}  // namespace
}  // namespace trireme::perf
