// kernels/cuda/warp.hpp — what a thread of a GPU's block has that C++ has no word for:
// the other threads of its warp and its block, tensor cores, copies that go on by
// themselves.
//
// Kernels in this directory are written against these names alone. nvcc compiles them to
// the instructions; for any other compiler they are declared, and tests/support/
// warp_emulation.cpp defines them: a block's threads are then fibers that meet where the
// instructions meet, so that the same source runs on a host. No header of Kokkos is
// included here: a file compiles in seconds, and alone.
//
// Fragments (PTX ISA, "Matrix fragments for mma.m16n8k16"). Lane l of 32 has g = l / 4
// and t = l % 4. A (16 x 16): register 0 holds row g, columns 2t and 2t + 1; 1: row g +
// 8; 2 and 3: the same, columns 8 further. B (16 x 8): register 0 holds rows 2t and 2t +
// 1 of column g; 1: rows 8 further. C (16 x 8): elements 0 and 1 are row g, columns 2t
// and 2t + 1; 2 and 3: row g + 8. So C's pairs of columns, rounded, are registers of A.
#ifndef TRIREME_KERNELS_CUDA_WARP_HPP_
#define TRIREME_KERNELS_CUDA_WARP_HPP_

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define TRIREME_DEVICE __device__ __forceinline__
#define TRIREME_HOST_DEVICE __host__ __device__
#define TRIREME_UNROLL _Pragma("unroll")
// Where all of a loop's steps at once would take more registers than a thread has.
#define TRIREME_UNROLL_BY(steps) TRIREME_PRAGMA(unroll(steps))
#define TRIREME_PRAGMA(words) _Pragma(#words)
#define TRIREME_ONE_BY_ONE _Pragma("unroll 1")
#else
#define TRIREME_DEVICE inline
#define TRIREME_HOST_DEVICE
#define TRIREME_UNROLL
#define TRIREME_UNROLL_BY(steps)
#define TRIREME_ONE_BY_ONE
#endif

