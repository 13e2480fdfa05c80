// kernels/digest.hpp — whether two results have the same bits, without keeping both.
#ifndef TRIREME_KERNELS_DIGEST_HPP_
#define TRIREME_KERNELS_DIGEST_HPP_

#include <cstdint>

#include "base/exec.hpp"

namespace trireme::kernels {

// A number that depends on every bit and on its place, and on nothing else: not on the
// number of threads or their order. Waits for what was launched before.
std::uint64_t digest_of(const Exec& exec, View1<const std::uint32_t> words);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_DIGEST_HPP_
