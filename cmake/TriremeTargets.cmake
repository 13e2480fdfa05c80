# A function of the host that a kernel calls is a warning to nvcc, and garbage on the GPU, or
# nothing at all: where it is constexpr, which has a warning of its own, what depends on it is
# left out.
if(Kokkos_ENABLE_CUDA)
  target_compile_options(trireme_flags INTERFACE --Werror=cross-execution-space-call
                                                 "SHELL:-Xcudafe --diag_error=20013")
endif()

# trireme_add_module(<name> SOURCES <files> [HOT <files>|ALL] [USES <modules>]
#                    [LIBRARIES <targets>])
#   One static library per directory of src/. USES are modules of lower layers. HOT are the
#   sources in which time is spent (each compiled alone, or ALL); on the others the compiler
#   need not spend any either: the build is one that people wait for.
function(trireme_add_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HOT;USES;LIBRARIES;PUBLIC_LIBRARIES" ${ARGN})
  list(FIND TRIREME_MODULES ${name} self)
  add_library(trireme_${name} STATIC ${ARG_SOURCES})
  add_library(trireme::${name} ALIAS trireme_${name})
  target_include_directories(trireme_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(trireme_${name} PRIVATE trireme_flags ${ARG_LIBRARIES}
                                        PUBLIC ${ARG_PUBLIC_LIBRARIES})
  foreach(used IN LISTS ARG_USES)
    list(FIND TRIREME_MODULES ${used} layer)
    if(layer LESS 0 OR NOT layer LESS self)
      message(FATAL_ERROR "module ${name} may not use ${used}: the layers are "
                          "${TRIREME_MODULES}")
    endif()
    target_link_libraries(trireme_${name} PUBLIC trireme_${used})
  endforeach()
  trireme_reuse_pch(trireme_${name})
  if(NOT ARG_HOT STREQUAL "ALL")
    trireme_optimise(trireme_${name} -O1)
    if(ARG_HOT AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT Kokkos_ENABLE_CUDA)
      set_property(SOURCE ${ARG_HOT} APPEND PROPERTY COMPILE_OPTIONS -O3)
    endif()
  endif()
endfunction()

# How much of that the compiler is to do in a release build. (nvcc takes one -O, and warns of
# a second in every file.)
function(trireme_optimise target level)
  if(NOT Kokkos_ENABLE_CUDA)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}>)
  endif()
endfunction()

# One precompiled header (Kokkos and fmt) for all targets with the same flags; `more` adds
# headers to one of its own name: trireme_reuse_pch(<target> [<name> <more>...]). Kokkos takes
# seconds to parse, GoogleTest too; sources still include what they use, and
# tests/style compiles every header alone. It is made with -O3, that of tests with -O0. g++
# takes one of -O0 for no other level; with one of -O3 many functions, those of kernels above
# all, are compiled as if that had been asked for: sources that are to take less time have
# none.
function(trireme_reuse_pch target)
  set(more ${ARGN})
  list(POP_FRONT more name)
  set(pch trireme_pch)
  if(name)
    set(pch trireme_${name}_pch)
  endif()
  if(NOT TARGET ${pch})
    set(source ${PROJECT_BINARY_DIR}/pch/${pch}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "// nothing but its precompiled header\n")
    add_library(${pch} STATIC ${source})
    if(name STREQUAL "test")
      trireme_optimise(${pch} -O0)
    endif()
    target_link_libraries(${pch} PRIVATE trireme_flags Kokkos::kokkos fmt::fmt)
    if(NOT Kokkos_ENABLE_CUDA)
      target_precompile_headers(${pch} PRIVATE <Kokkos_Core.hpp> <fmt/format.h> <string>
                                <vector> <memory> <functional> ${more})
    endif()
  endif()
  if(NOT Kokkos_ENABLE_CUDA)
    target_link_libraries(${target} PRIVATE Kokkos::kokkos fmt::fmt)
    target_precompile_headers(${target} REUSE_FROM ${pch})
  endif()
endfunction()

