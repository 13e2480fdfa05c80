// kernels/cudnn_scratch.hpp — what cuDNN's attention takes besides its operands, by a
// formula: memory is planned, and attention chosen, in builds without it, too.
#ifndef TRIREME_KERNELS_CUDNN_SCRATCH_HPP_
#define TRIREME_KERNELS_CUDNN_SCRATCH_HPP_

#include <algorithm>
#include <cstddef>

#include "base/types.hpp"
#include "kernels/attention.hpp"

namespace trireme::kernels {

// What the backward pass of a shape takes at most, on any GPU. With is_deterministic
// about 2 b a s_q s_kv, else 8 b a s_q d. Measured for H100 and A100 over shapes:
// tests/contracts/test_cudnn_plans.cpp, which fails where a plan takes more.
inline std::size_t cudnn_scratch_bytes(const AttentionDesc& desc, bool is_deterministic) {
  // Doubles hold whole numbers of bytes beyond any memory, and decks may ask for more.
  constexpr double kMost = 1e18;
  const auto padded = [](index_t length) {
    return static_cast<double>((length + 127) / 128 * 128);
  };
  const double b_a = static_cast<double>(desc.batch) * static_cast<double>(desc.heads);
  const auto d = static_cast<double>(desc.head_dim);
  const double of_row = is_deterministic ? 2.0 * padded(desc.kv_length) : 8.0 * d;
  // Where heads share keys, the library makes d_k and d_v of each head first.
  const bool is_grouped = desc.heads != desc.kv_heads;
  const double shared = is_grouped ? 4.0 * b_a * padded(desc.kv_length) * d : 0.0;
  const double bytes = b_a * padded(desc.q_length) * (of_row + 4.0) + shared + 4096.0;
  return static_cast<std::size_t>(std::min(bytes, kMost));
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_CUDNN_SCRATCH_HPP_
