// kernels/attention_pool.cpp — see attention_pool.hpp.
#include "kernels/attention_pool.hpp"

#include <vector>

#include "base/device.hpp"
#include "kernels/cuda/attention.hpp"
#include "kernels/impl/attention_pool.hpp"

namespace trireme::kernels {

std::size_t attention_pool_bytes(DType type, index_t head_dim) {
  if constexpr (kHostExecution) return 0;
  const bool is_narrow = type == DType::bfloat16 || type == DType::float16;
  if (is_narrow && cuda::is_head_dim(head_dim)) return 0;
  constexpr int kOfH100 = 132;
  const std::vector<Device> devices = visible_devices();
  const int multiprocessors = devices.empty() ? kOfH100 : devices.front().multiprocessors;
  return type == DType::float64 ? impl::pool_bytes<double>(head_dim, multiprocessors)
                                : impl::pool_bytes<float>(head_dim, multiprocessors);
}

}  // namespace trireme::kernels
