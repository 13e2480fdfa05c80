// kernels/impl/team_lanes.hpp — columns of a row as a thread of a GPU has them: eight
// side by side, which are 16 bytes of 16-bit numbers, read and written at once.
//
// What impl/lanes.hpp is to the vectors of a host. The body of a loop over columns is a
// generic lambda of j: a PieceAt, and what is read there Eight numbers; or an index_t,
// where a row is not made of whole pieces (TeamRow::has_pieces) or ends with a part of
// one. Columns 8 q to 8 q + 7 are those of thread q % size in every loop over pieces, so
// that a thread reads what it wrote itself without a barrier.
#ifndef TRIREME_KERNELS_IMPL_TEAM_LANES_HPP_
#define TRIREME_KERNELS_IMPL_TEAM_LANES_HPP_

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/random.hpp"
#include "base/types.hpp"
#include "kernels/impl/pieces.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/impl/team_row.hpp"

namespace trireme::kernels {

// kCount columns from j on, of arrays that have whole pieces there.
template <int kCount>
struct PieceOf {
  index_t j;
  KOKKOS_FORCEINLINE_FUNCTION friend PieceOf operator+(index_t begin, PieceOf at) {
    return {begin + at.j};
  }
};
using PieceAt = PieceOf<kPieceColumns>;

// Numbers of so many columns.
template <class A, int kCount>
struct Several {
  A of[kCount];

  Several() = default;
  KOKKOS_FORCEINLINE_FUNCTION Several(A value) {
    for (A& one : of) one = value;
  }
  template <class Of>
  KOKKOS_FORCEINLINE_FUNCTION static Several each(const Of& value_of) {
    Several result;
    for (int i = 0; i < kCount; ++i) result.of[i] = value_of(i);
    return result;
  }
  KOKKOS_FORCEINLINE_FUNCTION friend Several operator+(const Several& a,
                                                       const Several& b) {
    return each([&](int i) { return a.of[i] + b.of[i]; });
  }
  KOKKOS_FORCEINLINE_FUNCTION friend Several operator-(const Several& a,
                                                       const Several& b) {
    return each([&](int i) { return a.of[i] - b.of[i]; });
  }
  KOKKOS_FORCEINLINE_FUNCTION friend Several operator*(const Several& a,
                                                       const Several& b) {
    return each([&](int i) { return a.of[i] * b.of[i]; });
  }
  KOKKOS_FORCEINLINE_FUNCTION friend Several operator/(const Several& a,
                                                       const Several& b) {
    return each([&](int i) { return a.of[i] / b.of[i]; });
  }
};

template <class A>
using Eight = Several<A, kPieceColumns>;

template <class A>
KOKKOS_FORCEINLINE_FUNCTION A sum_of(const Eight<A>& value) {
  return ((value.of[0] + value.of[1]) + (value.of[2] + value.of[3])) +
         ((value.of[4] + value.of[5]) + (value.of[6] + value.of[7]));
}
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A sum_of(A value) {
  return value;
}

namespace detail {

// Two numbers of 16 bits, the first in the lower half.
template <class T, class A>
KOKKOS_FORCEINLINE_FUNCTION std::uint32_t pair_of(A first, A second) {
#if defined(__CUDA_ARCH__)
  std::uint32_t pair;
  if constexpr (std::is_same_v<T, bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  }
  return pair;
#else
  return T(first).bits | static_cast<std::uint32_t>(T(second).bits) << 16;
#endif
}
template <class T, class A>
KOKKOS_FORCEINLINE_FUNCTION A half_of(std::uint32_t pair, int which) {
  T half;
  half.bits = static_cast<std::uint16_t>(pair >> 16 * which);
  return static_cast<A>(half);
}

}  // namespace detail

// The same as they lie in memory: those of 16 bits in pairs, since nvcc gives each number
// a register.
template <class T, int kCount>
struct Stored {
  static constexpr bool kHasPairs = sizeof(T) == 2;
  using Unit = std::conditional_t<kHasPairs, std::uint32_t, T>;
  static constexpr int kUnits = kCount / (kHasPairs ? 2 : 1);
  static constexpr int kOfPiece =
      kUnits < impl::Piece<Unit>::kElements ? kUnits : impl::Piece<Unit>::kElements;
  struct alignas(kOfPiece * sizeof(Unit)) Piece {
    Unit element[kOfPiece];
  };
  Piece piece[kUnits / kOfPiece];

