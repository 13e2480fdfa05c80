// base/cuda_driver.hpp — whether NVIDIA's driver is on this node.
#ifndef TRIREME_BASE_CUDA_DRIVER_HPP_
#define TRIREME_BASE_CUDA_DRIVER_HPP_

namespace trireme {

// Whether its library can be loaded, which is done then.
bool has_cuda_driver();

}  // namespace trireme

#endif  // TRIREME_BASE_CUDA_DRIVER_HPP_
