// kernels/impl/column_sums.hpp — one pass that writes rows and leaves sums over them.
//
// A backward pass writes gradients of its inputs, element by element, and the gradients
// of biases and norms are sums of what it has in hand over the rows. Both are done while
// a block of rows (RowBlocks) is walked: on the host by one thread, four rows at a time,
// so that a sum is stored once for four; on a GPU by one team, row by row, whose threads
// keep the sums of their columns in registers. The order is that of add_rows(): the bits
// are those of sums taken in a pass of their own.
#ifndef TRIREME_KERNELS_IMPL_COLUMN_SUMS_HPP_
#define TRIREME_KERNELS_IMPL_COLUMN_SUMS_HPP_

#include <type_traits>
#include <utility>

#include "base/types.hpp"
#include "kernels/impl/dropout_rows.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels {

// What the columns at some j add to their sums.
template <class Value, int kSums>
struct Terms {
  Value of[kSums];
};
template <class Value, class... Values>
KOKKOS_FORCEINLINE_FUNCTION Terms<Value, 1 + static_cast<int>(sizeof...(Values))>
terms_of(const Value& first, const Values&... rest) {
  return {{first, rest...}};
}

// A block of rows and where its sums go: sum k of column j to to[k][j].
template <class A, int kSums>
struct BlockOfRows {
  RowBlocks::Rows rows;
  index_t h;
  A* to[kSums];
};

namespace detail {

template <class A, int kSums, class J, class Value>
KOKKOS_FORCEINLINE_FUNCTION void add_terms(const BlockOfRows<A, kSums>& block, J j,
                                           const Terms<Value, kSums>& t) {
  for (int k = 0; k < kSums; ++k) {
    write(block.to[k], j, read<A>(block.to[k], j) + t.of[k]);
  }
}

}  // namespace detail

// row_of(team, row) makes what a row needs once (statistics), as a function of
// (j, dropping) that writes the row's outputs at j and returns its Terms; for j see
// for_each_lanes().
template <bool kMasked, class A, int kSums, class RowOf>
KOKKOS_FORCEINLINE_FUNCTION void write_and_sum_rows(const HostRow& team,
                                                    const DropoutMask<A>& mask,
                                                    const StepState* step,
                                                    const BlockOfRows<A, kSums>& block,
                                                    const RowOf& row_of) {
  for (int k = 0; k < kSums; ++k) {
    for_each_column(team, block.h, [=](index_t j) { block.to[k][j] = A{0}; });
  }
  std::uint16_t words[4][kMasked ? kWordsAtOnce : 1];
  const auto draw = [&](index_t row, index_t begin, index_t count, std::uint16_t* to) {
    if constexpr (kMasked) {
      draw_words(mask.generator(*step, row), mask.first_call(row), begin, count, to);
    }
  };
  const auto dropped = [&](int which, auto i) {
    if constexpr (kMasked) {
      return dropping(mask, words_at(words[which], i));
    } else {
      return Keeping{};
    }
  };
  const index_t h = block.h;
  const index_t piece = kMasked ? kWordsAtOnce : h;
  index_t row = block.rows.begin;
  for (; row + 4 <= block.rows.end; row += 4) {
    const auto r0 = row_of(team, row), r1 = row_of(team, row + 1);
    const auto r2 = row_of(team, row + 2), r3 = row_of(team, row + 3);
    for (index_t begin = 0; begin < h; begin += piece) {
      const index_t count = h - begin < piece ? h - begin : piece;
      for (int r = 0; r < 4; ++r) draw(row + r, begin, count, words[r]);
      for_each_lanes(team, count, [&](auto i) {
        const auto j = begin + i;
        const auto t0 = r0(j, dropped(0, i)), t1 = r1(j, dropped(1, i));
        const auto t2 = r2(j, dropped(2, i)), t3 = r3(j, dropped(3, i));
        auto sum = t0;
        for (int k = 0; k < kSums; ++k) {
          sum.of[k] = (t0.of[k] + t1.of[k]) + (t2.of[k] + t3.of[k]);
        }
        detail::add_terms(block, j, sum);
      });
    }
  }
  for (; row < block.rows.end; ++row) {
    const auto r0 = row_of(team, row);
    for (index_t begin = 0; begin < h; begin += piece) {
      const index_t count = h - begin < piece ? h - begin : piece;
      draw(row, begin, count, words[0]);
      for_each_lanes(team, count, [&](auto i) {
        detail::add_terms(block, begin + i, r0(begin + i, dropped(0, i)));
      });
    }
  }
}

