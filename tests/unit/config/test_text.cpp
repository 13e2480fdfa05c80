// Numbers, lengths, times, quoting and nearest words.
#include "config/text.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace trireme::config {
namespace {

TEST(TextNumbers, Integers) {
  EXPECT_EQ(parse_integer("1000"), 1000);
  EXPECT_EQ(parse_integer("-3"), -3);
  EXPECT_EQ(parse_integer("+7"), 7);
  EXPECT_EQ(parse_integer("2e9"), 2000000000);
  EXPECT_EQ(parse_integer("3.0"), 3);
  EXPECT_EQ(parse_integer("9223372036854775807"), 9223372036854775807);
  for (const char* text :
       {"", "1.5", "1e-3", "0x10", "1_000", "12a", "9223372036854775808", "1e300", "inf",
        "nan", "--1", "+-1", " 1"}) {
    EXPECT_FALSE(parse_integer(text)) << text;
  }
}

TEST(TextNumbers, ShortestRoundTrip) {
  EXPECT_EQ(number_text(3.0e-4), "0.0003");
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(1e-8), "1e-08");
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t bits = random();
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(parse_number(number_text(value)), value);
  }
}

TEST(TextLengths, Units) {
  const auto length = [](const char* text) { return *parse_length(text).value; };
  EXPECT_EQ(length("100").steps, 100);
  EXPECT_EQ(length("100 steps"), Length(100));
  EXPECT_EQ(length("1 step").amount, 1);
  EXPECT_EQ(length("51200 samples").unit, LengthUnit::samples);
  EXPECT_EQ(length("2e9 tokens").amount, 2000000000);
  EXPECT_EQ(length("2e9tokens").unit, LengthUnit::tokens);
  EXPECT_EQ(to_text(length("2e9 tokens")), "2000000000 tokens");
  EXPECT_EQ(parse_length("100 stepps").fix, "100 steps");
  EXPECT_EQ(parse_length("100 tok").fix, "100 tokens");
  EXPECT_NE(parse_length("5m").what.find("is a time"), std::string::npos);
  EXPECT_EQ(parse_length("10.6 steps").fix, "11 steps");
  for (const char* text : {"", "steps", "e", "1 2", "1..2", "- 3 steps", "3 epochs"}) {
    EXPECT_FALSE(parse_length(text).value) << text;
  }
}

TEST(TextTimes, Units) {
  EXPECT_EQ(*parse_time("90s").value, 90.0);
  EXPECT_EQ(*parse_time("5m").value, 300.0);
  EXPECT_EQ(*parse_time("2h").value, 7200.0);
  EXPECT_EQ(*parse_time("1h30m").value, 5400.0);
  EXPECT_EQ(*parse_time("0.5s").value, 0.5);
  EXPECT_EQ(parse_time("90").fix, "90s");
  EXPECT_EQ(parse_time("10min").fix, "10m");
  EXPECT_EQ(parse_time("2 hours").fix, "2h");
  for (const char* text :
       {"", "m", "5", "5x", "5m3", "1:30", "-5m", "1e3s", "100 steps"}) {
    EXPECT_FALSE(parse_time(text).value) << text;
  }
  for (const double seconds :
       {1.0, 59.0, 60.0, 90.0, 600.0, 7200.0, 86400.0, 0.25, 100.125}) {
    EXPECT_EQ(*parse_time(time_text(seconds)).value, seconds);
  }
  EXPECT_EQ(time_text(600.0), "10m");
  EXPECT_EQ(time_text(90.0), "90s");
}

TEST(TextYaml, QuotesWhatWouldReadAsSomethingElse) {
  EXPECT_EQ(yaml_text("runs/quick-start_1.h5"), "runs/quick-start_1.h5");
  for (const char* text : {"true", "None", "auto", "12", "1e5", "", "a b", "a: b", "-x",
                           "#x", "[x]", "null", "~", "a\"b"}) {
    EXPECT_EQ(yaml_text(text)[0], '"') << text;
  }
}

TEST(TextWords, Nearest) {
  EXPECT_EQ(nearest_word("cosin", {"cosine", "linear", "constant"}), "cosine");
  EXPECT_EQ(nearest_word("COSINE", {"cosine", "linear"}), "cosine");
  EXPECT_EQ(nearest_word("inverse-sqrt", {"inverse_sqrt", "linear"}), "inverse_sqrt");
  EXPECT_EQ(nearest_word("zebra", {"cosine", "linear"}), "");
}

}  // namespace
}  // namespace trireme::config
