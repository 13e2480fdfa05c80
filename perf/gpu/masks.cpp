// perf/gpu/masks.cpp — trireme_gpu_masks: which elements dropout keeps, as numbers that
// depend on every one of them; for perf/gpu_suite, which compares a GPU's with a host's.
//
// A line of JSON for each mask: {"mask": "attention bf16", "digest": "..."}. Masks are
// taken from what the kernels themselves leave: of ones, what is not zero was kept; in
// attention all keys have the same probability, and values are unit vectors, so that
// column j of the output says whether key j was kept.
#include <Kokkos_Core.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <type_traits>

#include "base/exec.hpp"
#include "base/types.hpp"
#include "kernels/attention.hpp"
#include "kernels/dropout.hpp"

namespace trireme {
namespace {

constexpr double kProbability = 0.1;
constexpr index_t kBatch = 3, kSequence = 192, kHidden = 192, kHeads = 3, kHeadSize = 64;
constexpr index_t kRows = kSequence * kBatch;
constexpr index_t kElements = kRows * kHidden;

// FNV-1a, of 64 bits: over bytes that are 0 or 1.
class Digest {
 public:
  void add(bool bit) {
    value_ = (value_ ^ static_cast<std::uint64_t>(bit)) * 0x100000001b3ull;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ull;
};

kernels::StepStateView step_state(
    const Kokkos::View<kernels::StepState, DeviceMemory>& state) {
  kernels::StepState step;
  step.seed = 20240607;
  step.sample_base = 4099;
  Kokkos::deep_copy(state, step);
  return kernels::StepStateView(state.data());
}

template <class T>
DeviceArray<T> filled(double value) {
  DeviceArray<T> array("values", static_cast<std::size_t>(kElements));
  Kokkos::deep_copy(array, static_cast<T>(static_cast<float>(value)));
  return array;
}

template <class T>
void add_kept(Digest& digest, const DeviceArray<T>& values) {
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, values);
  for (index_t i = 0; i < kElements; ++i) {
    digest.add(static_cast<float>(host(static_cast<std::size_t>(i))) != 0.0F);
  }
}

template <class T>
std::uint64_t residual_mask(const Exec& exec, kernels::StepStateView step) {
  const DeviceArray<T> x = filled<T>(1.0), y = filled<T>(0.0);
  const kernels::DropoutDesc desc{.probability = kProbability,
                                  .batch = kBatch,
                                  .layer = 5,
                                  .site = random::Site::embedding};
  kernels::bias_dropout_add_forward<T>(exec, desc, step,
                                       View2<const T>(x.data(), kRows, kHidden), {}, {},
                                       View2<T>(y.data(), kRows, kHidden));
  exec.fence("mask");
  Digest digest;
  add_kept(digest, y);
  return digest.value();
}

// Value vectors of the keys [first, first + d): unit vectors; of all others zero.
template <class T>
DeviceArray<T> unit_values(index_t first) {
  DeviceArray<T> values("values", static_cast<std::size_t>(kElements));
  const auto host = Kokkos::create_mirror_view(values);
  for (index_t i = 0; i < kElements; ++i) {
    const index_t key = i / (kBatch * kHidden), column = i % kHeadSize;
    host(static_cast<std::size_t>(i)) =
        static_cast<T>(key == first + column ? 1.0F : 0.0F);
  }
  Kokkos::deep_copy(values, host);
  return values;
}

// Of a causal model, or of queries that see all keys of another sequence.
template <class T>
std::uint64_t attention_mask(const Exec& exec, kernels::StepStateView step,
                             kernels::MaskKind mask, random::Site site) {
  const DeviceArray<T> zero = filled<T>(0.0);
  const DeviceArray<Accumulator<T>> lse("lse", static_cast<std::size_t>(kRows * kHeads));
  const kernels::AttentionDesc desc{.batch = kBatch,
                                    .q_length = kSequence,
                                    .kv_length = kSequence,
                                    .heads = kHeads,
                                    .kv_heads = kHeads,
                                    .head_dim = kHeadSize,
                                    .mask = mask,
                                    .scale = 0.125,
                                    .dropout = kProbability,
                                    .mask_queries = kSequence,
                                    .mask_keys = kSequence,
                                    .layer = 5,
                                    .site = site};
  const auto heads = [](auto* data) {
    return kernels::HeadsView<std::remove_reference_t<decltype(*data)>>{
        data, kBatch * kHidden, kHidden};
  };
  Digest digest;
  for (index_t first = 0; first < kSequence; first += kHeadSize) {
    const DeviceArray<T> v = unit_values<T>(first), o = filled<T>(0.0);
    const T* const q = zero.data();
    kernels::attention_forward<T>(exec, desc, step, heads(q), heads(q),
                                  heads(static_cast<const T*>(v.data())), heads(o.data()),
                                  View1<Accumulator<T>>(lse.data(), lse.extent(0)));
    exec.fence("mask");
    add_kept(digest, o);
  }
  return digest.value();
}

void print(const std::string& mask, std::uint64_t digest) {
  std::printf("{\"mask\": \"%s\", \"digest\": \"%016llx\"}\n", mask.c_str(),
              static_cast<unsigned long long>(digest));
}

template <class T>
void print_masks(const Exec& exec, kernels::StepStateView step) {
  const std::string type(name_of(dtype_of<T>));
  print("residual " + type, residual_mask<T>(exec, step));
  print("attention " + type, attention_mask<T>(exec, step, kernels::MaskKind::causal,
                                               random::Site::attention_probabilities));
  print("cross attention " + type,
        attention_mask<T>(exec, step, kernels::MaskKind::none,
                          random::Site::cross_attention_probabilities));
}

void print_all() {
  const Exec exec;
  const Kokkos::View<kernels::StepState, DeviceMemory> state("state");
  const kernels::StepStateView step = step_state(state);
  print_masks<float>(exec, step);
  print_masks<bf16>(exec, step);
  print_masks<fp16>(exec, step);
}

}  // namespace
}  // namespace trireme

int main() {
  try {
    const Kokkos::ScopeGuard kokkos;
    trireme::print_all();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trireme_gpu_masks: %s\n", error.what());
    return 1;
  }
  return 0;
}
