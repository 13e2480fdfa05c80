// Elements of shapes that no tensor can have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/shape.hpp"

namespace trireme {
namespace {

TEST(Shape, CountsElements) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({3, 5, 7}), 105);
  EXPECT_EQ(element_count({index_t{1} << 31, (index_t{1} << 31) - 1}),
            (index_t{1} << 62) - (index_t{1} << 31));
  EXPECT_EQ(element_count({index_t{1} << 62, 0, index_t{1} << 62}), 0);
}

TEST(Shape, CountsNothingImpossible) {
  for (const Shape& shape : std::vector<Shape>{{index_t{1} << 33, index_t{1} << 31},
                                               {index_t{1} << 62, 2},
                                               {-3},
                                               {-3, -5},
                                               {0, -1}}) {
    EXPECT_FALSE(counted_elements(shape)) << to_string(shape);
    EXPECT_THROW(element_count(shape), InputError) << to_string(shape);
  }
  try {
    element_count({index_t{1} << 33, index_t{1} << 31});
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("(8589934592, 2147483648)"));
  }
}

}  // namespace
}  // namespace trireme
