// base/format.hpp — numbers as people read them: durations, counts, rates, shares; and
// as programs read them: the shortest text that gives the same double back.
//
// Whole numbers of things are those of base/plural.hpp.
// A value that is not finite is shown as "?": it stands for "not known (yet)".
#ifndef TRIREME_BASE_FORMAT_HPP_
#define TRIREME_BASE_FORMAT_HPP_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/plural.hpp"

namespace trireme {

// The width that what is printed keeps to.
inline constexpr int kScreenColumns = 80;

// Two units at most: "310us", "12ms", "4.2s", "41s", "1m05s", "2h03m", "3d04h".
std::string format_duration(double seconds);
// Three digits at least: "999", "12.3k", "12.3M", "1.24B", "2.00T".
std::string format_count(double count);
// A rounded number with what is counted: "12.3k tokens", "1 token".
std::string format_count(double count, std::string_view unit);
// "12.0 MiB"
std::string human_bytes(std::uint64_t bytes);
// Bytes as human_bytes() has them, of a number that need not be whole.
std::string format_bytes(double bytes);
// format_count and a unit per second: "12.3k tokens/s"; below 100 with two digits after
// the point where they say something ("0.25 steps/s").
std::string format_rate(double per_second, std::string_view unit);
// Floating-point operations per second, given in units of 10^12: "271 GFLOP/s".
std::string format_flops(double tera_per_second);
// "61%", "4.1%", "0.3%" of a fraction.
std::string format_percent(double fraction);
// Shortest round-trip form: reading it gives the same bits. "nan", "inf" where not
// finite.
std::string format_exact(double value);

// One word of a command line, quoted where a shell needs that.
std::string shell_word(std::string_view word);
// "trireme train deck.yaml \\\n    --resume auto": the parts of a command (an option with
// its value is one) for a person to copy: in lines of at most `columns`, as far as parts
// allow, the first of which begins `indent` columns into its line.
std::string wrap_command(const std::vector<std::string>& parts, int columns, int indent);

// For a file or a terminal, whatever the text comes from (a model writes any bytes):
// UTF-8 without escape sequences. Other control characters, but for newlines and tabs,
// are shown as U+FFFD, and so is what is no UTF-8.
std::string plain_text(std::string_view text);

// Columns that the text takes on a terminal: code points, without escape sequences.
int display_width(std::string_view text);
// "one, two,\n  three": a list that begins `indent` columns into a line and is broken
// between its parts only, where the line would be longer than `columns`.
std::string wrap_list(const std::vector<std::string>& parts, int columns, int indent);
// Breaks a text between its words: "one two\n  three"; a number keeps its unit.
std::string wrap_words(std::string_view text, int columns, int indent);
// Each line of a text that is longer than `columns`, between its words; what follows
// stands `indent` columns further in than the line began.
std::string wrap_lines(std::string_view text, int columns = kScreenColumns,
                       int indent = 2);

}  // namespace trireme

#endif  // TRIREME_BASE_FORMAT_HPP_