namespace detail {

// body(j, dropping) of a thread's piece q of a row.
template <bool kMasked, class A, class Body>
KOKKOS_FORCEINLINE_FUNCTION void do_piece(const DropoutMask<A>& mask, const DrawnBy& step,
                                          index_t row, index_t q, const Body& body) {
  const PieceAt at{kPieceColumns * q};
  if constexpr (kMasked) {
    body(at, dropping(mask, WordsOfRow(mask, step, row).at(at)));
  } else {
    body(at, Keeping{});
  }
}

// A thread has the same kPieces pieces of every row, at most, and their sums in
// registers.
template <bool kMasked, int kPieces, class A, int kSums, class RowOf>
KOKKOS_FORCEINLINE_FUNCTION void sum_rows_of_pieces(const TeamRow& team,
                                                    const DropoutMask<A>& mask,
                                                    const StepState* step,
                                                    const BlockOfRows<A, kSums>& block,
                                                    const RowOf& row_of) {
  const index_t pieces = block.h / kPieceColumns;
  const auto first = static_cast<index_t>(team.rank);
  const auto stride = static_cast<index_t>(team.size);
  Terms<Eight<A>, kSums> sums[kPieces];
  const auto for_each_piece = [&](const auto& body) {
    unrolled(std::make_integer_sequence<int, kPieces>(), [&](auto p) {
      constexpr int kPiece = decltype(p)::value;
      const index_t q = first + kPiece * stride;
      if (q < pieces) body(q, sums[kPiece]);
    });
  };
  unrolled(std::make_integer_sequence<int, kPieces>(), [&](auto p) {
    for (auto& sum : sums[decltype(p)::value].of) sum = A{0};
  });
  DrawnBy now;
  if constexpr (kMasked) now = *step;
  for (index_t row = block.rows.begin; row < block.rows.end; row += block.rows.step) {
    const auto at = row_of(team, row);
    for_each_piece([&](index_t q, Terms<Eight<A>, kSums>& to) {
      do_piece<kMasked>(mask, now, row, q, [&](PieceAt j, const auto& dropped) {
        const auto terms = at(j, dropped);
        for (int k = 0; k < kSums; ++k) to.of[k] = to.of[k] + terms.of[k];
      });
    });
  }
  for_each_piece([&](index_t q, Terms<Eight<A>, kSums>& from) {
    for (int k = 0; k < kSums; ++k) {
      write(block.to[k], PieceAt{kPieceColumns * q}, from.of[k]);
    }
  });
}

}  // namespace detail

template <bool kMasked, class A, int kSums, class RowOf>
KOKKOS_FORCEINLINE_FUNCTION void write_and_sum_rows(const TeamRow& team,
                                                    const DropoutMask<A>& mask,
                                                    const StepState* step,
                                                    const BlockOfRows<A, kSums>& block,
                                                    const RowOf& row_of) {
  const index_t size = kPieceColumns * static_cast<index_t>(team.size);
  if (team.has_pieces && block.h % kPieceColumns == 0 && block.h <= 2 * size) {
    if (block.h <= size) {
      detail::sum_rows_of_pieces<kMasked, 1>(team, mask, step, block, row_of);
    } else {
      detail::sum_rows_of_pieces<kMasked, 2>(team, mask, step, block, row_of);
    }
    return;
  }
  // A thread has the same columns in every row, so that no barrier is needed between
  // rows; between this loop and them it is.
  for_each_column(team, block.h, [&](index_t j) {
    for (int k = 0; k < kSums; ++k) block.to[k][j] = A{0};
  });
  team_barrier(team);
  for (index_t row = block.rows.begin; row < block.rows.end; row += block.rows.step) {
    const auto at = row_of(team, row);
    const auto add = [&](auto j, const auto& dropped) {
      detail::add_terms(block, j, at(j, dropped));
    };
    if constexpr (kMasked) {
      for_each_dropping(team, mask, *step, row, block.h, add);
    } else {
      for_each_lanes(team, block.h, [&](auto j) { add(j, Keeping{}); });
    }
  }
}

// The same where nothing is dropped.
template <class Team, class A, int kSums, class RowOf>
KOKKOS_FORCEINLINE_FUNCTION void write_and_sum_rows(const Team& team,
                                                    const BlockOfRows<A, kSums>& block,
                                                    const RowOf& row_of) {
  write_and_sum_rows<false>(team, DropoutMask<A>(), nullptr, block, row_of);
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_COLUMN_SUMS_HPP_
