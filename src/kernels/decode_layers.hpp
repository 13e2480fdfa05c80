// kernels/decode_layers.hpp — consecutive layers of a step of generation in one launch,
// where a GPU has it: of 16-bit elements, with all the model on it. What they compute is
// what decode_linear() and decode_attention_tiles() compute one after the other, of which
// the sums have another order (kernels/cuda/decode_layers.hpp).
//
//   x1 = x + P attention(QKV norm(x)) + b;   y = x1 + F2 gelu(F1 norm(x1) + b1) + b2
// A text has the same bits whatever other texts are there.
#ifndef TRIREME_KERNELS_DECODE_LAYERS_HPP_
#define TRIREME_KERNELS_DECODE_LAYERS_HPP_

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/exec.hpp"
#include "kernels/cuda/decode.hpp"
#include "kernels/decode_attention.hpp"

namespace trireme::kernels {

// Architectures on which a committed run of perf/gpu_suite has shown that weights that
// come by boxes give the same bits as by quads, and sooner, for one text and for four.
inline constexpr std::array<int, 0> kBoxesProvenOn = {};
using cuda::WeightCopies;

// A layer's parameters, and its cache. Matrices are (out, in).
template <class T>
struct DecodeLayer {
  CachedHeads heads = {};
  double epsilon = 0;  // of the norms
  View1<const T> attention_gamma, attention_beta, mlp_gamma, mlp_beta;
  View2<const T> qkv, projection, fc1, fc2;
  View1<const T> qkv_bias, projection_bias, fc1_bias, fc2_bias;
  View2<T> k, v;  // (places * capacity, g d)
};

template <class T>
class DecodeLayers {
 public:
  // Whether the build and the device have a launch for these layers: they are alike, of
  // 16-bit elements, of sizes that the kernel takes, and lie in whole pieces of 16 bytes.
  // On a shape-only Exec: whether the GPUs have it that plans are made for. `copies`: how
  // weights are to come; else by boxes, where these are proven and fit, or by quads.
  static bool has(const Exec& exec, const std::vector<DecodeLayer<T>>& layers,
                  index_t capacity, std::optional<WeightCopies> copies = {});
  // Where has() holds. The parameters must stay where they are. `capacity`: positions of
  // a place of the cache. `next`: what the launch behind this one reads first, if any.
  DecodeLayers(const Exec& exec, const std::vector<DecodeLayer<T>>& layers,
               index_t capacity, View2<const T> next = {},
               std::optional<WeightCopies> copies = {});

  // Of device memory, allocated or planned.
  std::size_t bytes() const;

  // x, y (m, h), for the m texts of `texts`: one launch for four of them. On the queue of
  // one Exec at a time.
  void run(const Exec& exec, const CachedTexts& texts, View2<const T> x,
           View2<T> y) const;

 private:
  Cost cost(index_t rows, index_t longest) const;

  cuda::DecodeLayersTask task_;  // but for what a call says
  WeightCopies copies_ = WeightCopies::quads;
  DeviceArray<cuda::DecodeLayer> layers_;
  DeviceArray<cuda::BoxMap> maps_;
  DeviceArray<std::uint32_t> words_;
  DeviceArray<std::int32_t> turn_;
};

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_DECODE_LAYERS_HPP_
