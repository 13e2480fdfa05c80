// kernels/narrow_gemm.hpp — how products of 16-bit elements are computed on this device:
// by its own instructions for them (native), or by those for float after the operands
// were widened. Sums are of float both ways, so that results differ in their rounding.
//
// On a host the choice is a matter of measurement and not of flags: some CPUs have dot
// products of bf16 that run at half the rate of float's. kernels/narrow_gemm_host.cpp has
// the table. A GPU computes natively.
#ifndef TRIREME_KERNELS_NARROW_GEMM_HPP_
#define TRIREME_KERNELS_NARROW_GEMM_HPP_

#include <cstddef>
#include <string_view>

#include "base/exec.hpp"

namespace trireme::kernels {

enum class NarrowProducts { native, widened };
constexpr std::string_view name_of(NarrowProducts products) {
  return products == NarrowProducts::native ? "native" : "widened";
}

// Whether products of a type can be computed in more ways than one.
constexpr bool has_product_ways(DType type) {
  return type == DType::bfloat16 || type == DType::float16;
}

// The way of `exec` and its copies from now on, for bf16 and fp16. Without a call it is
// the fastest of each. InputError where this device has no such way for `type`. Products
// of wider types are native, always.
void set_narrow_products(const Exec& exec, DType type, NarrowProducts products);
NarrowProducts narrow_products(const Exec& exec, DType type);
bool has_narrow_products(const Exec& exec, DType type, NarrowProducts products);

// What they are computed by, for people and for records: "AMX tiles", "AVX-512 BF16",
// "tensor cores", or "widened". Other words are other rounding. Types that have no
// choice: "native".
std::string_view product_instructions(const Exec& exec, DType type);

// Bytes that products of `type` keep for themselves on a queue that computes as `exec`
// does, with this process' threads: at most, for a plan; and what they have come to be.
// What a library allocates unseen is in neither.
std::size_t product_workspace_bytes(const Exec& exec, DType type);
std::size_t kept_by_products(const Exec& exec);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_NARROW_GEMM_HPP_
