// kernels/impl/amx_gemm.hpp — products of bf16 on a CPU's matrix tiles (Intel AMX), with
// what a linear layer does next while the result lies in cache.
//
// The tiles of two cores were measured at 7770 GFLOP/s from the first-level cache, and
// oneDNN 2.6's products of GPT-2 124M's shapes at 1060 to 2770, least where an operand is
// transposed (weight gradients) or large: it copies operands at each call, and stores
// before anything else may look at the result. amx_gemm_host.cpp says what is done here
// instead; amx_gemm_none.cpp is for other processors.
#ifndef TRIREME_KERNELS_IMPL_AMX_GEMM_HPP_
#define TRIREME_KERNELS_IMPL_AMX_GEMM_HPP_

#include <cstddef>
#include <vector>

#include "base/types.hpp"
#include "kernels/impl/narrow_gemm.hpp"

namespace trireme::kernels::impl {

// Whether this process may use the tiles. Asks Linux for them at the first call.
bool may_use_amx();

// C in parts that a thread's workspace has room for, for the least time of the slowest of
// `threads`. The bits of C do not depend on how it is cut.
std::vector<PartOfC> amx_parts(const Product& product, index_t threads);

// One part; `workspace` has kAmxWorkspaceBytes, from a multiple of kLine on, and belongs
// to this call.
inline constexpr std::size_t kAmxWorkspaceBytes = (1024u + 256u + 2048u) << 10;
void amx_part(const FusedProduct<bf16>& task, const PartOfC& part, std::byte* workspace);
static_assert(kAmxWorkspaceBytes % kLine == 0);

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_AMX_GEMM_HPP_
