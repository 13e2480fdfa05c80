// perf/micro/attention.cpp — causal attention of GPT-2 124M, which has 12 heads of 64,
// and of each head size that tensor cores have a kernel for; and all of a sample's keys
// with a bias by distance, and with half of the sample padding.
#include "kernels/attention.hpp"

#include <cmath>

#include "bounds.hpp"
#include "kernels/impl/attention_host.hpp"

namespace trireme::perf {
namespace {

using kernels::impl::AttentionWay;

constexpr index_t kHeads = 12, kHeadDim = 64;

// Arguments: batch, sequence, percent dropped. FLOPs: half of the square, as causal.
template <class T>
struct Problem {
  explicit Problem(const benchmark::State& state, index_t heads = kHeads,
                   index_t head_dim = kHeadDim)
      : batch(state.range(0)),
        sequence(state.range(1)),
        hidden(heads * head_dim),
        qkv(normals<T>("qkv", batch * sequence, 3 * hidden)),
        o(normals<T>("o", batch * sequence, hidden)),
        d_o(normals<T>("d_o", batch * sequence, hidden)),
        d_qkv("d_qkv", extent(batch * sequence * 3 * hidden)),
        lse("lse", extent(batch * heads * sequence)),
        step("step") {
    desc.batch = batch;
    desc.q_length = desc.kv_length = desc.mask_queries = desc.mask_keys = sequence;
    desc.heads = desc.kv_heads = heads;
    desc.head_dim = head_dim;
    desc.scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
    desc.dropout = static_cast<double>(state.range(2)) / 100;
    scratch = DeviceArray<float>(
        "scratch", extent(kernels::attention_backward_scratch_elements<bf16>(desc)));
  }
  double flops() const {  // of q k^T and of p v
    return 2.0 * 2.0 * static_cast<double>(batch * hidden * sequence) *
           static_cast<double>(sequence + 1) / 2;
  }
  template <class U>
  kernels::HeadsView<U> part(const DeviceArray<T>& array, index_t index,
                             index_t width) const {
    return {array.data() + index * hidden, batch * width, width};
  }
  kernels::StepStateView state() const { return kernels::StepStateView(step.data()); }
  void forward(const Exec& exec) const {
    kernels::attention_forward<T>(exec, desc, state(), part<const T>(qkv, 0, 3 * hidden),
                                  part<const T>(qkv, 1, 3 * hidden),
                                  part<const T>(qkv, 2, 3 * hidden),
                                  part<T>(o, 0, hidden), vector(lse), of_heads(bias));
  }
  void backward(const Exec& exec) const {
    kernels::attention_backward<T>(
        exec, desc, state(), part<const T>(qkv, 0, 3 * hidden),
        part<const T>(qkv, 1, 3 * hidden), part<const T>(qkv, 2, 3 * hidden),
        part<const T>(o, 0, hidden), vector(lse), part<const T>(d_o, 0, hidden),
        vector(scratch), part<T>(d_qkv, 0, 3 * hidden), part<T>(d_qkv, 1, 3 * hidden),
        part<T>(d_qkv, 2, 3 * hidden), of_heads(bias), of_heads(d_bias));
  }
  // A bias of zeros, of which nobody knows that it is.
  void add_bias() {
    desc.has_bias = true;
    const auto count = extent(desc.heads * (2 * sequence - 1));
    bias = DeviceArray<float>("bias", count);
    d_bias = DeviceArray<float>("d_bias", count);
    scratch = DeviceArray<float>(
        "scratch", extent(kernels::attention_backward_scratch_elements<bf16>(desc)));
  }
  View2<float> of_heads(const DeviceArray<float>& array) const {
    if (!desc.has_bias) return {};
    return matrix(array, desc.heads, 2 * sequence - 1);
  }
  // Queries and keys of each sample from the middle on.
  void add_padding() {
    lengths = DeviceArray<std::int32_t>("lengths", extent(batch));
    Kokkos::deep_copy(lengths, static_cast<std::int32_t>(sequence / 2));
    desc.mask = kernels::MaskKind::padding;
    desc.key_lengths = desc.query_lengths = lengths.data();
  }

