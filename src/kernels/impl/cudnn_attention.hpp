// kernels/impl/cudnn_attention.hpp — fused attention by NVIDIA's cuDNN, for shapes
// without dropout: one pass of one shape, planned once.
//
// The library draws dropout masks that are not Trireme's, keeps attention's memory linear
// in the sequence only where the order of its sums may vary, and is loaded when it is
// first asked for: a program that never does needs none.
#ifndef TRIREME_KERNELS_IMPL_CUDNN_ATTENTION_HPP_
#define TRIREME_KERNELS_IMPL_CUDNN_ATTENTION_HPP_

#include <compare>
#include <cstddef>
#include <memory>
#include <string>

#include "base/types.hpp"
#include "kernels/attention.hpp"

namespace trireme::kernels::impl {

// Where an operand's elements lie: those of HeadsView, in elements.
struct HeadStrides {
  index_t sequence = 0;
  index_t batch = 0;
  auto operator<=>(const HeadStrides&) const = default;
};

struct CudnnAttentionShape {
  enum class Pass { forward, backward };
  Pass pass = Pass::forward;
  DType type = DType::bfloat16;
  bool is_causal = true;
  // Of the backward pass: the same bits twice, for memory that is quadratic in the
  // sequence.
  bool is_deterministic = true;
  index_t batch = 1, q_length = 1, kv_length = 1, heads = 1, kv_heads = 1, head_dim = 1;
  double scale = 1.0;
  HeadStrides q, k, v, o;
  HeadStrides d_o, d_q, d_k, d_v;  // of the backward pass
  auto operator<=>(const CudnnAttentionShape&) const = default;
};

// Device addresses. lse is written forward and read backward; o likewise.
struct CudnnAttentionOperands {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void *o = nullptr, *lse = nullptr;
  const void* d_o = nullptr;
  void *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;
};

// Whether the library has such attention: no dropout, heads of up to 128 in steps of 8,
// every key or those up to the query.
bool is_for_cudnn(DType type, const AttentionDesc& desc);
// What the forward pass of any shape takes at most besides its operands; of the backward
// pass: cudnn_scratch_bytes().
inline constexpr std::size_t kCudnnForwardBytes = 4096;

// The library for one device and stream. Throws with what to do where there is none.
class Cudnn {
 public:
  explicit Cudnn(void* stream);
  // For plans only, without a GPU: for one that this text describes, as the library does.
  static std::unique_ptr<Cudnn> of_description(const std::string& json, int architecture);
  ~Cudnn();

  struct Device;
  const Device& device() const { return *device_; }

 private:
  explicit Cudnn(std::unique_ptr<Device> device);
  std::unique_ptr<Device> device_;
};

class CudnnAttention {
 public:
  // Takes some tenths of a second: the library compiles.
  CudnnAttention(const Cudnn& cudnn, const CudnnAttentionShape& shape);
  ~CudnnAttention();

  std::size_t workspace_bytes() const { return workspace_bytes_; }
  void run(const Cudnn& cudnn, const CudnnAttentionOperands& operands,
           void* workspace) const;

 private:
  struct Graph;
  CudnnAttentionShape shape_;
  std::unique_ptr<Graph> graph_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_CUDNN_ATTENTION_HPP_