# trireme_add_tests(<label> <group> SOURCES test_a.cpp ... [USES <modules>] [RANKS 1 2 4]
#                   [LIBRARIES <targets>] [TIMEOUT <s>] [EXCEPT <pattern>]
#                   [PROCESSORS 1] [ALONE] [OPTIMISED])
#   One executable test_<label>_<group>; one ctest entry <label>.<group>.<file> per source
#   (and per rank count), which runs the suites whose names start with the file's name in
#   CamelCase: test_layer_norm.cpp holds TEST(LayerNorm..., ...), but for those of the pattern.
#   An entry that runs no test fails (tests/support/main.cpp). PROCESSORS 1: they run one
#   thread at a time, or little more, so that ctest may run others beside them. ALONE: they
#   look at times, so that those of several ranks run by themselves. OPTIMISED:
#   what they compare with takes most of the time.
function(trireme_add_tests label group)
  cmake_parse_arguments(ARG "ALONE;OPTIMISED" "TIMEOUT;EXCEPT;PROCESSORS"
                        "SOURCES;USES;RANKS;LIBRARIES;LABELS" ${ARGN})
  if(ARG_RANKS AND ARG_PROCESSORS)
    message(FATAL_ERROR "${label}.${group}: PROCESSORS follows from RANKS")
  endif()
  set(target test_${label}_${group})
  add_executable(${target} ${ARG_SOURCES})
  list(TRANSFORM ARG_USES PREPEND trireme_)
  target_link_libraries(${target} PRIVATE trireme_flags trireme_test_support ${ARG_USES}
                                          ${ARG_LIBRARIES} GTest::gmock GTest::gtest)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  # What is tested is optimised; the tests themselves are not worth the compiler's time (two
  # fifths of it).
  if(ARG_OPTIMISED)
    trireme_optimise(${target} -O1)
    target_link_libraries(${target} PRIVATE Kokkos::kokkos fmt::fmt)
  else()
    trireme_optimise(${target} -O0)
    trireme_reuse_pch(${target} test <gtest/gtest.h> <gmock/gmock.h>)
    target_link_libraries(trireme_test_pch PRIVATE GTest::gmock GTest::gtest)
  endif()
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                                             ${PROJECT_BINARY_DIR}/tests)
  if(label STREQUAL "unit")
    add_dependencies(unit_tests ${target})
    # For trireme_gpu_tests, which is all of them; a stand-in for a library is no GPU's.
    if(NOT ARG_LIBRARIES MATCHES "trireme_(fake_|kernels_as_on_cuda|decode_by_teams)")
      set_property(GLOBAL APPEND PROPERTY TRIREME_UNIT_TESTS ${target})
      set_property(GLOBAL APPEND PROPERTY TRIREME_UNIT_LIBRARIES ${ARG_USES} ${ARG_LIBRARIES})
    endif()
  endif()
  set(except "")
  if(ARG_EXCEPT)
    set(except "-${ARG_EXCEPT}")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
    # Threads that are emulated by fibers take ten times as long under a sanitizer.
    if(TRIREME_SANITIZE)
      set(ARG_TIMEOUT 900)
    endif()
  endif()
  foreach(source IN LISTS ARG_SOURCES)
    get_filename_component(stem ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "" stem ${stem})
    string(REPLACE "_" ";" words ${stem})
    set(suite "")
    foreach(word IN LISTS words)
      string(SUBSTRING ${word} 0 1 first)
      string(SUBSTRING ${word} 1 -1 rest)
      string(TOUPPER ${first} first)
      string(APPEND suite ${first}${rest})
    endforeach()
    if(ARG_RANKS)
      foreach(ranks IN LISTS ARG_RANKS)
        set(name ${label}.${group}.${stem}.np${ranks})
        add_test(NAME ${name} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks}
                 $<TARGET_FILE:${target}> --gtest_filter=${suite}*${except})
        trireme_test_properties(${name} "${label};${ARG_LABELS}" ${ARG_TIMEOUT})
        set_tests_properties(${name} PROPERTIES ENVIRONMENT_MODIFICATION OMP_NUM_THREADS=set:1)
        if(NOT TRIREME_SANITIZE)
          set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
                       LD_PRELOAD=$<TARGET_FILE:trireme_patient_waits>)
        endif()
        set_tests_properties(${name} PROPERTIES PROCESSORS ${ranks})
        if(ARG_ALONE AND ranks GREATER 1)
          set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
        endif()
      endforeach()
    else()
      set(name ${label}.${group}.${stem})
      add_test(NAME ${name} COMMAND ${target} --gtest_filter=${suite}*${except})
      trireme_test_properties(${name} "${label};${ARG_LABELS}" ${ARG_TIMEOUT})
      if(ARG_PROCESSORS)
        set_tests_properties(${name} PROPERTIES PROCESSORS ${ARG_PROCESSORS})
      endif()
    endif()
  endforeach()
