// step/batch_staging.hpp — micro-batches on their way to the device: buffers of pinned
// memory in turn, so that the next micro-batch is put together while the copies of those
// before are still to come.
#ifndef TRIREME_STEP_BATCH_STAGING_HPP_
#define TRIREME_STEP_BATCH_STAGING_HPP_

#include <cstddef>
#include <vector>

#include "base/event.hpp"
#include "base/exec.hpp"
#include "base/pinned.hpp"

namespace trireme::step {

class BatchStaging {
 public:
  // What a host's kernels need, where a copy is past when it returns: the least.
  static constexpr std::size_t kFewest = 2;
  // Of all buffers on a GPU: pages that are pinned are lost to everybody else.
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  // For a GPU, whose host may be a step ahead: one for each micro-batch of two steps, as
  // far as kMostBytes goes.
  static std::size_t buffers_of_steps(int microbatches, std::size_t bytes);

  // Without memory, for passes on shapes.
  BatchStaging() = default;
  // Of micro-batches of so many bytes.
  BatchStaging(std::size_t bytes, std::size_t buffers);

  // A buffer to fill. Where the last copy from it is not past yet, the host waits for
  // that: with buffers for two steps never within a step, as a step is not launched
  // before the report of the last but one was read.
  std::byte* next();
  // Copies what was filled into the buffer to the device, behind all that was launched.
  void send(const Exec& exec, View1<std::byte> to);

 private:
  struct Buffer {
    PinnedArray<std::byte> memory;
    Event copied;
  };
  std::vector<Buffer> buffers_;
  std::size_t current_ = 0;
};

}  // namespace trireme::step

#endif  // TRIREME_STEP_BATCH_STAGING_HPP_
