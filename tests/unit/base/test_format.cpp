// Numbers as people read them: every unit, the roundings between units, and what is not
// known.
#include "base/format.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

namespace trireme {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Format, Durations) {
  EXPECT_EQ(format_duration(0.0), "0ms");
  EXPECT_EQ(format_duration(1e-7), "0ms");
  EXPECT_EQ(format_duration(0.00031), "310us");
  EXPECT_EQ(format_duration(0.0009996), "1ms");
  EXPECT_EQ(format_duration(0.0124), "12ms");
  EXPECT_EQ(format_duration(0.9996), "1.0s");
  EXPECT_EQ(format_duration(4.24), "4.2s");
  EXPECT_EQ(format_duration(9.96), "10s");
  EXPECT_EQ(format_duration(41.4), "41s");
  EXPECT_EQ(format_duration(59.6), "1m00s");
  EXPECT_EQ(format_duration(65.0), "1m05s");
  EXPECT_EQ(format_duration(3599.4), "59m59s");
  EXPECT_EQ(format_duration(3599.6), "1h00m");
  EXPECT_EQ(format_duration(2 * 3600 + 3 * 60 + 29), "2h03m");
  EXPECT_EQ(format_duration(86399), "1d00h");
  EXPECT_EQ(format_duration(3 * 86400 + 4 * 3600), "3d04h");
  EXPECT_EQ(format_duration(1000.0 * 86400), "1000d");
  EXPECT_EQ(format_duration(1e300), "?");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(kNan), "?");
  EXPECT_EQ(format_duration(kInfinity), "?");
}

TEST(Format, Counts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(999.6), "1.00k");
  EXPECT_EQ(format_count(1000), "1.00k");
  EXPECT_EQ(format_count(12345), "12.3k");
  EXPECT_EQ(format_count(99960), "100k");
  EXPECT_EQ(format_count(999499), "999k");
  EXPECT_EQ(format_count(999500), "1.00M");
  EXPECT_EQ(format_count(12.3e6), "12.3M");
  EXPECT_EQ(format_count(1.24e9), "1.24B");
  EXPECT_EQ(format_count(2e12), "2.00T");
  EXPECT_EQ(format_count(5e16), "50.0P");
  EXPECT_EQ(format_count(5e22), "50000E");
  EXPECT_EQ(format_count(-1500), "-1.50k");
  EXPECT_EQ(format_count(kNan), "?");
  EXPECT_EQ(format_count(1, "token"), "1 token");
  EXPECT_EQ(format_count(0, "token"), "0 tokens");
  EXPECT_EQ(format_count(1234, "token"), "1.23k tokens");
}

TEST(Format, BytesRatesAndShares) {
  EXPECT_EQ(format_bytes(1288490188.8), "1.2 GiB");
  EXPECT_EQ(format_bytes(-1), "?");
  EXPECT_EQ(format_rate(12345, "tokens"), "12.3k tokens/s");
  EXPECT_EQ(format_rate(0.25, "steps"), "0.25 steps/s");
  EXPECT_EQ(format_rate(4, "steps"), "4 steps/s");
  EXPECT_EQ(format_rate(99.97, "steps"), "100 steps/s");
  EXPECT_EQ(format_rate(kNan, "tokens"), "? tokens/s");
  EXPECT_EQ(format_flops(0.271), "271 GFLOP/s");
  EXPECT_EQ(format_flops(0.9999), "1.00 TFLOP/s");
  EXPECT_EQ(format_flops(312), "312 TFLOP/s");
  EXPECT_EQ(format_flops(1250), "1.25 PFLOP/s");
  EXPECT_EQ(format_flops(kNan), "? FLOP/s");
  EXPECT_EQ(format_percent(0.614), "61%");
  EXPECT_EQ(format_percent(0.041), "4.1%");
  EXPECT_EQ(format_percent(0.09951), "10%");
  EXPECT_EQ(format_percent(1.0), "100%");
  EXPECT_EQ(format_percent(0.0), "0.0%");
  EXPECT_EQ(format_percent(kNan), "?%");
}

TEST(Format, HumanBytes) {
  EXPECT_EQ(human_bytes(0), "0 bytes");
  EXPECT_EQ(human_bytes(1023), "1023 bytes");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(std::uint64_t{3} << 40), "3.0 TiB");
}