endfunction()

# trireme_cudnn_source(target source directory ...): `source` of this target includes cuDNN's
# front end, from these directories. It finds the library's functions when it is run, and is
# compiled by itself.
function(trireme_cudnn_source target source)
  set_source_files_properties(
    ${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON
    COMPILE_DEFINITIONS "NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING;CUDNN_FRONTEND_SKIP_JSON_LIB")
  target_include_directories(${target} SYSTEM PRIVATE ${ARGN})
endfunction()

# The environment every test runs in: two threads unless said otherwise (and two cores of
# those that ctest gives out), one per rank where there are ranks; threads not bound, and
# asleep soon where they wait: spinning is slow where others use the cores, too.
function(trireme_test_properties name labels timeout)
  if(Kokkos_ENABLE_CUDA)
    list(APPEND labels gpu)  # kernels of this build run nowhere else
  endif()
  # The thread sanitizer does not know the barriers of OpenMP's library; UCX's hooks of
  # memory and address sanitizers' do not bear each other; MPI and HDF5 leak a little.
  set(threads 2)
  set(sanitizers "")
  if(TRIREME_SANITIZE MATCHES "thread")
    set(threads 1)
  endif()
  if(TRIREME_SANITIZE)
    # What damaged files ask for is refused as elsewhere; tests measure memory.
    set(options detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=16)
    set(options ${options}:suppressions=${PROJECT_SOURCE_DIR}/tests/support/asan.supp)
    set(thread_options allocator_may_return_null=1:die_after_fork=0)
    set(thread_options
        ${thread_options}:suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp)
    set(sanitizers UCX_MEM_EVENTS=no ASAN_OPTIONS=${options}
                   TSAN_OPTIONS=${thread_options}
                   UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1)
  endif()
  # Ranks outnumber cores: MPICH's own waits are to give up theirs, by a library that ranks
  # preload; sanitizers' libraries are to be the first.
  set(waits "")
  if(NOT TRIREME_SANITIZE)
    set(waits TRIREME_PATIENT_WAITS=$<TARGET_FILE:trireme_patient_waits>)
  endif()
  set(environment OMP_PROC_BIND=false OMP_NUM_THREADS=${threads} GOMP_SPINCOUNT=20000
      ${sanitizers} ${waits}
      TRIREME_SOURCE_DIR=${PROJECT_SOURCE_DIR}
      TRIREME_BINARY=${PROJECT_BINARY_DIR}/bin/trireme
      TRIREME_MPIEXEC=${MPIEXEC_EXECUTABLE})
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout}
    PROCESSORS 2 SKIP_RETURN_CODE 77
    ENVIRONMENT "${environment}")
endfunction()

# These sources of the current directory may run before the CPU is known to be the one of
# TRIREME_ARCH (base/cpu_check.hpp): they are compiled for the plainest of its kind.
function(trireme_plain_cpu)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -march=x86-64)
  endif()
endfunction()

# Multiply and add stay apart in these sources on the GPU too (on the CPU they do everywhere):
# random numbers are bitwise the same on both.
function(trireme_plain_arithmetic)
  # For who compiles them otherwise (tests/contracts).
  set_property(GLOBAL APPEND PROPERTY TRIREME_PLAIN_ARITHMETIC ${ARGN})
  if(Kokkos_ENABLE_CUDA)
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS --fmad=false)
  endif()
endfunction()
