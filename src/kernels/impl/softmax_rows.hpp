// kernels/impl/softmax_rows.hpp — private to src/kernels: the two loops of cross-entropy
// over a row of 16-bit logits, written with a host's longest vectors.
//
// They are bound by exponentials and conversions, and a compiler makes twice as many
// instructions of the plain loops as are needed. What they leave is what the plain loops
// leave, to the bit (but for which NaN), so that it does not matter where they run: the
// same polynomial (impl/vector_math.hpp), the same pieces, the same lanes of sums.
#ifndef TRIREME_KERNELS_IMPL_SOFTMAX_ROWS_HPP_
#define TRIREME_KERNELS_IMPL_SOFTMAX_ROWS_HPP_

#include "base/exec.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels::impl {

// The columns that are gone through at a time: they are read from memory for the maximum,
// and from the nearest cache (or registers) for the sum.
inline constexpr index_t kSoftmaxPiece = 256;

template <class A>
struct RowStatistics {
  A largest, sum;
};

// What is fetched while pieces of a row are worked on: of every `share` elements that are
// gone through one, from `from` on; null: nothing. A GPU's thread loads what it keeps of
// the row that begins at `from` (cross_entropy.cpp), and other teams read meanwhile.
template <class T>
struct Ahead {
  const T* from = nullptr;
  index_t share = 1;

  KOKKOS_FORCEINLINE_FUNCTION void fetch(const HostRow&, index_t begin,
                                         index_t width) const {
    if (from == nullptr) return;
    constexpr index_t kCacheLine = 64 / static_cast<index_t>(sizeof(T));
    const index_t end = (begin + width) / share;
    for (index_t j = begin / share; j < end; j += kCacheLine) {
      __builtin_prefetch(from + j, 0, 2);  // for reading, into the second cache
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION void fetch(const TeamRow&, index_t, index_t) const {}
};

template <class T>
struct SoftmaxRows {
  // The largest of in[0, count), and the sum of exp(logit - largest).
  RowStatistics<float> (*statistics)(const T* in, index_t count,
                                     const Ahead<T>& ahead) = nullptr;
  // in[j] = exp(in[j] - largest) * factor; no logit is larger than `largest`.
  void (*gradient)(T* in, index_t count, float largest, float factor,
                   const Ahead<T>& ahead) = nullptr;
};

// Null where this processor or this build has no such vectors, and while they are off.
// Only T = bf16 and fp16.
template <class T>
SoftmaxRows<T> softmax_rows();

// For tests: the plain loops from now on, or again what there is.
enum class LongVectors { off, where_there_are };
void set_softmax_rows(LongVectors vectors);

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_SOFTMAX_ROWS_HPP_
