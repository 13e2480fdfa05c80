// Reductions of 2-byte types: one rounding per combination, NaN is kept.
#include "comm/narrow_reduce.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace trireme::comm {
namespace {

template <class T>
void check() {
  std::vector<T> a, b;
  for (int i = 0; i < 257; ++i) {
    a.push_back(T(std::sin(static_cast<float>(i)) * 10.0f));
    b.push_back(T(std::cos(3.0f * static_cast<float>(i))));
  }
  for (const Op op : {Op::sum, Op::max, Op::min}) {
    auto out = b;
    narrow_reduce(op, a.data(), out.data(), static_cast<index_t>(out.size()));
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double x = static_cast<float>(a[i]), y = static_cast<float>(b[i]);
      const double exact =
          op == Op::sum ? x + y : (op == Op::max ? std::fmax(x, y) : std::fmin(x, y));
      EXPECT_EQ(out[i].bits, T(static_cast<float>(exact)).bits) << i;
    }
  }
  const T nan = T(NAN);
  for (const Op op : {Op::sum, Op::max, Op::min}) {
    for (const bool first : {false, true}) {
      T in = first ? nan : T(1.0f);
      T inout = first ? T(1.0f) : nan;
      narrow_reduce(op, &in, &inout, 1);
      EXPECT_TRUE(std::isnan(static_cast<float>(inout)));
    }
  }
}

TEST(NarrowReduceBf16, AgainstDouble) {
  check<bf16>();
}
TEST(NarrowReduceFp16, AgainstDouble) {
  check<fp16>();
}

}  // namespace
}  // namespace trireme::comm
