// base/cuda_driver.cpp — NVIDIA's driver, loaded when it is first asked for. Its library
// comes with the driver itself, and nodes without a GPU often have neither: a program
// that is linked to it does not begin there, not even to check a deck.
//
// The libraries of the toolkit load it by themselves. Kokkos calls three functions of it.
// They are defined here, in the program, so that the linker takes them and leaves the
// library out (apps/CMakeLists.txt: --as-needed).
#include "base/cuda_driver.hpp"

#include <cuda.h>
#include <dlfcn.h>

namespace trireme {

namespace {

void* library() {
  static void* const opened = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  return opened;
}

// The driver's own function of this name and type; null where there is no driver.
template <class Function>
Function* function(const char* name) {
  if (library() == nullptr) return nullptr;
  return reinterpret_cast<Function*>(dlsym(library(), name));
}

}  // namespace

bool has_cuda_driver() {
  return library() != nullptr;
}

}  // namespace trireme

// cuda.h gives some functions the name of their latest version.
#define TRIREME_TEXT(name) #name
#define TRIREME_TEXT_OF(name) TRIREME_TEXT(name)
#define TRIREME_CALL_DRIVER(name, ...)                                                \
  static auto* const call = trireme::function<decltype(name)>(TRIREME_TEXT_OF(name)); \
  return call != nullptr ? call(__VA_ARGS__) : CUDA_ERROR_NOT_INITIALIZED

extern "C" {

CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  TRIREME_CALL_DRIVER(cuCtxGetDevice, device);
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
  TRIREME_CALL_DRIVER(cuCtxPushCurrent, context);
}

CUresult CUDAAPI cuStreamGetCtx(CUstream stream, CUcontext* context) {
  TRIREME_CALL_DRIVER(cuStreamGetCtx, stream, context);
}

}  // extern "C"
