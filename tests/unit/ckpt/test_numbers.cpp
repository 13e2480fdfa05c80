// Numbers that are none, of every element type, wherever they are and however the data
// come; and no others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "ckpt/numbers.hpp"

namespace trireme {
namespace {

using ckpt::BadNumbers;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

template <class T>
class NumbersOf : public ::testing::Test {};
using NumberTypes = ::testing::Types<float, double, bf16, fp16>;
TYPED_TEST_SUITE(NumbersOf, NumberTypes);

template <class T>
T as(double value) {
  return T(static_cast<float>(value));
}

template <class T>
std::string text_of(const std::string& name, const std::vector<T>& values) {
  const ckpt::TensorEntry tensor{
      name, dtype_of<T>, {static_cast<index_t>(values.size())}};
  BadNumbers numbers(tensor);
  numbers.look_at(ckpt::whole(tensor.shape), 0,
                  reinterpret_cast<const std::byte*>(values.data()),
                  values.size() * sizeof(T));
  return numbers.text();
}

TYPED_TEST(NumbersOf, AreToldFromOthers) {
  using T = TypeParam;
  const T most = as<T>(std::is_same_v<T, fp16> ? 65504.0 : 3.0e38);
  const std::vector<T> good = {as<T>(0), as<T>(-0.0),  as<T>(1),    as<T>(-1),
                               most,     as<T>(-most), as<T>(6e-8), as<T>(1e-38)};
  EXPECT_EQ(text_of("model/w", good), "");
  EXPECT_EQ(text_of("optimizer/exp_avg/w", good), "");
  for (const double bad : {kNan, -kNan, kInf, -kInf}) {
    for (std::size_t at = 0; at <= good.size(); ++at) {
      std::vector<T> values = good;
      values.insert(values.begin() + static_cast<std::ptrdiff_t>(at), as<T>(bad));
      const std::string text = text_of("model/w", values);
      EXPECT_THAT(text, HasSubstr("1 number of 'model/w' is not finite; the first is "));
      EXPECT_THAT(text, HasSubstr("at (" + std::to_string(at) + ")"));
    }
  }
  const std::vector<T> squares = {as<T>(-0.0), as<T>(0), as<T>(2), as<T>(-3), as<T>(-4)};
  EXPECT_EQ(
      text_of("optimizer/exp_avg_sq/w", squares),
      "2 numbers of 'optimizer/exp_avg_sq/w' are not finite, or below zero, which no "
      "second moment is; the first is -3 at (3)");
}

// By pieces of rows, of blocks that begin anywhere: the first is that of the whole
// tensor.
TEST(Numbers, HavePlacesInTheTensor) {
  const ckpt::TensorEntry tensor{"model/w", DType::float32, {7, 5, 3}};
  std::vector<float> values(7 * 5 * 3, 1.0f);
  values[2 * 15 + 4 * 3 + 1] = std::nanf("");
  values[6 * 15] = -std::numeric_limits<float>::infinity();
  for (const std::size_t piece : {1u, 4u, 15u, 22u, 1000u}) {
    BadNumbers numbers(tensor);
    for (const ckpt::Rectangle& place :
         {ckpt::Rectangle{4, 0, 3, 15}, ckpt::Rectangle{0, 0, 4, 15}}) {
      const auto begin = static_cast<std::size_t>(place.row * 15);
      const auto count = static_cast<std::size_t>(place.elements());
      for (std::size_t at = 0; at < count; at += piece) {
        numbers.look_at(place, static_cast<index_t>(at),
                        reinterpret_cast<const std::byte*>(values.data() + begin + at),
                        std::min(piece, count - at) * sizeof(float));
      }
    }
    EXPECT_EQ(numbers.count(), 2);
    EXPECT_EQ(numbers.text(),
              "2 numbers of 'model/w' are not finite; the first is nan at (2, 4, 1)");
  }
  // A block of columns of a matrix.
  const ckpt::TensorEntry matrix{"model/m", DType::float32, {4, 10}};
  BadNumbers numbers(matrix);
  const float part[] = {1, 2, 3, 4, std::nanf(""), 6};  // rows 1 and 2, columns 7 to 9
  numbers.look_at({1, 7, 2, 3}, 0, reinterpret_cast<const std::byte*>(part), sizeof part);
  EXPECT_THAT(numbers.text(), HasSubstr("at (2, 8)"));
}

TEST(Numbers, IntegersAreNeverBad) {
  EXPECT_EQ(text_of("model/w", std::vector<std::uint32_t>{~0u, 0x7f800000u}), "");
}

}  // namespace
}  // namespace trireme
