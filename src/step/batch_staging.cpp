// step/batch_staging.cpp — see batch_staging.hpp.
#include "step/batch_staging.hpp"

namespace trireme::step {

BatchStaging::BatchStaging(std::size_t bytes) {
  for (Buffer& buffer : buffers_) {
    buffer.memory = PinnedArray<std::byte>("staged batch", bytes);
  }
}

std::byte* BatchStaging::next() {
  current_ = (current_ + 1) % kBuffers;
  buffers_[current_].copied.wait();
  return buffers_[current_].memory.data();
}

void BatchStaging::send(const Exec& exec, View1<std::byte> to) {
  Buffer& buffer = buffers_[current_];
  copy_to_device(exec, to, buffer.memory.data());
  buffer.copied.record(exec);
}

}  // namespace trireme::step
