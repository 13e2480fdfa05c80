// kernels/impl/tile.hpp — small dense tiles in team scratch: the building block of
// attention.
//
// One team works on tiles of at most kRows x kRows (or x head_dim) of
// accumulators. On the host a team is one thread and the product is a register-blocked
// loop over vectors; on a GPU the elements of a tile are spread over the threads of the
// team. Callers are the same for both.
#ifndef TRIREME_KERNELS_IMPL_TILE_HPP_
#define TRIREME_KERNELS_IMPL_TILE_HPP_

#include "base/exec.hpp"

namespace trireme::kernels::tile {

// Rows of queries, and of keys, of one tile: 64 fills a host core's caches well; on a GPU
// the tiles of a team have to fit its shared memory.
inline constexpr int kRows = kHostExecution ? 64 : 32;

// body(i) for i in [0, count), spread over the team; ends with a team barrier.
template <class Body>
KOKKOS_INLINE_FUNCTION void for_each(const TeamMember& team, int count,
                                     const Body& body) {
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), body);
  team.team_barrier();
}

// Element (i, p) of the left operand lies at data[i * row + p * column].
template <class T>
struct Left {
  const T* data;
  int row, column;
};

#if !defined(KOKKOS_ENABLE_CUDA) && defined(__GNUC__)

namespace detail {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

template <class T>
struct Vector {
  typedef T type
      __attribute__((vector_size(kVectorBytes), aligned(sizeof(T)), may_alias));
  static constexpr int lanes = kVectorBytes / static_cast<int>(sizeof(T));
};

// C (Rows, 2 vectors) = or += A (Rows, k) B (k, 2 vectors), C held in registers.
template <int Rows, class T>
inline void multiply_block(int k, Left<T> a, const T* b, int ldb, T* c, int ldc,
                           bool add) {
  using V = typename Vector<T>::type;
  constexpr int lanes = Vector<T>::lanes;
  V left[Rows], right[Rows];
  for (int i = 0; i < Rows; ++i) {
    left[i] = add ? *reinterpret_cast<const V*>(c + i * ldc) : V{};
    right[i] = add ? *reinterpret_cast<const V*>(c + i * ldc + lanes) : V{};
  }
  for (int p = 0; p < k; ++p) {
    const V b0 = *reinterpret_cast<const V*>(b + p * ldb);
    const V b1 = *reinterpret_cast<const V*>(b + p * ldb + lanes);
    for (int i = 0; i < Rows; ++i) {
      const T factor = a.data[i * a.row + p * a.column];
      left[i] += factor * b0;
      right[i] += factor * b1;
    }
  }
  for (int i = 0; i < Rows; ++i) {
    *reinterpret_cast<V*>(c + i * ldc) = left[i];
    *reinterpret_cast<V*>(c + i * ldc + lanes) = right[i];
  }
}

// The same for what is left at the right edge, a column range of any width.
template <class T>
inline void multiply_edge(int m, int n, int k, Left<T> a, const T* b, int ldb, T* c,
                          int ldc, bool add) {
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      T sum = add ? c[i * ldc + j] : T{0};
      for (int p = 0; p < k; ++p)
        sum += a.data[i * a.row + p * a.column] * b[p * ldb + j];
      c[i * ldc + j] = sum;
    }
  }
}

}  // namespace detail

// C (m, n) = A (m, k) B (k, n), or C += A B.
template <class T>
inline void multiply(const TeamMember&, int m, int n, int k, Left<T> a, const T* b,
                     int ldb, T* c, int ldc, bool add) {
  constexpr int width = 2 * detail::Vector<T>::lanes;
  const int full = n / width * width;
  int i = 0;
  const auto rows = [&](auto count) {
    constexpr int kCount = decltype(count)::value;
    const Left<T> part{a.data + i * a.row, a.row, a.column};
    for (int j = 0; j < full; j += width) {
      detail::multiply_block<kCount>(k, part, b + j, ldb, c + i * ldc + j, ldc, add);
    }
    i += kCount;
  };
  while (i + 6 <= m) rows(std::integral_constant<int, 6>{});
  while (i + 4 <= m) rows(std::integral_constant<int, 4>{});
  while (i < m) rows(std::integral_constant<int, 1>{});
  if (full < n) {
    detail::multiply_edge(m, n - full, k, a, b + full, ldb, c + full, ldc, add);
  }
}

#else

template <class T>
KOKKOS_INLINE_FUNCTION void multiply(const TeamMember& team, int m, int n, int k,
                                     Left<T> a, const T* b, int ldb, T* c, int ldc,
                                     bool add) {
  for_each(team, m * n, [=](int index) {
    const int i = index / n;
    const int j = index % n;
    T sum = add ? c[i * ldc + j] : T{0};
    for (int p = 0; p < k; ++p) sum += a.data[i * a.row + p * a.column] * b[p * ldb + j];
    c[i * ldc + j] = sum;
  });
}

#endif

}  // namespace trireme::kernels::tile

#endif  // TRIREME_KERNELS_IMPL_TILE_HPP_
