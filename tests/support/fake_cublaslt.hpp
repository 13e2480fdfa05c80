// tests/support/fake_cublaslt.hpp — cuBLASLt on a host, for tests of the sources that
// call it (kernels/cublaslt.cpp, gemm_cuda.cpp, gemm_tuner_cuda.cpp) where there is no
// GPU.
//
// It computes by plain loops, in the library's own terms: column-major, with the rules
// that its manual states. What breaks one of them (a size of an attribute, operands that
// do not fit, an address that is less aligned than an algorithm wants, a workspace that
// is not at a multiple of 256 bytes) fails the test. It proposes algorithms that differ
// in the order of their sums, and says of some that they sum in ways that a run must not
// take. It says nothing of how fast a GPU is, nor of which algorithms it has.
#ifndef TRIREME_TESTS_SUPPORT_FAKE_CUBLASLT_HPP_
#define TRIREME_TESTS_SUPPORT_FAKE_CUBLASLT_HPP_

#include <array>
#include <cstdint>
#include <string>

namespace trireme::test {

// Algorithms in the order in which they are proposed.
struct FakeAlgorithm {
  int parts;                // of k, summed apart
  std::uint32_t scheme;     // how the parts are added: CUBLASLT_REDUCTION_SCHEME_...
  std::uint64_t alignment;  // bytes, of all operands
  std::uint64_t workspace;
};
inline constexpr int kFakeAlgorithms = 8;
inline constexpr std::array<FakeAlgorithm, kFakeAlgorithms> kFake = {{
    {1, 0, 16, 0},
    {4, 2, 16, std::uint64_t{1} << 20},
    {1, 0, 16, std::uint64_t{1} << 30},  // more workspace than there is
    {2, 1, 2, 0},                        // in place, rounding between the parts
    {3, 4, 2, 0},                        // parts that are rounded
    {3, 2, 4, 4096},
    {1, 0, 1, 0},
    {2, 2, 1, 256},
}};

struct FakeCublasLt {
  std::array<int, kFakeAlgorithms> milliseconds{};  // that a product takes longer
  int refused = -1;   // the algorithm that fails when it is to compute
  int unsteady = -1;  // and the one whose results differ
  bool has_epilogues = true;
  std::string device = "Fake GPU";
  // What was called so far, and descriptors that were not given back.
  int proposals = 0, checks = 0, products = 0, descriptors = 0;
  std::array<int, kFakeAlgorithms> products_of{};
};
FakeCublasLt& fake_cublaslt();

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_FAKE_CUBLASLT_HPP_