  KOKKOS_FORCEINLINE_FUNCTION Unit& unit(int i) {
    return piece[i / kOfPiece].element[i % kOfPiece];
  }
  KOKKOS_FORCEINLINE_FUNCTION const Unit& unit(int i) const {
    return piece[i / kOfPiece].element[i % kOfPiece];
  }
};
template <class T>
using StoredEight = Stored<T, kPieceColumns>;

template <class T, int kCount>
KOKKOS_FORCEINLINE_FUNCTION Stored<T, kCount> load_stored(const T* row,
                                                          PieceOf<kCount> at) {
#if defined(__CUDA_ARCH__)
  return *reinterpret_cast<const Stored<T, kCount>*>(row + at.j);
#else
  Stored<T, kCount> stored;
  std::memcpy(&stored, row + at.j, sizeof(stored));
  return stored;
#endif
}
template <class T, int kCount>
KOKKOS_FORCEINLINE_FUNCTION void store(T* row, PieceOf<kCount> at,
                                       const Stored<T, kCount>& stored) {
#if defined(__CUDA_ARCH__)
  using Piece = typename Stored<T, kCount>::Piece;
  auto* const to = reinterpret_cast<Piece*>(row + at.j);
  TRIREME_IN_REGISTERS
  for (int p = 0; p < Stored<T, kCount>::kUnits / Stored<T, kCount>::kOfPiece; ++p) {
    impl::store_whole(to + p, stored.piece[p]);
  }
#else
  std::memcpy(static_cast<void*>(row + at.j), &stored, sizeof(stored));
#endif
}
template <class A, class T, int kCount>
KOKKOS_FORCEINLINE_FUNCTION Several<A, kCount> numbers_of(
    const Stored<T, kCount>& stored) {
  return Several<A, kCount>::each([&](int i) {
    if constexpr (Stored<T, kCount>::kHasPairs) {
      return detail::half_of<T, A>(stored.unit(i / 2), i % 2);
    } else {
      return static_cast<A>(stored.unit(i));
    }
  });
}
template <class T, class A, int kCount>
KOKKOS_FORCEINLINE_FUNCTION Stored<T, kCount> stored_as(const Several<A, kCount>& value) {
  Stored<T, kCount> stored;
  for (int i = 0; i < Stored<T, kCount>::kUnits; ++i) {
    if constexpr (Stored<T, kCount>::kHasPairs) {
      stored.unit(i) = detail::pair_of<T>(value.of[2 * i], value.of[2 * i + 1]);
    } else {
      stored.unit(i) = static_cast<T>(value.of[i]);
    }
  }
  return stored;
}

template <class A, class T, int kCount>
KOKKOS_FORCEINLINE_FUNCTION Several<A, kCount> read(const T* row, PieceOf<kCount> at) {
  return numbers_of<A>(load_stored(row, at));
}
template <class T, class A, int kCount>
KOKKOS_FORCEINLINE_FUNCTION void write(T* row, PieceOf<kCount> at,
                                       const Several<A, kCount>& value) {
  store(row, at, stored_as<T>(value));
}
// What is written is not read from memory again.
template <class A, class T, int kCount>
KOKKOS_FORCEINLINE_FUNCTION Several<A, kCount> written(T* row, PieceOf<kCount> at,
                                                       const Several<A, kCount>& value) {
  const Stored<T, kCount> stored = stored_as<T>(value);
  store(row, at, stored);
  return numbers_of<A>(stored);
}

// Whether a thread has one piece at most of so many columns, and the kernel knows it. A
// host's teams, for tests, have fewer threads than those that it was launched for.
KOKKOS_FORCEINLINE_FUNCTION bool holds_one_piece(const TeamRow& team, index_t columns) {
  return team.held == 1 &&
         (!kHostExecution || columns <= index_t{kPieceColumns} * team.size);
}

// Threads of a GPU ask for nothing ahead: others read meanwhile.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void ask_for(const T*, PieceAt) {}
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void ask_to_write(const T*, PieceAt) {}
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void ask_ahead_of(const T*, PieceAt) {}

template <class A, int kCount, class F>
KOKKOS_FORCEINLINE_FUNCTION Several<A, kCount> mapped(const Several<A, kCount>& value,
                                                      const F& f) {
  return Several<A, kCount>::each([&](int i) { return f(value.of[i]); });
}

// The values whose random words are not below the threshold, else 0: one call of the
// generator has the words of a piece.
template <class A>
KOKKOS_FORCEINLINE_FUNCTION Eight<A> zero_below(std::uint32_t threshold,
                                                const random::Words& words,
                                                const Eight<A>& value) {
  return Eight<A>::each([&](int i) {
    const std::uint32_t word = words.word[i / 2];
    // The upper half as it lies there: what is below it decides nothing.
    const bool is_below = i % 2 == 0 ? random::DropoutWords::half(word, 0) < threshold
                                     : word < threshold << 16;
    return is_below ? A{0} : value.of[i];
  });
}

template <class Body>
KOKKOS_FORCEINLINE_FUNCTION void for_each_lanes(const TeamRow& team, index_t count,
                                                const Body& body) {
  const index_t pieces = team.has_pieces ? count / kPieceColumns : 0;
  for (index_t q = team.rank; q < pieces; q += team.size)
    body(PieceAt{kPieceColumns * q});
  const index_t rest = pieces * kPieceColumns;
  for (index_t j = rest + team.rank; j < count; j += team.size) body(j);
}

namespace detail {

// body(p) for p = 0, 1, ... with p known to the compiler, which keeps arrays in registers
// only where it knows every index.
template <int... kP, class Body>
KOKKOS_FORCEINLINE_FUNCTION void unrolled(std::integer_sequence<int, kP...>,
                                          const Body& body) {
  (body(std::integral_constant<int, kP>()), ...);
}

// What add(j, partial) adds up over the columns, joined over the team's threads in an
// order that only depends on their number.
template <class Value, class Add>
KOKKOS_FORCEINLINE_FUNCTION Value reduce_pieces(const TeamRow& team, index_t count,
                                                const Add& add) {
  const index_t pieces = team.has_pieces ? count / kPieceColumns : 0;
  const index_t rest = pieces * kPieceColumns;
  Value own;
  for (index_t q = team.rank; q < pieces; q += team.size) {
    add(PieceAt{kPieceColumns * q}, own);
  }
  for (index_t j = rest + team.rank; j < count; j += team.size) add(j, own);
  return reduce(team, own);
}

}  // namespace detail

template <class A, class Value>
KOKKOS_FORCEINLINE_FUNCTION A sum_lanes(const TeamRow& team, index_t count,
                                        const Value& value) {
  return detail::reduce_pieces<detail::Sums<A, 1>>(
             team, count, [&](auto j, auto& sums) { sums.of[0] += sum_of(value(j)); })
      .of[0];
}
template <class A, class Value>
KOKKOS_FORCEINLINE_FUNCTION void sum_lanes_of_two(const TeamRow& team, index_t count,
                                                  const Value& value, A& total_a,
                                                  A& total_b) {
  const auto totals =
      detail::reduce_pieces<detail::Sums<A, 2>>(team, count, [&](auto j, auto& sums) {
        decltype(read<A>(static_cast<const A*>(nullptr), j)) a, b;
        value(j, a, b);
        sums.of[0] += sum_of(a);
        sums.of[1] += sum_of(b);
      });
  total_a = totals.of[0];
  total_b = totals.of[1];
}

// Arrays that are gone through once. The widest numbers among them are float: a thread
// has four columns, so that a warp reads and writes whole lines of those at once.
template <class Ask, class Body>
KOKKOS_FORCEINLINE_FUNCTION void for_each_streamed(const TeamRow& team, index_t count,
                                                   const Ask&, const Body& body) {
  constexpr int kColumns = 4;
  const index_t pieces = team.has_pieces ? count / kColumns : 0;
  for (index_t q = team.rank; q < pieces; q += team.size) {
    body(PieceOf<kColumns>{kColumns * q});
  }
  const index_t rest = pieces * kColumns;
  for (index_t j = rest + team.rank; j < count; j += team.size) body(j);
}

namespace detail {

template <class A, class Number, class Value>
KOKKOS_FORCEINLINE_FUNCTION A sum_of_each(const Eight<Number>& numbers,
                                          const Value& value) {
  A sum{0};
  for (const Number& number : numbers.of) sum += value(number);
  return sum;
}
template <class A, class Number, class Value>
KOKKOS_FORCEINLINE_FUNCTION A sum_of_each(Number number, const Value& value) {
  return value(number);
}

}  // namespace detail

template <class A, class T, class Value>
KOKKOS_FORCEINLINE_FUNCTION A sum_streamed(const TeamRow& team, const T* data,
                                           index_t count, const Value& value) {
  return detail::reduce_pieces<detail::Sums<A, 1>>(
             team, count,
             [&](auto j, auto& sums) {
               sums.of[0] += detail::sum_of_each<A>(read<Accumulator<T>>(data, j), value);
             })
      .of[0];
}

// A thread adds up its columns over the rows by itself, of which it reads four at a time.
template <class A, class TermOf>
KOKKOS_FORCEINLINE_FUNCTION void add_rows(const TeamRow& team,
                                          const RowBlocks::Rows& rows,
                                          index_t column_begin, index_t width, A* sums,
                                          const TermOf& term_of) {
  for_each_lanes(team, width, [&](auto j) {
    auto sum = read<A>(sums, j);
    const auto c = column_begin + j;
    const index_t step = rows.step;
    index_t row = rows.begin;
    for (; row + 3 * step < rows.end; row += 4 * step) {
      const auto t0 = term_of(row)(c), t1 = term_of(row + step)(c);
      const auto t2 = term_of(row + 2 * step)(c), t3 = term_of(row + 3 * step)(c);
      sum = (((sum + t0) + t1) + t2) + t3;
    }
    for (; row < rows.end; row += step) sum = sum + term_of(row)(c);
    write(sums, j, sum);
  });
}

namespace detail {

// The sum of some rows of a column. Sixteen are read at a time, the last ones too: each
// by itself would be waited for as long as all of them.
template <class A, class TermOf>
KOKKOS_FORCEINLINE_FUNCTION A sum_of_rows(index_t begin, index_t end, index_t column,
                                          const TermOf& term_of) {
  constexpr int kAtOnce = 2;  // times eight
  A sum{0};
  for (index_t row = begin; row < end; row += kAtOnce * kPieceColumns) {
    Eight<A> part[kAtOnce];
    for (int i = 0; i < kAtOnce * kPieceColumns; ++i) {
      part[i / kPieceColumns].of[i % kPieceColumns] =
          row + i < end ? term_of(row + i)(column) : A{0};
    }
    for (const Eight<A>& one : part) sum += sum_of(one);
  }
  return sum;
}

}  // namespace detail

// There are few columns, so that a thread that went through all rows would wait for
// memory most of its time: it has some of the rows of one column. Each call takes
// kCombineScratch of the team's memory.
template <class G, class TermOf>
KOKKOS_FORCEINLINE_FUNCTION void combine_rows(const TeamRow& team, bool adds,
                                              index_t rows, index_t column_begin,
                                              index_t width, G* sums,
                                              const TermOf& term_of) {
  using A = Accumulator<G>;
  constexpr index_t kSlices = kRowThreads / kCombineTile;
  constexpr std::size_t kBytes = kCombineScratch<A>;
  auto* const slices = static_cast<A*>(team.member.team_scratch(scratch_level(kBytes))
                                           .get_shmem(static_cast<int>(kBytes)));
  for_each_column(team, kRowThreads, [&](index_t thread) {
    const index_t j = thread % kCombineTile, slice = thread / kCombineTile;
    if (j >= width) return;
    slices[thread] = detail::sum_of_rows<A>(
        slice * rows / kSlices, (slice + 1) * rows / kSlices, column_begin + j, term_of);
  });
  team_barrier(team);
  for_each_column(team, width, [&](index_t j) {
    A sum = adds ? static_cast<A>(sums[j]) : A{0};
    for (index_t slice = 0; slice < kSlices; ++slice) {
      sum += slices[slice * kCombineTile + j];
    }
    sums[j] = static_cast<G>(sum);
  });
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_TEAM_LANES_HPP_
