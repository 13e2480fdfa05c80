# Finds what Trireme is built on. A module or Spack build in CMAKE_PREFIX_PATH or
# <Package>_ROOT wins; what tools/bootstrap put under .deps/ is the fallback.
set(TRIREME_DEPS "${PROJECT_SOURCE_DIR}/.deps" CACHE PATH
    "Where tools/bootstrap installs what the system does not have")
set(_wheel "${TRIREME_DEPS}/kokkos/pygenten/lib64/cmake")
set(TRIREME_KOKKOS_FROM_WHEEL OFF)
if(NOT DEFINED Kokkos_ROOT AND NOT DEFINED ENV{Kokkos_ROOT} AND NOT DEFINED Kokkos_DIR)
  find_package(Kokkos 4.6 QUIET)
  if(NOT Kokkos_FOUND AND EXISTS "${_wheel}/Kokkos")
    unset(Kokkos_DIR CACHE)
    set(Kokkos_ROOT "${_wheel}/Kokkos")
    set(KokkosKernels_ROOT "${_wheel}/KokkosKernels")
    set(TRIREME_KOKKOS_FROM_WHEEL ON)
  endif()
elseif(DEFINED Kokkos_DIR AND Kokkos_DIR MATCHES "pygenten")
  set(TRIREME_KOKKOS_FROM_WHEEL ON)
endif()

find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Kokkos 4.6 REQUIRED)
if(TRIREME_REQUIRE_CUDA AND NOT Kokkos_ENABLE_CUDA)
  message(FATAL_ERROR "The cuda preset needs a Kokkos built with CUDA; found ${Kokkos_DIR}, "
                      "which has ${Kokkos_DEVICES}. Set Kokkos_ROOT to one that has CUDA "
                      "(docs/developer/cuda.md builds one in two commands), and begin anew with "
                      "cmake --fresh.")
endif()
message(STATUS "Kokkos ${Kokkos_VERSION} (${Kokkos_DEVICES}) in ${Kokkos_DIR}")
if(NOT Kokkos_ENABLE_CUDA)
  # What multiplies matrices on host cores. GPUs have cuBLASLt.
  find_package(dnnl REQUIRED)
  if(TRIREME_KOKKOS_FROM_WHEEL)
    if(NOT KokkosKernels_ROOT)
      set(KokkosKernels_ROOT "${_wheel}/KokkosKernels")
    endif()
    find_package(KokkosKernels REQUIRED)  # the wheel's version file says only ".."; it is 4.4
  else()
    find_package(KokkosKernels 4.4 REQUIRED)
  endif()
  find_package(BLAS REQUIRED)
  if(TRIREME_KOKKOS_FROM_WHEEL)
    # The wheel's two targets name libraries of the machine that built it.
    find_package(LAPACK REQUIRED)
    set_target_properties(Kokkos::BLAS PROPERTIES
                          INTERFACE_LINK_LIBRARIES "${BLAS_LIBRARIES}")
    set_target_properties(Kokkos::LAPACK PROPERTIES
                          INTERFACE_LINK_LIBRARIES "${LAPACK_LIBRARIES}")
    # Its shared libraries need others that lie beside the package, found at link time here
    # and at run time through their own RPATH.
    get_filename_component(_wheel_libs "${Kokkos_DIR}/../../../../pygenten.libs" ABSOLUTE)
    add_link_options(-Wl,-rpath-link,${_wheel_libs})
  endif()
else()
  include(TriremeCuda)  # toolkit, architecture, NCCL, run path
endif()

find_package(MPI 3.1 REQUIRED COMPONENTS CXX)
set(HDF5_PREFER_PARALLEL ON)
find_package(HDF5 1.10 REQUIRED COMPONENTS C)
find_package(yaml-cpp REQUIRED)
if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()
find_package(fmt REQUIRED)
if(Kokkos_ENABLE_CUDA)
  # fmt 9 turns constexpr off under nvcc but keeps consteval, which then cannot compile.
  set_property(TARGET fmt::fmt APPEND PROPERTY
               INTERFACE_COMPILE_DEFINITIONS FMT_USE_CONSTEXPR=1)
endif()
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
if(TRIREME_ENABLE_SENTENCEPIECE)
  pkg_check_modules(sentencepiece IMPORTED_TARGET sentencepiece)
  if(sentencepiece_FOUND)
    message(STATUS "SentencePiece ${sentencepiece_VERSION}")
  elseif(TRIREME_ENABLE_SENTENCEPIECE STREQUAL "AUTO")
    message(STATUS "No SentencePiece: T5's and other tokenizers that are its models will be "
                   "refused (tools/bootstrap installs libsentencepiece-dev; of a module, "
                   "PKG_CONFIG_PATH must lead to its sentencepiece.pc)")
  else()
    message(FATAL_ERROR "No SentencePiece was found: install libsentencepiece-dev (Debian), or "
                        "load a module or Spack's sentencepiece so that PKG_CONFIG_PATH leads to "
                        "its sentencepiece.pc, or build without it by "
                        "-DTRIREME_ENABLE_SENTENCEPIECE=OFF.")
  endif()
endif()
find_path(RANDOM123_INCLUDE_DIR Random123/philox.h REQUIRED)
