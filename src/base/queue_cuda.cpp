// base/queue_cuda.cpp — queues of an NVIDIA GPU: streams that do not wait for the default
// stream, as Kokkos' own do not. Kokkos looks at a stream when the last of its instances
// ends, which may be at the end of the program: streams are left to the driver then. A
// process makes a handful.
#include "base/queue.hpp"

#include <cuda_runtime.h>

#include "base/cuda_status.hpp"
#include "base/late_queue.hpp"

namespace trireme {

Exec make_queue(QueuePriority priority) {
  int lowest = 0, highest = 0;
  require_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest),
               "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  require_cuda(
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                   priority == QueuePriority::high ? highest : lowest),
      "cudaStreamCreateWithPriority");
  return Exec(ExecSpace(stream));
}

Exec make_copy_queue(const Exec&) {
  return make_queue();
}

void make_late(const Exec&, LateWork::Kind) {}

bool is_asynchronous(const Exec& exec) {
  return !exec.is_shape_only();
}

}  // namespace trireme
