// kernels/load_products.hpp — what a library of matrix products takes of a GPU for
// itself, taken before anybody asks how much memory is free.
#ifndef TRIREME_KERNELS_LOAD_PRODUCTS_HPP_
#define TRIREME_KERNELS_LOAD_PRODUCTS_HPP_

#include "base/exec.hpp"
#include "base/types.hpp"

namespace trireme::kernels {

// Has the library load its kernels, which nobody can plan, and take what
// kept_by_products() says (narrow_gemm.hpp), by a small product of `type`, and waits for
// it. Nothing on a host.
void load_products(const Exec& exec, DType type);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_LOAD_PRODUCTS_HPP_
