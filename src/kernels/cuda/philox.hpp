// kernels/cuda/philox.hpp — whose of Philox' words are whose in a row of attention's
// probabilities: random::DropoutWords of base/random.hpp, which takes a library that
// files here compile without.
#ifndef TRIREME_KERNELS_CUDA_PHILOX_HPP_
#define TRIREME_KERNELS_CUDA_PHILOX_HPP_

#include <cstdint>

#include "base/philox.hpp"
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/warp.hpp"

namespace trireme::cuda {

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
  TRIREME_DEVICE random::Words words(int head, int query, int group, int t) const {
    const std::int64_t row = task_.first_row + head * task_.rows_per_head + query;
    const auto call =
        static_cast<std::uint64_t>(row * task_.calls_per_row + 4 * group + t);
    const std::uint32_t call_high = static_cast<std::uint32_t>(call >> 32) & 0xffffu;
    return random::philox<kRounds>({{static_cast<std::uint32_t>(call), owner_low_,
                                     call_high | owner_high_, task_.site}},
                                   key0_, key1_);
  }
  TRIREME_DEVICE bool keeps(std::uint32_t word, int e) const {
    return (word >> (16 * e) & 0xffffu) >= task_.threshold;
  }

 private:
  static constexpr int kRounds = 7;
  const AttentionDropout& task_;
  std::uint32_t owner_low_ = 0, owner_high_ = 0, key0_ = 0, key1_ = 0;
};

}  // namespace trireme::cuda

#endif  // TRIREME_KERNELS_CUDA_PHILOX_HPP_