TEST(Format, ExactNumbersReadBackTheSame) {
  EXPECT_EQ(format_exact(0.1), "0.1");
  EXPECT_EQ(format_exact(3e-4), "3e-04");
  EXPECT_EQ(format_exact(-0.0), "-0");
  EXPECT_EQ(format_exact(1e23), "1e+23");
  EXPECT_EQ(format_exact(kNan), "nan");
  std::mt19937_64 bits(7);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t word = bits();
    double value;
    std::memcpy(&value, &word, sizeof value);
    if (!std::isfinite(value)) continue;
    const std::string text = format_exact(value);
    const double back = std::strtod(text.c_str(), nullptr);
    EXPECT_EQ(std::memcmp(&back, &value, sizeof value), 0) << text;
    EXPECT_LE(text.size(), 24u);
  }
}

TEST(Format, WidthCountsCharactersNotBytes) {
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("━╸é"), 3);
  EXPECT_EQ(display_width("\x1b[36mab\x1b[0m"), 2);
  EXPECT_EQ(display_width("\x1b[K"), 0);
  EXPECT_EQ(display_width("a\x1b["), 1);
}

TEST(Format, TextBecomesPlain) {
  EXPECT_EQ(plain_text(""), "");
  EXPECT_EQ(plain_text("one\n\ttwo ━é"), "one\n\ttwo ━é");
  EXPECT_EQ(plain_text("\x1b[1;36mab\x1b[0mc\x1b[K"), "abc");
  EXPECT_EQ(plain_text("a\r\nb\rc"), "a\nb\ufffdc");
  EXPECT_EQ(plain_text("\x1b]0;title\x07"), "\ufffd]0;title\ufffd");
  EXPECT_EQ(plain_text("\x7f|\xc2\x9b|\xff"), "\ufffd|\ufffd|\ufffd");
  EXPECT_EQ(plain_text("a\x1b["), "a");
}

TEST(Format, CommandsGoOnBehindABackslash) {
  const std::vector<std::string> parts = {"trireme train", "deck.yaml", "--resume auto"};
  EXPECT_EQ(wrap_command(parts, 80, 2), "trireme train deck.yaml --resume auto");
  EXPECT_EQ(wrap_command(parts, 39, 2), "trireme train deck.yaml --resume auto");
  EXPECT_EQ(wrap_command(parts, 38, 2),
            "trireme train deck.yaml \\\n      --resume auto");
  EXPECT_EQ(wrap_command(parts, 26, 2),
            "trireme train \\\n      deck.yaml \\\n"
            "      --resume auto");
  EXPECT_EQ(wrap_command(parts, 27, 2),
            "trireme train deck.yaml \\\n      --resume auto");
  EXPECT_EQ(wrap_command({"much-too-long"}, 5, 0), "much-too-long");
}

TEST(Format, ListsAreBrokenBetweenTheirParts) {
  EXPECT_EQ(wrap_list({"one", "two 2", "three"}, 80, 4), "one, two 2, three");
  EXPECT_EQ(wrap_list({"one", "two 2", "three"}, 15, 4), "one, two 2,\n    three");
  EXPECT_EQ(wrap_list({"one", "two 2", "three"}, 13, 4), "one,\n    two 2,\n    three");
  EXPECT_EQ(wrap_list({"one", "two 2", "three"}, 14, 4), "one,\n    two 2,\n    three");
  EXPECT_EQ(wrap_list({"much too long for it", "x"}, 5, 2), "much too long for it,\n  x");
  EXPECT_EQ(wrap_list({}, 5, 2), "");
}

TEST(Format, LinesAreBrokenBetweenTheirWords) {
  EXPECT_EQ(wrap_lines(""), "");
  EXPECT_EQ(wrap_lines("one  two\n\nthree\n", 8, 2), "one  two\n\nthree\n");
  EXPECT_EQ(wrap_lines("one two three\n  four five", 8, 2),
            "one\n  two\n  three\n  four\n    five");
  EXPECT_EQ(wrap_lines("much-too-long x", 5, 1), "much-too-long\n x");
  // A number keeps its unit; what only looks like one does not.
  EXPECT_EQ(wrap_words("a step of 1.29 s, and more", 14, 0),
            "a step of\n1.29 s, and\nmore");
  EXPECT_EQ(wrap_words("of rank 5 as 12 % are", 9, 0), "of rank 5\nas 12 %\nare");
}

}  // namespace
}  // namespace trireme
