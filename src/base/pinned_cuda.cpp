// base/pinned_cuda.cpp — copies by the copy engines of an NVIDIA GPU.
#include <cuda_runtime.h>

#include "base/cuda_status.hpp"
#include "base/pinned.hpp"

namespace trireme {

namespace {

void start_copy(const Exec& exec, std::byte* to, const std::byte* from, std::size_t bytes,
                cudaMemcpyKind way) {
  const Kernel kernel("trireme::copy", {.bytes = 2 * static_cast<index_t>(bytes)});
  if (bytes == 0 || exec.only_counts(kernel)) return;
  const KernelCall call(exec, kernel);
  require_cuda(cudaMemcpyAsync(to, from, bytes, way, exec.space().cuda_stream()),
               "cudaMemcpyAsync");
}

}  // namespace

void copy_bytes_to_device(const Exec& exec, std::byte* to, const std::byte* from,
                          std::size_t bytes) {
  start_copy(exec, to, from, bytes, cudaMemcpyHostToDevice);
}

void copy_bytes_to_host(const Exec& exec, std::byte* to, const std::byte* from,
                        std::size_t bytes) {
  start_copy(exec, to, from, bytes, cudaMemcpyDeviceToHost);
}

// One call for each copy, whatever its rows: the engine knows strides, of less than 2
// GiB.
void copy_rows_to_host(const Exec& exec, std::span<const RowCopy> copies) {
  if (exec.is_shape_only()) return;
  const cudaStream_t stream = exec.space().cuda_stream();
  constexpr std::size_t kMostPitch = std::size_t{1} << 31;
  for (const RowCopy& copy : copies) {
    if (copy.bytes() == 0) continue;
    if (copy.rows == 1 || copy.row_bytes == copy.stride) {
      require_cuda(cudaMemcpyAsync(copy.to, copy.from, copy.bytes(),
                                   cudaMemcpyDeviceToHost, stream),
                   "cudaMemcpyAsync");
    } else if (copy.stride < kMostPitch) {
      require_cuda(
          cudaMemcpy2DAsync(copy.to, copy.row_bytes, copy.from, copy.stride,
                            copy.row_bytes, copy.rows, cudaMemcpyDeviceToHost, stream),
          "cudaMemcpy2DAsync");
    } else {
      for (std::size_t row = 0; row < copy.rows; ++row) {
        require_cuda(
            cudaMemcpyAsync(copy.to + row * copy.row_bytes, copy.from + row * copy.stride,
                            copy.row_bytes, cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
      }
    }
  }
}

}  // namespace trireme
