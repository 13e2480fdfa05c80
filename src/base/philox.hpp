// base/philox.hpp — Philox-4x32 (Salmon et al., SC'11, "Parallel random numbers: as easy
// as 1, 2, 3") as GPUs compute it.
//
// Hosts take it from Random123 (base/random.hpp), and tests hold this one against that.
// Of Random123's products nvcc makes 64-bit ones where it puts them in their places: an
// instruction more for each of them, and there are fourteen in seven rounds. To ask for
// the right instruction costs attention registers that it has not; there nvcc chooses
// right by itself. No header of Kokkos: the files of src/kernels/cuda/ compile without.
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

// Both halves of a product, as the compiler likes to make it, and by one instruction.
struct PlainProduct {
  TRIREME_PHILOX_FUNCTION std::uint64_t operator()(std::uint32_t a,
                                                   std::uint32_t b) const {
    return static_cast<std::uint64_t>(a) * b;
  }
};
#if defined(__CUDA_ARCH__)
struct WideProduct {
  TRIREME_PHILOX_FUNCTION std::uint64_t operator()(std::uint32_t a,
                                                   std::uint32_t b) const {
    std::uint64_t product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
    return product;
  }
};
#endif

// The counter, encrypted under a key of two words.
template <int kRounds, class Product = PlainProduct>
TRIREME_PHILOX_FUNCTION Words philox(Words counter, std::uint32_t key0,
                                     std::uint32_t key1) {
  constexpr std::uint32_t kFactor0 = 0xd2511f53u, kFactor1 = 0xcd9e8d57u;
  constexpr std::uint32_t kWeyl0 = 0x9e3779b9u, kWeyl1 = 0xbb67ae85u;
  TRIREME_PHILOX_ROUNDS
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t p0 = Product()(counter.word[0], kFactor0);
    const std::uint64_t p1 = Product()(counter.word[2], kFactor1);
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
