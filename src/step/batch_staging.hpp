// step/batch_staging.hpp — micro-batches on their way to the device: two buffers of
// pinned memory in turn, so that the next micro-batch is put together while the copy of
// this one is still to come.
#ifndef TRIREME_STEP_BATCH_STAGING_HPP_
#define TRIREME_STEP_BATCH_STAGING_HPP_

#include <array>
#include <cstddef>

#include "base/event.hpp"
#include "base/exec.hpp"
#include "base/pinned.hpp"

namespace trireme::step {

class BatchStaging {
 public:
  static constexpr std::size_t kBuffers = 2;

  // Without memory, for passes on shapes.
  BatchStaging() = default;
  // Of micro-batches of so many bytes.
  explicit BatchStaging(std::size_t bytes);

  // A buffer to fill. Where the copy from it, of two micro-batches before, is not past
  // yet, the host waits for that: it is never more than two ahead of the device.
  std::byte* next();
  // Copies what was filled into the buffer to the device, behind all that was launched.
  void send(const Exec& exec, View1<std::byte> to);

 private:
  struct Buffer {
    PinnedArray<std::byte> memory;
    Event copied;
  };
  std::array<Buffer, kBuffers> buffers_;
  std::size_t current_ = 0;
};

}  // namespace trireme::step

#endif  // TRIREME_STEP_BATCH_STAGING_HPP_
