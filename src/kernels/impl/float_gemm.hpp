// kernels/impl/float_gemm.hpp — how a host's threads share a product of float, each part
// of which is the library's (kernels/gemm_host.cpp).
#ifndef TRIREME_KERNELS_IMPL_FLOAT_GEMM_HPP_
#define TRIREME_KERNELS_IMPL_FLOAT_GEMM_HPP_

#include <vector>

#include "base/types.hpp"
#include "kernels/impl/narrow_gemm.hpp"

namespace trireme::kernels::impl {

// Where parts and blocks begin: at what the library's vectors take at a time, AVX-512's,
// of which that of shorter vectors is a part.
inline constexpr index_t kFloatTileRows = 8, kFloatTileColumns = 48;

// C in a part for each thread, as near to squares as parts come; or in one part, which
// the library is to cut, where so small ones would pack much for few products.
std::vector<PartOfC> float_parts(const Product& product, index_t threads);

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_FLOAT_GEMM_HPP_
