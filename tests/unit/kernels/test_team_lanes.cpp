// Eight numbers side by side, as a thread of a GPU reads and writes them: those of 16
// bits in pairs, which it converts by other instructions than single ones.
#include "kernels/impl/team_lanes.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/exec.hpp"
#include "support/narrow_types.hpp"

namespace trireme::kernels {
namespace {

template <class T>
void convert_pieces(const float* numbers, T* narrow, float* wide, index_t count) {
  launch(
      Exec(), "trireme::test::convert_pieces", count / kPieceColumns,
      KOKKOS_LAMBDA(const index_t piece) {
        const PieceAt at{kPieceColumns * piece};
        write(narrow, at, read<float>(numbers, at));
        write(wide, at, read<float>(narrow, at));
      });
}
// What is written is not read from memory.
template <class T>
void convert_written(const float* numbers, T* narrow, float* wide, index_t count) {
  launch(
      Exec(), "trireme::test::convert_written", count / kPieceColumns,
      KOKKOS_LAMBDA(const index_t piece) {
        const PieceAt at{kPieceColumns * piece};
        write(wide, at, written<float>(narrow, at, read<float>(numbers, at)));
      });
}

template <class T>
void expect_pieces_round_to_nearest() {
  const std::vector<float> numbers = test::numbers_to_round();
  ASSERT_EQ(numbers.size() % kPieceColumns, 0u);
  test::expect_nearest(numbers, test::rounded_by<T>(numbers, convert_pieces<T>));
  test::expect_nearest(numbers, test::rounded_by<T>(numbers, convert_written<T>));
}

TEST(TeamLanes, PairsOfBf16RoundToNearestEven) {
  expect_pieces_round_to_nearest<bf16>();
}
TEST(TeamLanes, PairsOfFp16RoundToNearestEven) {
  expect_pieces_round_to_nearest<fp16>();
}

}  // namespace
}  // namespace trireme::kernels
