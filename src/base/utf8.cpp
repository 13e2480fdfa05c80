// base/utf8.cpp — see utf8.hpp.
#include "base/utf8.hpp"

#include <cstring>

namespace trireme {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// What a lead byte promises: length of the sequence, and the range of its second byte
// (which excludes overlong forms, surrogates and values beyond U+10FFFF).
struct Lead {
  int length;  // 0: not a lead byte
  unsigned char second_low;
  unsigned char second_high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// The sequence at text[at]: its length when whole, else how many bytes of it are a valid
// beginning (at least 1: a stray byte counts as one).
struct Sequence {
  std::size_t length;
  bool whole;
  bool cut_by_end;
};

Sequence sequence_at(std::string_view text, std::size_t at) {
  const Lead lead = lead_of(static_cast<unsigned char>(text[at]));
  if (lead.length == 0) return {1, false, false};
  for (int i = 1; i < lead.length; ++i) {
    if (at + i >= text.size()) return {static_cast<std::size_t>(i), false, true};
    const auto byte = static_cast<unsigned char>(text[at + i]);
    const unsigned char low = i == 1 ? lead.second_low : 0x80;
    const unsigned char high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {static_cast<std::size_t>(i), false, false};
  }
  return {static_cast<std::size_t>(lead.length), true, false};
}

// First position at or after `at` that is not ASCII.
std::size_t skip_ascii(std::string_view text, std::size_t at) {
  while (at + 8 <= text.size()) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080ull) != 0) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (true) {
    at = skip_ascii(text, at);
    if (at == text.size()) return at;
    const Sequence sequence = sequence_at(text, at);
    if (!sequence.whole) return at;
    at += sequence.length;
  }
}

std::uint64_t append_repaired(std::string_view text, std::string& out) {
  std::uint64_t replaced = 0;
  while (true) {
    const std::size_t valid = valid_utf8_prefix(text);
    out.append(text.substr(0, valid));
    if (valid == text.size()) return replaced;
    out.append(kReplacement);
    ++replaced;
    text.remove_prefix(valid + sequence_at(text, valid).length);
  }
}

std::string_view valid_utf8(std::string_view text, std::string& repaired,
                            std::uint64_t& replaced) {
  if (valid_utf8_prefix(text) == text.size()) return text;
  repaired.clear();
  replaced += append_repaired(text, repaired);
  return repaired;
}

std::size_t unfinished_suffix(std::string_view text) {
  const std::size_t reach = text.size() < 3 ? text.size() : 3;
  for (std::size_t back = 1; back <= reach; ++back) {
    const std::size_t at = text.size() - back;
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;
    const Sequence sequence = sequence_at(text, at);
    return sequence.cut_by_end && sequence.length == back ? back : 0;
  }
  return 0;
}

CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) {
    return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  }
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
              (byte(3) & 0x3F),
          4};
}

void append_utf8(char32_t c, std::string& out) {
  const auto tail = [&](int shift) {
    out.push_back(static_cast<char>(0x80 | ((c >> shift) & 0x3F)));
  };
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (c >> 6)));
    tail(0);
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (c >> 12)));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | (c >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace trireme
