// kernels/amx_gemm_none.cpp — for processors that have no matrix tiles of Intel's.
#include <cstddef>
#include <vector>

#include "base/error.hpp"
#include "kernels/impl/amx_gemm.hpp"

namespace trireme::kernels::impl {

bool may_use_amx() {
  return false;
}

std::vector<PartOfC> amx_parts(const Product&, index_t) {
  return {};
}

void amx_part(const FusedProduct<bf16>&, const PartOfC&, std::byte*) {
  TRIREME_REQUIRE(false, "kernels::amx_part: this build has no products on tiles");
}

}  // namespace trireme::kernels::impl
