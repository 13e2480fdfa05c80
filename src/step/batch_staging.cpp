// step/batch_staging.cpp — see batch_staging.hpp.
#include "step/batch_staging.hpp"

#include <algorithm>

namespace trireme::step {

std::size_t BatchStaging::buffers_of_steps(int microbatches, std::size_t bytes) {
  const std::size_t wanted = 2 * static_cast<std::size_t>(microbatches);
  const std::size_t most = kMostBytes / std::max<std::size_t>(bytes, 1);
  return std::max(std::min(wanted, most), kFewest);
}

BatchStaging::BatchStaging(std::size_t bytes, std::size_t buffers) : buffers_(buffers) {
  for (Buffer& buffer : buffers_) {
    buffer.memory = PinnedArray<std::byte>("staged batch", bytes);
  }
}

std::byte* BatchStaging::next() {
  current_ = (current_ + 1) % buffers_.size();
  buffers_[current_].copied.wait();
  return buffers_[current_].memory.data();
}

void BatchStaging::send(const Exec& exec, View1<std::byte> to) {
  Buffer& buffer = buffers_[current_];
  copy_to_device(exec, to, buffer.memory.data());
  buffer.copied.record(exec);
}

}  // namespace trireme::step
