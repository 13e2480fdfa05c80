// kernels/attention_host.cpp — which code computes the tiles of attention on a host.
#include "kernels/impl/attention_host.hpp"

#include <memory>
#include <type_traits>

#include "base/error.hpp"
#include "kernels/impl/attention_tiles.hpp"
#include "kernels/impl/thread_count.hpp"
#include "kernels/narrow_gemm.hpp"

namespace trireme::kernels::impl {

namespace {

struct ChosenLaunches final : LibraryState {
  BackwardLaunches launches = BackwardLaunches::fitting;
};

BackwardLaunches& chosen_launches(const Exec& exec) {
  return exec.library<ChosenLaunches>([] { return std::make_unique<ChosenLaunches>(); })
      .launches;
}

// What the tiles of the fast ways are made for. A few queries over cached keys do not
// fill a tile; larger heads do not fit the caches.
constexpr index_t kFewestQueries = 8;
constexpr index_t kLargestHead = 256;

bool fills_tiles(const AttentionDesc& desc) {
  return desc.q_length >= kFewestQueries && desc.head_dim <= kLargestHead &&
         desc.scale > 0.0;
}

}  // namespace

bool has_attention_way(DType type, AttentionWay way) {
  switch (way) {
    case AttentionWay::vectors:
      return type != DType::float64;
    case AttentionWay::matrices:
      return type == DType::bfloat16 && has_bf16_matrices();
    case AttentionWay::tensor_cores:
    case AttentionWay::cudnn:
      return false;
    default:
      return true;
  }
}

AttentionWay attention_way(const Exec& exec, DType type, const AttentionDesc& desc) {
  if (type == DType::float64) return AttentionWay::reference;
  const auto chosen = chosen_attention_way(exec);
  if (chosen && has_attention_way(type, *chosen)) {
    return *chosen == AttentionWay::reference || desc.head_dim > kLargestHead ||
                   desc.scale <= 0.0
               ? AttentionWay::reference
               : *chosen;
  }
  if (!fills_tiles(desc)) return AttentionWay::reference;
  const bool is_native =
      type == DType::bfloat16 && narrow_products(exec, type) == NarrowProducts::native;
  return is_native && has_bf16_matrices() ? AttentionWay::matrices
                                          : AttentionWay::vectors;
}

void set_backward_launches(const Exec& exec, BackwardLaunches launches) {
  chosen_launches(exec) = launches;
}

bool backward_in_one(const Exec& exec, index_t items) {
  if (exec.is_shape_only()) return true;
  const BackwardLaunches launches = chosen_launches(exec);
  if (launches != BackwardLaunches::fitting) return launches == BackwardLaunches::one;
  const index_t threads = thread_count();
  const index_t rounds = (items + threads - 1) / threads;
  return 7 * items >= 5 * rounds * threads;
}

// Whole tiles of queries, padded head sizes.
index_t fast_scratch_elements(DType, const AttentionDesc& desc) {
  constexpr index_t kPadding = 32;  // of a head's size, at most
  const index_t depth = (desc.head_dim + kPadding - 1) / kPadding * kPadding;
  return desc.batch * desc.heads * tiles_in(desc.q_length) * kTile * depth;
}

template <class T>
bool forward_fast(const Exec& exec, const Kernel& kernel,
                  const ForwardArguments<T>& arguments) {
  switch (attention_way(exec, dtype_of<T>, arguments.desc)) {
    case AttentionWay::vectors:
      forward_by_vectors(exec, kernel, arguments);
      return true;
    case AttentionWay::matrices:
      if constexpr (std::is_same_v<T, bf16>) {
        forward_by_matrices(exec, kernel, arguments);
        return true;
      }
      break;
    case AttentionWay::reference:
    case AttentionWay::tensor_cores:
    case AttentionWay::cudnn:
      break;
  }
  return false;
}

template <class T>
bool backward_fast(const Exec& exec, const BackwardKernels& kernels,
                   const BackwardArguments<T>& in) {
  const AttentionWay way = attention_way(exec, dtype_of<T>, in.desc);
  if (way == AttentionWay::reference) return false;
  const index_t rows = in.desc.batch * in.desc.heads * in.desc.q_length;
  attention_delta<T>(exec, kernels.delta, in.desc, in.o, in.d_o,
                     View1<float>(in.delta, extent(rows)));
  bool is_done = false;
  if constexpr (std::is_same_v<T, bf16>) {
    is_done = way == AttentionWay::matrices;
    if (is_done) backward_by_matrices(exec, kernels, in);
  }
  if (!is_done) backward_by_vectors(exec, kernels, in);
  const BiasSums sums = BiasWindows(in.desc, kTile).sums(in.desc);
  sum_bias_windows<float>(exec, in.desc, sums, in.bias_windows, in.d_bias);
  return true;
}

TRIREME_FOR_EACH_FAST_REAL(TRIREME_INSTANTIATE_FAST_ATTENTION)

}  // namespace trireme::kernels::impl

namespace trireme::kernels {

bool has_cudnn_attention() {
  return false;
}
const CudnnLibrary& cudnn_library() {
  static const CudnnLibrary none{{}, "this build of trireme is for host cores"};
  return none;
}

}  // namespace trireme::kernels
