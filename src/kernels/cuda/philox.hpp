// kernels/cuda/philox.hpp — Philox-4x32 with seven rounds, and whose words are whose in a
// row of attention's probabilities (random::DropoutWords). Salmon et al., SC'11. Files
// here compile without the library that base/random.hpp has it from.
#ifndef TRIREME_KERNELS_CUDA_PHILOX_HPP_
#define TRIREME_KERNELS_CUDA_PHILOX_HPP_

#include <cstdint>

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/warp.hpp"

namespace trireme::cuda {

struct PhiloxWords {
  std::uint32_t word[4];
};

TRIREME_DEVICE PhiloxWords philox_7(PhiloxWords c, std::uint32_t key0,
                                    std::uint32_t key1) {
  constexpr std::uint32_t kFactor0 = 0xd2511f53u, kFactor1 = 0xcd9e8d57u;
  TRIREME_UNROLL
  for (int round = 0; round < 7; ++round) {
    // Whole products: one instruction gives both halves.
    const std::uint64_t p0 = static_cast<std::uint64_t>(c.word[0]) * kFactor0;
    const std::uint64_t p1 = static_cast<std::uint64_t>(c.word[2]) * kFactor1;
    c = {{static_cast<std::uint32_t>(p1 >> 32) ^ c.word[1] ^ key0,
          static_cast<std::uint32_t>(p1),
          static_cast<std::uint32_t>(p0 >> 32) ^ c.word[3] ^ key1,
          static_cast<std::uint32_t>(p0)}};
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return c;
}

// The words of a sample's rows.
class DropoutOfSample {
 public:
  TRIREME_DEVICE DropoutOfSample(const AttentionDropout& task, int sample) : task_(task) {
    if (task.threshold == 0) return;
    const std::uint64_t owner = *task.sample_base + static_cast<std::uint64_t>(sample);
    owner_low_ = static_cast<std::uint32_t>(owner);
    owner_high_ = static_cast<std::uint32_t>(owner >> 32) << 16;
    key0_ = static_cast<std::uint32_t>(*task.seed);
    key1_ = static_cast<std::uint32_t>(*task.seed >> 32);
  }

  // The call that lane t of four makes for keys 32 group + 8 i + 2 t + e of a query: half
  // e of word i of the result.
  TRIREME_DEVICE PhiloxWords words(int head, int query, int group, int t) const {
    const std::int64_t row = task_.first_row + head * task_.rows_per_head + query;
    const auto call =
        static_cast<std::uint64_t>(row * task_.calls_per_row + 4 * group + t);
    const std::uint32_t call_high = static_cast<std::uint32_t>(call >> 32) & 0xffffu;
    return philox_7({{static_cast<std::uint32_t>(call), owner_low_,
                      call_high | owner_high_, task_.site}},
                    key0_, key1_);
  }
  TRIREME_DEVICE bool keeps(std::uint32_t word, int e) const {
    return (word >> (16 * e) & 0xffffu) >= task_.threshold;
  }

 private:
  const AttentionDropout& task_;
  std::uint32_t owner_low_ = 0, owner_high_ = 0, key0_ = 0, key1_ = 0;
};

}  // namespace trireme::cuda

#endif  // TRIREME_KERNELS_CUDA_PHILOX_HPP_
