// kernels/vector_gemm_avx512.cpp — products on vectors of AVX-512; see
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
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")

#include "kernels/impl/vector_gemm_part.hpp"

namespace trireme::kernels::impl {

const VectorSet kAvx512Vectors = vector_set_of<64, 12>("AVX-512");

}  // namespace trireme::kernels::impl
