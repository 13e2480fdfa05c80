// base/kernel_clock_cuda.cpp — kernels on an NVIDIA GPU are timed by pairs of events on
// their stream. Nothing is waited for until the seconds are asked for. Events are made as
// they are needed, and used again.
#include <cuda_runtime.h>

#include <vector>

#include "base/cuda_status.hpp"
#include "base/kernel_clock.hpp"

namespace trireme {

namespace {

class EventClock final : public KernelClock {
 public:
  explicit EventClock(cudaStream_t stream) : stream_(stream) {}
  ~EventClock() override {
    for (const Pair& pair : pairs_) {
      if (pair.begin != nullptr) cudaEventDestroy(pair.begin);
      if (pair.end != nullptr) cudaEventDestroy(pair.end);
    }
  }

  void begin(std::size_t stretch) override {
    while (stretch >= pairs_.size()) {
      Pair& pair = pairs_.emplace_back();
      require_cuda(cudaEventCreate(&pair.begin), "cudaEventCreate");
      require_cuda(cudaEventCreate(&pair.end), "cudaEventCreate");
    }
    require_cuda(cudaEventRecord(pairs_[stretch].begin, stream_), "cudaEventRecord");
  }
  void end(std::size_t stretch) override {
    require_cuda(cudaEventRecord(pairs_[stretch].end, stream_), "cudaEventRecord");
  }
  double seconds(std::size_t stretch) override {
    const Pair& pair = pairs_.at(stretch);
    require_cuda(cudaEventSynchronize(pair.end), "cudaEventSynchronize");
    float milliseconds = 0.0f;
    require_cuda(cudaEventElapsedTime(&milliseconds, pair.begin, pair.end),
                 "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  struct Pair {
    cudaEvent_t begin = nullptr, end = nullptr;
  };
  cudaStream_t stream_;
  std::vector<Pair> pairs_;
};

}  // namespace

std::unique_ptr<KernelClock> make_kernel_clock(
    const Kokkos::DefaultExecutionSpace& space) {
  return std::make_unique<EventClock>(space.cuda_stream());
}

}  // namespace trireme