namespace trireme::cuda {

inline constexpr int kWarpLanes = 32;

// What the 16 bits of an operand are.
enum class Element { bf16, fp16 };

// Sixteen bytes, which are moved by one instruction.
struct alignas(16) Quad {
  std::uint32_t word[4];
};
struct alignas(8) QuadHalf {
  std::uint32_t word[2];
};
struct alignas(16) FloatQuad {
  float value[4];
};

#if defined(__CUDACC__)

TRIREME_DEVICE int thread_index() {
  return static_cast<int>(threadIdx.x);
}
TRIREME_DEVICE int block_index() {
  return static_cast<int>(blockIdx.x);
}
TRIREME_DEVICE void sync_block() {
  __syncthreads();
}
TRIREME_DEVICE void sync_warp() {
  __syncwarp();
}
// x, of which the compiler knows nothing: it computes again what depends on it, where it
// would keep that in registers over a loop.
TRIREME_DEVICE int as_unknown(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
// The block's shared memory, from a multiple of 16 bytes on.
TRIREME_DEVICE std::byte* shared_memory() {
  extern __shared__ Quad trireme_shared_memory[];
  return reinterpret_cast<std::byte*>(trireme_shared_memory);
}
// x of the lane whose number differs by the bits of `mask`.
TRIREME_DEVICE float shuffle_xor(float x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}

// x of lane `from`.
TRIREME_DEVICE float shuffle(float x, int from) {
  return __shfl_sync(0xffffffffu, x, from);
}

// Whether it holds for any lane.
TRIREME_DEVICE bool any_of_warp(bool holds) {
  return __any_sync(0xffffffffu, holds);
}

TRIREME_DEVICE std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

// Sixteen bytes to shared memory, which wait_for_copies() waits for; zeros, where there
// are none. `global` has to be a valid address either way.
TRIREME_DEVICE void copy_quad_async(void* shared, const void* global, bool is_there) {
  const int bytes = is_there ? 16 : 0;
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(bytes)
      : "memory");
}
// Four bytes, likewise.
TRIREME_DEVICE void copy_word_async(void* shared, const void* global, bool is_there) {
  const int bytes = is_there ? 4 : 0;
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(bytes)
      : "memory");
}
// The copies that this thread began since the last call are a group.
TRIREME_DEVICE void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until this thread's groups are done, but for the last kLeft of them.
template <int kLeft>
TRIREME_DEVICE void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Four matrices of 8 x 8 elements from shared memory: lane l names row l % 8 of matrix
// l / 8, whose 16 bytes begin at a multiple of 16. Lane l gets of each matrix row l / 4,
// columns 2 (l % 4) and the next; transposed: of each matrix's transpose.
TRIREME_DEVICE void load_matrices(const void* row, std::uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
TRIREME_DEVICE void load_transposed(const void* row, std::uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// c (16 x 8) += a (16 x 16) b (16 x 8), sums in float.
template <Element kElement>
TRIREME_DEVICE void multiply_add(const std::uint32_t (&a)[4], std::uint32_t b0,
                                 std::uint32_t b1, float (&c)[4]) {
  if constexpr (kElement == Element::bf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Two numbers, rounded to nearest even: `low` in the low half.
template <Element kElement>
TRIREME_DEVICE std::uint32_t pack(float low, float high) {
  std::uint32_t both;
  if constexpr (kElement == Element::bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  }
  return both;
}
template <Element kElement>
TRIREME_DEVICE float low_of(std::uint32_t both) {
  if constexpr (kElement == Element::bf16) {
    return __uint_as_float(both << 16);
  } else {
    float value;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}"
        : "=f"(value)
        : "r"(both));
    return value;
  }
}
template <Element kElement>
TRIREME_DEVICE float high_of(std::uint32_t both) {
  if constexpr (kElement == Element::bf16) {
    return __uint_as_float(both & 0xffff0000u);
  } else {
    return low_of<kElement>(both >> 16);
  }
}

// 2^x, to two units in the last place; 0 for minus infinity.
TRIREME_DEVICE float power_of_2(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}
TRIREME_DEVICE float logarithm(float x) {
  return logf(x);
}
// exp(x) and a / b as kernels over 16-bit numbers have them (impl/vector_math.hpp).
TRIREME_DEVICE float exponential(float x) {
  return power_of_2(x * 1.44269504088896341f);
}
TRIREME_DEVICE float quotient(float a, float b) {
  float of_one;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(of_one) : "f"(b));
  return a * of_one;
}
TRIREME_DEVICE float square_root(float x) {
  return __fsqrt_rn(x);
}
// a b + c, rounded once.
TRIREME_DEVICE float multiply_add(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
TRIREME_DEVICE std::uint32_t word_of(float x) {
  return __float_as_uint(x);
}
TRIREME_DEVICE float float_of(std::uint32_t word) {
  return __uint_as_float(word);
}

// Memory that blocks hand on to each other; it is not kept in a multiprocessor's cache.
TRIREME_DEVICE FloatQuad load_from_others(const FloatQuad* from) {
  const float4 x = __ldcg(reinterpret_cast<const float4*>(from));
  return {{x.x, x.y, x.z, x.w}};
}
TRIREME_DEVICE void store_for_others(const FloatQuad& x, FloatQuad* to) {
  __stcg(reinterpret_cast<float4*>(to),
         make_float4(x.value[0], x.value[1], x.value[2], x.value[3]));
}
// Whether others have published `value` there. What they stored before is seen after it.
TRIREME_DEVICE bool is_published(const std::int32_t* counter, std::int32_t value) {
  std::int32_t seen;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
               : "=r"(seen)
               : "l"(__cvta_generic_to_global(counter))
               : "memory");
  return seen == value;
}
// Until they have.
TRIREME_DEVICE void wait_for(const std::int32_t* counter, std::int32_t value) {
  while (!is_published(counter, value)) {
  }
}
// By one thread, behind a sync_block() that all have reached after their stores: these
// are seen, then, by who has found it published.
TRIREME_DEVICE void publish(std::int32_t* counter, std::int32_t value) {
  asm volatile(
      "st.release.gpu.global.s32 [%0], %1;" ::"l"(__cvta_generic_to_global(counter)),
      "r"(value)
      : "memory");
}
// Asks for a line of memory to come to the cache that all multiprocessors share.
TRIREME_DEVICE void ask_for_line(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(address)));
}
// Words, and pairs of them, that say by themselves whether they are there: each is seen
// whole, whenever that is, and tells nothing of others. What is stored as a pair is
// loaded as one. A load sees what is there at the time; what was `seen` before is asked
// for again.
TRIREME_DEVICE void store_word(std::uint32_t word, std::uint32_t* to) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(to)),
               "r"(word)
               : "memory");
}
TRIREME_DEVICE void store_pair(std::uint32_t first, std::uint32_t second,
                               std::uint32_t* to) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(to)),
               "l"(std::uint64_t{second} << 32 | first)
               : "memory");
}
TRIREME_DEVICE Quad peek(const Quad* from) {
  Quad seen;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(seen.word[0]), "=r"(seen.word[1]), "=r"(seen.word[2]),
                 "=r"(seen.word[3])
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return seen;
}
TRIREME_DEVICE Quad peek_again(const Quad* from, const Quad&) {
  return peek(from);
}
TRIREME_DEVICE Quad peek_pairs(const Quad* from) {
  std::uint64_t pair[2];
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(pair[0]), "=l"(pair[1])
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return {{static_cast<std::uint32_t>(pair[0]), static_cast<std::uint32_t>(pair[0] >> 32),
           static_cast<std::uint32_t>(pair[1]),
           static_cast<std::uint32_t>(pair[1] >> 32)}};
}
TRIREME_DEVICE Quad peek_pairs_again(const Quad* from, const Quad&) {
  return peek_pairs(from);
}
// The number of calls before this one.
TRIREME_DEVICE std::int32_t take_ticket(std::int32_t* counter) {
  return atomicAdd(counter, 1);
}

