// tests/unit/base/test_words.cpp — texts are taken apart as words.hpp says.
#include "base/words.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace trireme {
namespace {

using Parts = std::vector<std::string_view>;

TEST(Words, SplitsAtEverySeparator) {
  EXPECT_EQ(split("a, b,, c", ", "), (Parts{"a", "b,", "c"}));
  EXPECT_EQ(split("", ":"), (Parts{""}));
  EXPECT_EQ(split(":1:", ":"), (Parts{"", "1", ""}));
}

TEST(Words, ALineNeedsNoEnd) {
  EXPECT_EQ(lines_of("a\n\nb"), (Parts{"a", "", "b"}));
  EXPECT_EQ(lines_of("a\n\nb\n"), (Parts{"a", "", "b"}));
  EXPECT_EQ(lines_of(""), Parts{});
}

TEST(Words, ANumberIsAllOfTheText) {
  EXPECT_EQ(number_in<int>("-12"), -12);
  EXPECT_EQ(number_in<double>("1e-3"), 1e-3);
  EXPECT_EQ(number_in<std::uint64_t>("ff", 16), 255u);
  for (const char* text : {"", " 1", "1 ", "1.5", "+1", "99999999999"}) {
    EXPECT_EQ(number_in<int>(text), std::nullopt) << text;
  }
}

TEST(Words, TrimsAndLowersAndCompares) {
  EXPECT_EQ(trimmed(" \ta b\r"), "a b");
  EXPECT_EQ(trimmed(" \t"), "");
  EXPECT_EQ(lower_case("GPT-2"), "gpt-2");
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("hiddne", "hidden"), 1);  // a swap
  EXPECT_EQ(edit_distance("", "abc"), 3);
}

}  // namespace
}  // namespace trireme
