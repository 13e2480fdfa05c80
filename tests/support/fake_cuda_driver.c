/* A driver of CUDA without a GPU: libraries that compile for one load what they compiled,
 * and everything else fails, as with the stub that NVIDIA's toolkit has for linking. So
 * cuDNN makes its plans where nothing can run them. */
enum { kDone = 0, kStubLibrary = 34, kVersion = 13000 };

static long nothing[64];

int cuDriverGetVersion(int* version) {
  *version = kVersion;
  return kDone;
}

#define TRIREME_LOADS(name) \
  int name(void** loaded) { \
    *loaded = nothing;      \
    return kDone;           \
  }
TRIREME_LOADS(cuLibraryLoadData)
TRIREME_LOADS(cuLibraryGetKernel)
TRIREME_LOADS(cuKernelGetFunction)

#define TRIREME_SUCCEEDS(name) \
  int name(void) {             \
    return kDone;              \
  }
TRIREME_SUCCEEDS(cuKernelSetAttribute)
TRIREME_SUCCEEDS(cuFuncSetAttribute)
TRIREME_SUCCEEDS(cuLibraryUnload)

#define TRIREME_FAILS(name) \
  int name(void) {          \
    return kStubLibrary;    \
  }
TRIREME_FAILS(cuCtxGetCurrent)
TRIREME_FAILS(cuCtxGetDevice)
TRIREME_FAILS(cuCtxGetLimit)
TRIREME_FAILS(cuCtxPopCurrent)
TRIREME_FAILS(cuCtxPushCurrent)
TRIREME_FAILS(cuDeviceGet)
TRIREME_FAILS(cuDeviceGetAttribute)
TRIREME_FAILS(cuDeviceGetCount)
TRIREME_FAILS(cuDevicePrimaryCtxRelease)
TRIREME_FAILS(cuDevicePrimaryCtxReset)
TRIREME_FAILS(cuDevicePrimaryCtxRetain)
TRIREME_FAILS(cuFuncGetAttribute)
TRIREME_FAILS(cuGetErrorName)
TRIREME_FAILS(cuGetErrorString)
TRIREME_FAILS(cuInit)
TRIREME_FAILS(cuKernelGetAttribute)
TRIREME_FAILS(cuLaunchCooperativeKernel)
TRIREME_FAILS(cuLaunchKernel)
TRIREME_FAILS(cuLaunchKernelEx)
TRIREME_FAILS(cuLibraryLoadFromFile)
TRIREME_FAILS(cuLinkAddData)
TRIREME_FAILS(cuLinkAddData_v2)
TRIREME_FAILS(cuLinkAddFile_v2)
TRIREME_FAILS(cuLinkComplete)
TRIREME_FAILS(cuLinkCreate)
TRIREME_FAILS(cuLinkCreate_v2)
TRIREME_FAILS(cuLinkDestroy)
TRIREME_FAILS(cuMemcpyDtoH_v2)
TRIREME_FAILS(cuModuleGetFunction)
TRIREME_FAILS(cuModuleGetGlobal_v2)
TRIREME_FAILS(cuModuleLoadData)
TRIREME_FAILS(cuModuleLoadDataEx)
TRIREME_FAILS(cuModuleLoadFatBinary)
TRIREME_FAILS(cuModuleUnload)
TRIREME_FAILS(cuOccupancyMaxActiveBlocksPerMultiprocessor)
TRIREME_FAILS(cuOccupancyMaxPotentialClusterSize)
TRIREME_FAILS(cuStreamGetCtx)
TRIREME_FAILS(cuStreamSynchronize)
TRIREME_FAILS(cuTensorMapEncodeTiled)
