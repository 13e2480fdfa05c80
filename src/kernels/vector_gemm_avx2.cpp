// kernels/vector_gemm_avx2.cpp — products on vectors of AVX2; see
// impl/vector_gemm_part.hpp.
#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/types.hpp"
#include "kernels/impl/vector_gemm.hpp"

// From here on; what was included is as the rest of the program, for any processor.
#pragma GCC target("avx2,fma,f16c")

#include "kernels/impl/vector_gemm_part.hpp"

namespace trireme::kernels::impl {

const VectorSet kAvx2Vectors = vector_set_of<32, 6>("AVX2");

}  // namespace trireme::kernels::impl