  index_t batch, sequence, hidden;
  kernels::AttentionDesc desc;
  DeviceArray<T> qkv, o, d_o, d_qkv;
  DeviceArray<float> lse, scratch, bias, d_bias;
  DeviceArray<std::int32_t> lengths;
  Kokkos::View<kernels::StepState, DeviceMemory> step;
};

enum Pass { forward = 1, backward = 2, both = 3 };

// Five products in place of two in the backward pass.
template <class T, AttentionWay way, Pass pass>
void attention(benchmark::State& state) {
  if constexpr (kHostExecution) {
    if (!kernels::impl::has_attention_way(dtype_of<T>, way)) {
      state.SkipWithError("not on this CPU");
      return;
    }
  }
  const Problem<T> p(state);
  const double times = pass == forward ? 1.0 : (pass == backward ? 2.5 : 3.5);
  run_compute_bound<T>(state, times * p.flops(), [&](const Exec& exec) {
    if constexpr (kHostExecution) kernels::impl::set_attention_way(exec, way);
    if (pass & forward) p.forward(exec);
    if (pass & backward) p.backward(exec);
  });
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"batch", "sequence", "dropout"})->UseRealTime();
  for (const auto& [batch, sequence] :
       {std::pair(4, 256), {1, 1024}, {1, 2048}, {1, 8192}}) {
    for (const int dropout : {0, 10}) benchmark->Args({batch, sequence, dropout});
  }
}
constexpr auto kReference = AttentionWay::reference;
constexpr auto kVectors = AttentionWay::vectors;
constexpr auto kMatrices = AttentionWay::matrices;
BENCHMARK(attention<float, kReference, forward>)->Apply(shapes);
BENCHMARK(attention<float, kReference, backward>)->Apply(shapes);
BENCHMARK(attention<float, kVectors, forward>)->Apply(shapes);
BENCHMARK(attention<float, kVectors, backward>)->Apply(shapes);
BENCHMARK(attention<float, kVectors, both>)->Apply(shapes);
BENCHMARK(attention<bf16, kVectors, both>)->Apply(shapes);
BENCHMARK(attention<bf16, kMatrices, forward>)->Apply(shapes);
BENCHMARK(attention<bf16, kMatrices, backward>)->Apply(shapes);
BENCHMARK(attention<bf16, kMatrices, both>)->Apply(shapes);
BENCHMARK(attention<fp16, kVectors, both>)->Apply(shapes);

// All keys, as BERT and T5 have them: twice the FLOPs of a causal mask, but for padding.
enum class Form { plain, biased, padded };
template <class T, Form form>
void attention_of_all_keys(benchmark::State& state) {
  Problem<T> p(state);
  p.desc.mask = kernels::MaskKind::none;
  if (form == Form::biased) p.add_bias();
  if (form == Form::padded) p.add_padding();
  const double share = form == Form::padded ? 0.25 : 1.0;
  run_compute_bound<T>(state, 3.5 * 2 * share * p.flops(), [&](const Exec& exec) {
    p.forward(exec);
    p.backward(exec);
  });
}
void lengths_of_encoders(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"batch", "sequence", "dropout"})->UseRealTime();
  for (const int dropout : {0, 10}) {
    benchmark->Args({8, 128, dropout});
    benchmark->Args({2, 512, dropout});
  }
}
BENCHMARK(attention_of_all_keys<float, Form::plain>)->Apply(lengths_of_encoders);
BENCHMARK(attention_of_all_keys<float, Form::biased>)->Apply(lengths_of_encoders);
BENCHMARK(attention_of_all_keys<float, Form::padded>)->Apply(lengths_of_encoders);
BENCHMARK(attention_of_all_keys<bf16, Form::plain>)->Apply(lengths_of_encoders);
BENCHMARK(attention_of_all_keys<bf16, Form::biased>)->Apply(lengths_of_encoders);
BENCHMARK(attention_of_all_keys<bf16, Form::padded>)->Apply(lengths_of_encoders);

// Arguments: batch, sequence, percent dropped, heads, head size.
template <Pass pass>
void attention_of_sizes(benchmark::State& state) {
  const Problem<bf16> p(state, state.range(3), state.range(4));
  const double times = pass == forward ? 1.0 : 3.5;
  run_compute_bound<bf16>(state, times * p.flops(), [&](const Exec& exec) {
    p.forward(exec);
    if (pass & backward) p.backward(exec);
  });
}

// On a GPU 16384 tokens of heads as models of that head size have them, as
// perf/gpu/torch_peaks.py has them of PyTorch; on a host so few that they can be tried.
void sizes(benchmark::internal::Benchmark* benchmark) {
  constexpr int kTokens = 16384;
  benchmark->ArgNames({"batch", "sequence", "dropout", "heads", "head_size"})
      ->UseRealTime();
  for (const auto& [heads, head_size] :
       {std::pair(12, 64), {12, 80}, {16, 96}, {24, 128}}) {
    for (const int sequence : {1024, 2048, 8192}) {
      const int fewer = kHostExecution ? 8 : 1;
      benchmark->Args({kHostExecution ? 1 : kTokens / sequence, sequence / fewer, 0,
                       heads, head_size});
    }
  }
}
BENCHMARK(attention_of_sizes<forward>)->Apply(sizes);
BENCHMARK(attention_of_sizes<both>)->Apply(sizes);

}  // namespace
}  // namespace trireme::perf
