// kernels/impl/team_row.hpp — the threads of a GPU that have a row, a team or a warp of
// it, and what they join of what each of them has.
//
// Kokkos' reduction of a team took ten barriers and some 300 instructions: here a warp's
// threads pass numbers on by shuffles, and where a row has several warps, these leave
// theirs in shared memory. What is joined lies in registers: it is a value, never
// captured. Example: reduce_in_turn() of the sums of 96 threads are five shuffles, one
// barrier, and three numbers that each thread adds up.
//
// On a host, for tests, a warp is one thread. It shuffles nothing; all else is the same.
#ifndef TRIREME_KERNELS_IMPL_TEAM_ROW_HPP_
#define TRIREME_KERNELS_IMPL_TEAM_ROW_HPP_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/exec.hpp"

// Before a loop that nvcc would unroll although it goes round once, most often.
#if defined(__CUDA_ARCH__)
#define TRIREME_ROUND_BY_ROUND _Pragma("unroll 1")
#else
#define TRIREME_ROUND_BY_ROUND
#endif

namespace trireme::kernels {

inline constexpr int kWarp = kHostExecution ? 1 : 32;
inline constexpr int kRowThreads = 256;  // of a GPU's team, where rows are flat arrays
inline constexpr int kMostRowThreads = 512;

struct TeamRow {
  const TeamMember& member;
  bool has_pieces;  // see ColumnsOfRows
  int held;         // pieces of each thread that it can keep in registers, or 0
  int rank, size;   // among the row's threads: the team's, or those of a warp
  void* memory;     // of the team, for detail::reduce()
};

// What the team's threads wrote before is seen by all of them after. Not where each warp
// has a row of its own.
KOKKOS_FORCEINLINE_FUNCTION void team_barrier(const TeamRow& team) {
  team.member.team_barrier();
}

// 0, though nvcc cannot tell that all threads have the same. What they all load from one
// place it moves into a register of the warp as soon as it was asked for (R2UR), and so
// waits there for memory: what is asked for ahead is asked for at a place of each thread.
// Of rows that teams have; of a warp's nvcc can tell.
KOKKOS_FORCEINLINE_FUNCTION int zero_of_thread(const TeamRow& team) {
  return team.rank < team.size ? 0 : 1;
}

namespace detail {

// What is reduced is read from shared memory by as many bytes as Kokkos aligns it to.
template <class Number, int kNumbers>
inline constexpr std::size_t kReducedAlignment =
    std::min<std::size_t>(8, kNumbers * sizeof(Number));

// Sums that are taken together.
template <class A, int kSums>
struct alignas(kReducedAlignment<A, kSums>) Sums {
  static constexpr bool kIsSymmetric = true;
  A of[kSums] = {};
  KOKKOS_FORCEINLINE_FUNCTION void join(const Sums& other) {
    for (int k = 0; k < kSums; ++k) of[k] += other.of[k];
  }
};

// The largest number. NaN is passed over.
template <class A>
struct Largest {
  static constexpr bool kIsSymmetric = false;  // of two zeros, its own
  A of = -Kokkos::Experimental::infinity_v<A>;
  KOKKOS_FORCEINLINE_FUNCTION void join(const Largest& other) { add(other.of); }
  KOKKOS_FORCEINLINE_FUNCTION void add(A value) { of = value > of ? value : of; }
};

// Shared memory of reduce(): what each warp has, of at most so many bytes, twice.
inline constexpr std::size_t kReducedBytes = 16;
inline constexpr std::size_t kTurnBytes = kReducedBytes * kMostRowThreads / kWarp;
inline constexpr std::size_t kReduceScratch = 2 * kTurnBytes;
KOKKOS_FORCEINLINE_FUNCTION void* memory_to_reduce(const TeamMember& member) {
  return member.team_scratch(scratch_level(kReduceScratch))
      .get_shmem(static_cast<int>(kReduceScratch));
}

// What the threads of a warp have, joined, for all of them. Where a.join(b) is not
// b.join(a) to the bit, the first thread's is everybody's.
#if defined(__CUDA_ARCH__)
inline constexpr unsigned kWholeWarp = 0xffffffffu;
// By words: as a whole nvcc keeps what is shuffled in memory. take(word) is another
// thread's word. Kokkos has no shuffle by xor, in which the partner is a constant.
template <class Value, class Take>
KOKKOS_FORCEINLINE_FUNCTION Value taken_by_words(const Value& value, const Take& take) {
  struct Words {
    std::uint32_t word[sizeof(Value) / sizeof(std::uint32_t)];
  };
  auto words = Kokkos::bit_cast<Words>(value);
  for (std::uint32_t& word : words.word) word = take(word);
  return Kokkos::bit_cast<Value>(words);
}
// What the thread has whose number differs from this one's by one bit, or the first one.
template <class Value>
KOKKOS_FORCEINLINE_FUNCTION Value value_across(const Value& value, int apart) {
  return taken_by_words(value, [=](std::uint32_t word) {
    return __shfl_xor_sync(kWholeWarp, word, apart);
  });
}
template <class Value>
KOKKOS_FORCEINLINE_FUNCTION Value value_of_first(const Value& value) {
  return taken_by_words(
      value, [](std::uint32_t word) { return __shfl_sync(kWholeWarp, word, 0); });
}
template <class Value>
KOKKOS_FORCEINLINE_FUNCTION Value join_warp(const TeamRow&, Value value) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    value.join(value_across(value, apart));
  }
  if constexpr (Value::kIsSymmetric) {
    return value;
  } else {
    return value_of_first(value);
  }
}
#else
// Of one thread, or compiled for the host and never called.
template <class Value>
KOKKOS_FORCEINLINE_FUNCTION Value join_warp(const TeamRow&, const Value& value) {
  return value;
}
#endif

// What the row's threads have, joined in an order that only depends on their number, for
// all of them. Turns are 0 and 1, and alternate: a thread may still read what was left at
// one of them while another begins with the next.
template <class Value>
KOKKOS_FORCEINLINE_FUNCTION Value reduce_in_turn(const TeamRow& team, const Value& own,
                                                 int turn) {
  static_assert(sizeof(Value) <= kReducedBytes);
  const Value of_warp = join_warp(team, own);
  if (team.size == kWarp) return of_warp;
  auto* const values =
      reinterpret_cast<Value*>(static_cast<std::byte*>(team.memory) + turn * kTurnBytes);
  if (team.rank % kWarp == 0) values[team.rank / kWarp] = of_warp;
  team.member.team_barrier();
  // Four are read at a time, however many there are.
  constexpr int kAtOnce = 4;
  const int warps = team.size / kWarp;
  Value joined = values[0];
  TRIREME_ROUND_BY_ROUND
  for (int begin = 1; begin < warps; begin += kAtOnce) {
    for (int warp = begin; warp < begin + kAtOnce; ++warp) {
      if (warp < warps) {
        const Value of_other = values[warp];  // read at once
        joined.join(of_other);
      }
    }
  }
  return joined;
}

// The same, whatever was reduced before.
template <class Value>
KOKKOS_FORCEINLINE_FUNCTION Value reduce(const TeamRow& team, const Value& own) {
  if (team.size > kWarp) team.member.team_barrier();
  return reduce_in_turn(team, own, 0);
}

}  // namespace detail
}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_TEAM_ROW_HPP_
