// base/utf8.hpp — validity of UTF-8 (RFC 3629), and the repair of what is not.
//
// An invalid sequence becomes one U+FFFD per maximal subpart (Unicode 15, section 3.9),
// as in Python's errors="replace" and Rust's from_utf8_lossy, so that token ids agree
// with tools written in those.
#ifndef TRIREME_BASE_UTF8_HPP_
#define TRIREME_BASE_UTF8_HPP_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

// Bytes of `text` before its first invalid sequence; text.size() when all is valid.
std::size_t valid_utf8_prefix(std::string_view text);

// Appends `text` to `out` with invalid sequences replaced; returns how many were.
std::uint64_t append_repaired(std::string_view text, std::string& out);

// `text` where it is valid; else its repair, which is kept in `repaired`. Adds to
// `replaced` how many sequences that took.
std::string_view valid_utf8(std::string_view text, std::string& repaired,
                            std::uint64_t& replaced);

// Length (0 to 3) of an unfinished but so far valid sequence at the end of `text`: what a
// reader of pieces keeps for the next piece.
std::size_t unfinished_suffix(std::string_view text);

// The code point that starts at text[at] (valid UTF-8), and its length in bytes.
struct CodePoint {
  char32_t value;
  int length;
};
CodePoint code_point_at(std::string_view text, std::size_t at);
void append_utf8(char32_t code_point, std::string& out);

}  // namespace trireme

#endif  // TRIREME_BASE_UTF8_HPP_
