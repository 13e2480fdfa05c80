# What a build for NVIDIA GPUs takes beside Kokkos: a toolkit, the architecture, NCCL, and the run
# path to their libraries. Included where the Kokkos that was found has CUDA.
if(NOT Kokkos_CUDA_ARCHITECTURES OR Kokkos_CUDA_ARCHITECTURES LESS 80)
  message(FATAL_ERROR "The Kokkos in ${Kokkos_DIR} was built for GPUs of architecture "
                      "'${Kokkos_CUDA_ARCHITECTURES}'; Trireme needs 80 (A100), 90 (H100, "
                      "H200) or later: build it with Kokkos_ARCH_AMPERE80=ON or "
                      "Kokkos_ARCH_HOPPER90=ON")
endif()
if(NOT CMAKE_CXX_COMPILER MATCHES "nvcc_wrapper")
  message(FATAL_ERROR "The compiler is ${CMAKE_CXX_COMPILER}, and the Kokkos in ${Kokkos_DIR} has "
                      "CUDA: its sources are compiled by nvcc. Name Kokkos' wrapper by "
                      "-DCMAKE_CXX_COMPILER=<its prefix>/bin/nvcc_wrapper, in a new build "
                      "directory (cmake --fresh); Kokkos_ROOT alone finds it where no compiler "
                      "is named. The wrapper takes the g++ in NVCC_WRAPPER_DEFAULT_COMPILER")
endif()

find_package(CUDAToolkit QUIET)
if(NOT CUDAToolkit_FOUND)
  message(FATAL_ERROR "The Kokkos in ${Kokkos_DIR} has CUDA, and there is no nvcc: load the module "
                      "of the toolkit that Kokkos was built with (cuda, cudatoolkit, nvhpc), or "
                      "name its directory by -DCUDAToolkit_ROOT=DIR")
endif()
if(CUDAToolkit_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "The CUDA toolkit in ${CUDAToolkit_BIN_DIR} is ${CUDAToolkit_VERSION}, whose "
                      "nvcc knows no C++20: take CUDA 12 or 13, and a Kokkos built with it")
endif()
if(NOT TARGET CUDA::cublasLt)
  message(FATAL_ERROR "The CUDA toolkit in ${CUDAToolkit_BIN_DIR} has no cuBLASLt, by which "
                      "matrices are multiplied: install libcublas of the same version (NVIDIA's "
                      "HPC SDK has it beside the toolkit, in math_libs)")
endif()

# Own kernels are compiled for the GPUs that Kokkos was built for. On Hopper that is sm_90a, as
# its asynchronous products and copies are no part of sm_90; a file x.sm90a.cu is for it alone.
set(CMAKE_CUDA_ARCHITECTURES "${Kokkos_CUDA_ARCHITECTURES}")
if(CMAKE_CUDA_ARCHITECTURES STREQUAL "90")
  set(CMAKE_CUDA_ARCHITECTURES 90a)
endif()
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
endif()
enable_language(CUDA)
# CMake 3.25 knows no standard of nvcc's beyond C++17.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
message(STATUS "CUDA ${CUDAToolkit_VERSION} in ${CUDAToolkit_BIN_DIR}, for sm_"
               "${CMAKE_CUDA_ARCHITECTURES}")

# What carries messages between GPUs. Where it is not found MPI does, through the host.
if(TRIREME_ENABLE_NCCL)
  find_path(TRIREME_NCCL_HEADERS nccl.h
            HINTS ${NCCL_ROOT} ENV NCCL_ROOT ENV NCCL_HOME ${CUDAToolkit_INCLUDE_DIRS}
            PATH_SUFFIXES include)
  find_library(TRIREME_NCCL_LIBRARY NAMES nccl libnccl.so.2
               HINTS ${NCCL_ROOT} ENV NCCL_ROOT ENV NCCL_HOME ${CUDAToolkit_LIBRARY_DIR}
               PATH_SUFFIXES lib lib64)
  mark_as_advanced(TRIREME_NCCL_HEADERS TRIREME_NCCL_LIBRARY)
else()
  unset(TRIREME_NCCL_LIBRARY CACHE)
endif()
if(TRIREME_NCCL_HEADERS AND TRIREME_NCCL_LIBRARY)
  message(STATUS "NCCL in ${TRIREME_NCCL_LIBRARY}")
else()
  unset(TRIREME_NCCL_LIBRARY CACHE)
  string(CONCAT problem
         "No NCCL was found: messages between GPUs would go through MPI and the host's memory. "
         "Set NCCL_ROOT to an installation that has include/nccl.h (a module nccl, or NVIDIA's HPC "
         "SDK in comm_libs/nccl)")
  if(TRIREME_ENABLE_NCCL STREQUAL "AUTO")
    message(WARNING "${problem}; -DTRIREME_ENABLE_NCCL=OFF builds without it and says nothing.")
  elseif(TRIREME_ENABLE_NCCL)
    message(FATAL_ERROR "${problem}, or build without it by -DTRIREME_ENABLE_NCCL=OFF.")
  endif()
endif()

# cuDNN's attention is possible where its headers and those of its front end are.
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDNN_ROOT
          PATH_SUFFIXES include)
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h
          HINTS ENV CUDNN_FRONTEND_ROOT ${TRIREME_DEPS}/cudnn-frontend PATH_SUFFIXES include)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_FRONTEND_INCLUDE_DIR)
set(TRIREME_CUDNN_HEADERS "")
if(CUDNN_INCLUDE_DIR AND CUDNN_FRONTEND_INCLUDE_DIR)
  set(TRIREME_CUDNN_HEADERS ${CUDNN_INCLUDE_DIR} ${CUDNN_FRONTEND_INCLUDE_DIR})
  message(STATUS "cuDNN: headers in ${CUDNN_INCLUDE_DIR} and ${CUDNN_FRONTEND_INCLUDE_DIR}")
else()
  message(STATUS "cuDNN: not both of cudnn.h and cudnn_frontend.h, so no "
                 "precision.attention: cudnn")
endif()

# trireme_run_path(<imported library or path>)
#   What is linked from its directory is found there at run time. CMake leaves directories out of
#   the run path that the compiler searches by itself, as nvcc does its toolkit's: the loader does
#   not. Stubs of the driver stay out: the driver is the system's.
set(TRIREME_RUN_PATH "")
function(trireme_run_path library)
  set(location "${library}")
  if(TARGET ${library})
    get_target_property(location ${library} IMPORTED_LOCATION)
  endif()
  get_filename_component(directory "${location}" DIRECTORY)
  if(NOT location OR directory MATCHES "/stubs$")
    return()
  endif()
  list(APPEND TRIREME_RUN_PATH "${directory}")
  list(REMOVE_DUPLICATES TRIREME_RUN_PATH)
  set(TRIREME_RUN_PATH "${TRIREME_RUN_PATH}" PARENT_SCOPE)
  set(CMAKE_BUILD_RPATH "${TRIREME_RUN_PATH}" PARENT_SCOPE)
endfunction()
trireme_run_path(CUDA::cudart)
trireme_run_path(CUDA::cublasLt)
if(TRIREME_NCCL_LIBRARY)
  trireme_run_path("${TRIREME_NCCL_LIBRARY}")
endif()
