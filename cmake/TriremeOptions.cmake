# Cache options of the build, and the flags every target gets.
set(TRIREME_ENABLE_TESTS "AUTO" CACHE STRING
    "Build the tests: ON, OFF, or AUTO for where GoogleTest is installed")
option(TRIREME_ENABLE_PERF "Build the micro-benchmarks (Google Benchmark)" OFF)
option(TRIREME_REQUIRE_CUDA "Fail where the Kokkos that was found has no CUDA" OFF)
set(TRIREME_ENABLE_NCCL "AUTO" CACHE STRING
    "NCCL in builds for GPUs: ON, OFF, or AUTO for where it is installed")
set(TRIREME_ENABLE_SENTENCEPIECE "AUTO" CACHE STRING
    "Tokenizers that are models of SentencePiece: ON, OFF, or AUTO for where it is installed")
set(TRIREME_ARCH "native" CACHE STRING
    "CPU to build for: a value of -march (native, x86-64-v3, znver3 ...), or 'none'")
set(TRIREME_SANITIZE "" CACHE STRING "Value of -fsanitize, empty for none")

option(TRIREME_UNITY "Compile sources in batches: half the time from nothing (OFF: each \
alone, for who changes one at a time)" ON)

# Vectors of an instruction set that a file names, and their shuffles, are g++'s; Kokkos's
# wrapper of nvcc, which is what a build for GPUs compiles with, answers as g++, too.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  message(FATAL_ERROR "The compiler is ${CMAKE_CXX_COMPILER_ID} (${CMAKE_CXX_COMPILER}), and "
                      "Trireme is built with g++ 12 or later: name it by "
                      "-DCMAKE_CXX_COMPILER=g++, or load your site's module of it "
                      "(on a Cray: PrgEnv-gnu)")
endif()

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# What the sources of a module have in common (Kokkos, fmt, JSON) is then parsed and compiled
# once for six of them. They share one unnamed namespace.
set(CMAKE_UNITY_BUILD ${TRIREME_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 6)

# Every executable lies in bin/, as in an installed tree.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

# Flags shared by all of Trireme's own targets (not by what it links).
add_library(trireme_flags INTERFACE)
target_compile_options(trireme_flags INTERFACE -Wall -Wextra)
# g++ 12 sees overflows in strings put together that are none (GCC bugs 105329, 105651).
if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(trireme_flags INTERFACE -Wno-stringop-overflow)
endif()
# Vectors that the build's processor lacks are passed between functions of one file only.
target_compile_options(trireme_flags INTERFACE -Wno-psabi)
# An eighth less time in g++: it collects garbage when a gigabyte has come together, which
# no file of ours reaches, not at every 128 megabytes.
target_compile_options(trireme_flags INTERFACE --param=ggc-min-heapsize=1000000)
# A precompiled header is taken only where all settings are those that it was made with. In
# newer g++ -O2 switches on two that -O1 does not; named, they are the same for both.
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-munroll-only-small-loops TRIREME_HAS_UNROLL_ONLY_SMALL_LOOPS)
if(TRIREME_HAS_UNROLL_ONLY_SMALL_LOOPS)
  target_compile_options(trireme_flags INTERFACE -munroll-only-small-loops -mvzeroupper)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
# Multiply and add are contracted only where the code says fma(): whether a compiler fuses
# them would otherwise depend on inlining, and numbers on the compiler's mood.
target_compile_options(trireme_flags INTERFACE -ffp-contract=off)
# Nobody reads errno or floating-point exception flags after a kernel. Promising so changes
# no value, and without it g++ vectorises neither selects nor square roots.
target_compile_options(trireme_flags INTERFACE -fno-math-errno -fno-trapping-math)
if(NOT TRIREME_ARCH STREQUAL "none")
  target_compile_options(trireme_flags INTERFACE -march=${TRIREME_ARCH})
endif()
if(TRIREME_SANITIZE)
  target_compile_options(trireme_flags INTERFACE -fsanitize=${TRIREME_SANITIZE}
                                                 -fno-omit-frame-pointer)
  target_link_options(trireme_flags INTERFACE -fsanitize=${TRIREME_SANITIZE})
endif()
