// kernels/cudnn_attention_none.cpp — builds for GPUs without cuDNN: there is no shape for
// it. See impl/cudnn_attention.hpp.
#include "base/error.hpp"
#include "kernels/attention.hpp"
#include "kernels/impl/cudnn_attention.hpp"

namespace trireme::kernels {

bool has_cudnn_attention() {
  return false;
}
const CudnnLibrary& cudnn_library() {
  static const CudnnLibrary none{{}, "this build of trireme has no cuDNN"};
  return none;
}

}  // namespace trireme::kernels

namespace trireme::kernels::impl {

struct Cudnn::Device {};
struct CudnnAttention::Graph {};

Cudnn::Cudnn(void*) {
  throw Error("this build of trireme has no cuDNN");
}
Cudnn::~Cudnn() = default;

CudnnAttention::CudnnAttention(const Cudnn&, const CudnnAttentionShape&) {
  throw Error("this build of trireme has no cuDNN");
}
CudnnAttention::~CudnnAttention() = default;
void CudnnAttention::run(const Cudnn&, const CudnnAttentionOperands&, void*) const {}

bool is_for_cudnn(DType, const AttentionDesc&) {
  return false;
}

}  // namespace trireme::kernels::impl
