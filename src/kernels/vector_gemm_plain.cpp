// kernels/vector_gemm_plain.cpp — products on the vectors that every processor has; see
// impl/vector_gemm_part.hpp.
#include "kernels/impl/vector_gemm.hpp"
#include "kernels/impl/vector_gemm_part.hpp"

namespace trireme::kernels::impl {

const VectorSet kPlainVectors = vector_set_of<16, 6>("vectors");

}  // namespace trireme::kernels::impl
