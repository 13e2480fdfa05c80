// Integers of JSON: those that no T is are refused, not cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/json.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;
using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

Json parsed(const std::string& value) {
  return io::parse_json<Json>("{\"n\": " + value + "}");
}

TEST(JsonIntegers, AreExact) {
  EXPECT_EQ(io::json_value<std::int64_t>(parsed("-9223372036854775808"), "n"),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(io::json_value<std::uint64_t>(parsed("18446744073709551615"), "n"),
            ~std::uint64_t{0});
  EXPECT_EQ(io::json_value<int>(parsed("17"), "n"), 17);
}

TEST(JsonIntegers, OthersAreRefused) {
  for (const char* value :
       {"9223372036854775808", "1e300", "0.5", "\"7\"", "null", "[]"}) {
    EXPECT_THAT(message_of<io::JsonError>(
                    [&] { io::json_value<std::int64_t>(parsed(value), "n"); }),
                AllOf(HasSubstr("'n' is"),
                      HasSubstr("expected an integer from -9223372036854775808")))
        << value;
  }
  EXPECT_THROW(io::json_value<std::uint64_t>(parsed("-1"), "n"), io::JsonError);
  EXPECT_THROW(io::json_value<int>(parsed("2147483648"), "n"), io::JsonError);
  EXPECT_THAT(message_of<io::JsonError>([&] { io::json_value<int>(parsed("1"), "m"); }),
              HasSubstr("'m' is missing"));
}

}  // namespace
}  // namespace trireme