#else

int thread_index();
int block_index();
void sync_block();
void sync_warp();
inline int as_unknown(int x) {
  return x;
}
std::byte* shared_memory();
std::uint32_t shared_address(const void* shared);
float shuffle_xor(float x, int mask);
float shuffle(float x, int from);
bool any_of_warp(bool holds);
void copy_quad_async(void* shared, const void* global, bool is_there);
void copy_word_async(void* shared, const void* global, bool is_there);
void commit_copies();
void wait_for_copies_but(int left);
template <int kLeft>
void wait_for_copies() {
  wait_for_copies_but(kLeft);
}
void load_matrices(const void* row, std::uint32_t (&to)[4]);
void load_transposed(const void* row, std::uint32_t (&to)[4]);
template <Element kElement>
void multiply_add(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  float (&c)[4]);
template <Element kElement>
std::uint32_t pack(float low, float high);
template <Element kElement>
float low_of(std::uint32_t both);
template <Element kElement>
float high_of(std::uint32_t both);
float power_of_2(float x);
float logarithm(float x);
float exponential(float x);
float quotient(float a, float b);
float square_root(float x);
float multiply_add(float a, float b, float c);
std::uint32_t word_of(float x);
float float_of(std::uint32_t word);
FloatQuad load_from_others(const FloatQuad* from);
void store_for_others(const FloatQuad& x, FloatQuad* to);
bool is_published(const std::int32_t* counter, std::int32_t value);
void wait_for(const std::int32_t* counter, std::int32_t value);
void publish(std::int32_t* counter, std::int32_t value);
inline void ask_for_line(const void*) {}
void store_word(std::uint32_t word, std::uint32_t* to);
void store_pair(std::uint32_t first, std::uint32_t second, std::uint32_t* to);
Quad peek(const Quad* from);
Quad peek_again(const Quad* from, const Quad& seen);
inline Quad peek_pairs(const Quad* from) {
  return peek(from);
}
inline Quad peek_pairs_again(const Quad* from, const Quad& seen) {
  return peek_again(from, seen);
}
std::int32_t take_ticket(std::int32_t* counter);

#endif

TRIREME_DEVICE int lane_index() {
  return thread_index() % kWarpLanes;
}
TRIREME_DEVICE int warp_index() {
  return thread_index() / kWarpLanes;
}

}  // namespace trireme::cuda

#endif  // TRIREME_KERNELS_CUDA_WARP_HPP_
