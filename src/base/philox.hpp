// base/philox.hpp — Philox-4x32 (Salmon et al., SC'11, "Parallel random numbers: as easy
// as 1, 2, 3") as GPUs compute it.
//
// Hosts take it from Random123 (base/random.hpp), and tests hold this one against that.
// nvcc makes 64-bit products of Random123's where it puts them in their places: an
// instruction more for each of them, and there are fourteen products in seven rounds.
// No header of Kokkos: the files of src/kernels/cuda/ compile without any.
#ifndef TRIREME_BASE_PHILOX_HPP_
#define TRIREME_BASE_PHILOX_HPP_

#include <cstdint>

#if defined(__CUDACC__)
#define TRIREME_PHILOX_FUNCTION __host__ __device__ __forceinline__
#else
#define TRIREME_PHILOX_FUNCTION inline
#endif
#if defined(__CUDA_ARCH__)
#define TRIREME_PHILOX_ROUNDS _Pragma("unroll")
#else
#define TRIREME_PHILOX_ROUNDS
#endif

namespace trireme::random {

struct Words {
  std::uint32_t word[4];
};

namespace detail {

// Both halves of a product.
TRIREME_PHILOX_FUNCTION std::uint64_t whole_product(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  std::uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return static_cast<std::uint64_t>(a) * b;
#endif
}

}  // namespace detail

// The counter, encrypted under a key of two words.
template <int kRounds>
TRIREME_PHILOX_FUNCTION Words philox(Words counter, std::uint32_t key0,
                                     std::uint32_t key1) {
  constexpr std::uint32_t kFactor0 = 0xd2511f53u, kFactor1 = 0xcd9e8d57u;
  constexpr std::uint32_t kWeyl0 = 0x9e3779b9u, kWeyl1 = 0xbb67ae85u;
  TRIREME_PHILOX_ROUNDS
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t p0 = detail::whole_product(counter.word[0], kFactor0);
    const std::uint64_t p1 = detail::whole_product(counter.word[2], kFactor1);
    counter = {{static_cast<std::uint32_t>(p1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<std::uint32_t>(p1),
                static_cast<std::uint32_t>(p0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<std::uint32_t>(p0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

}  // namespace trireme::random

#endif  // TRIREME_BASE_PHILOX_HPP_
