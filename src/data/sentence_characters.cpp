// data/sentence_characters.cpp — see sentence_characters.hpp.
//
// Ranges, and not a table of all of Unicode: a splitter looks at one or two characters
// beside each mark. What it needs is whether a small letter follows, and in the scripts
// that have case small letters alternate with capitals or lie in blocks of their own.
#include "data/sentence_characters.hpp"

#include <algorithm>
#include <cstdint>

#include "base/utf8.hpp"
#include "data/code_point_ranges.hpp"
#include "data/unicode_tables.hpp"

namespace trireme::data {
namespace {

std::size_t length_by_lead(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xE0) return 2;
  return lead < 0xF0 ? 3 : 4;
}

// Characters above ASCII that are no letters, digits or accents.
constexpr CodePointRange kNoLetters[] = {
    {0x80, 0xA9},     {0xAB, 0xB4},       {0xB6, 0xB9},       {0xBB, 0xBF},
    {0xD7, 0xD7},     {0xF7, 0xF7},       {0x2B9, 0x2DF},     {0x37E, 0x37E},
    {0x387, 0x387},   {0x55A, 0x55F},     {0x589, 0x58F},     {0x5BE, 0x5BE},
    {0x60C, 0x60D},   {0x61B, 0x61F},     {0x66A, 0x66D},     {0x6D4, 0x6D4},
    {0x964, 0x965},   {0x1680, 0x1680},   {0x2000, 0x2070},   {0x2074, 0x207E},
    {0x2080, 0x208E}, {0x20A0, 0x20F0},   {0x2190, 0x2BFF},   {0x2E00, 0x2E7F},
    {0x3000, 0x3004}, {0x3008, 0x3020},   {0x3030, 0x3030},   {0x303D, 0x303F},
    {0x30FB, 0x30FB}, {0xD800, 0xF8FF},   {0xFD3E, 0xFD3F},   {0xFE00, 0xFE6F},
    {0xFEFF, 0xFF0F}, {0xFF1A, 0xFF20},   {0xFF3B, 0xFF40},   {0xFF5B, 0xFF65},
    {0xFFE0, 0xFFFF}, {0x1F000, 0x1FBEF}, {0xE0000, 0x10FFFF}};

constexpr CodePointRange kCjkLetters[] = {
    {0x3005, 0x3007}, {0x3040, 0x30FA},   {0x30FC, 0x30FF},  {0x3100, 0x312F},
    {0x31F0, 0x31FF}, {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},  {0xF900, 0xFAFF},
    {0xFF66, 0xFF9D}, {0x1B000, 0x1B16F}, {0x20000, 0x3FFFF}};

bool is_small_latin(char32_t c) {
  if (c < 0x100) return c >= 0xDF || c == 0xAA || c == 0xB5 || c == 0xBA;
  const bool odd = c % 2 != 0;
  if (c < 0x180) {
    const bool shifted = (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E);
    return c == 0x138 || c == 0x149 || c == 0x17F || (shifted != odd && c != 0x178);
  }
  if (c < 0x250) {
    if (c >= 0x1CD && c <= 0x1DC) return !odd;
    return c >= 0x1DD && odd && c < 0x234;
  }
  return true;  // phonetic letters
}

bool is_small(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  if (c < 0x2B0) return is_small_latin(c);
  if (c < 0x370) return true;  // modifiers and accents
  if (c < 0x400) return c == 0x390 || (c >= 0x3AC && c <= 0x3CE);
  if (c < 0x460) return c >= 0x430;
  if (c >= 0x4C1 && c <= 0x4CF) return c % 2 == 0 || c == 0x4CF;
  if (c < 0x530) return c % 2 != 0;
  if (c >= 0x1E96 && c <= 0x1E9D) return true;
  return c >= 0x1E00 && c < 0x1F00 && c % 2 != 0;
}

}  // namespace

Character character_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {0, 0};
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = length_by_lead(lead);
  const std::string_view sequence = text.substr(at, length);
  if (sequence.size() < length || valid_utf8_prefix(sequence) < length) {
    return {U'\uFFFD', 1};
  }
  return {code_point_at(text, at).value, length};
}

Character character_before(std::string_view text, std::size_t at) {
  if (at == 0) return {0, 0};
  for (std::size_t length = 1; length <= std::min<std::size_t>(at, 4); ++length) {
    const Character found = character_at(text, at - length);
    if (found.length == length && (length > 1 || found.value < 0x80)) return found;
  }
  return {U'\uFFFD', 1};
}

LetterKind letter_kind(char32_t character) {
  if (character < 0x80) {
    if (character >= 'a' && character <= 'z') return LetterKind::small;
    if (character >= 'A' && character <= 'Z') return LetterKind::capital;
    return character >= '0' && character <= '9' ? LetterKind::digit : LetterKind::none;
  }
  if (character >= 0xFF10 && character <= 0xFF19) return LetterKind::digit;
  if (is_in(kNoLetters, character)) return LetterKind::none;
  return is_small(character) ? LetterKind::small : LetterKind::capital;
}

bool is_cjk_letter(char32_t character) {
  return character >= 0x3005 && is_in(kCjkLetters, character);
}

MarkAt mark_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {Mark::none, 0};
  if (text[at] == '.') return {Mark::full, 1};
  if (text[at] == '!' || text[at] == '?') return {Mark::strong, 1};
  if (at + 3 > text.size()) return {Mark::none, 0};
  const auto byte = [text, at](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + i]));
  };
  switch (byte(0) << 16 | byte(1) << 8 | byte(2)) {
    case 0xE280A6:  // …
      return {Mark::ellipsis, 3};
    case 0xE280BC:  // ‼
    case 0xE28187:  // ⁇
    case 0xE28188:  // ⁈
    case 0xE28189:  // ⁉
      return {Mark::strong, 3};
    case 0xE38082:  // 。
    case 0xEFBC81:  // ！
    case 0xEFBC9F:  // ？
    case 0xEFBDA1:  // ｡
      return {Mark::wide, 3};
    default:
      return {Mark::none, 0};
  }
}

bool is_closing(char32_t character) {
  switch (character) {
    case U'"':
    case U'\'':
    case U')':
    case U']':
    case U'}':
    case U'*':
    case U'_':
    case U'”':
    case U'’':
    case U'»':
    case U'›':
    case U'」':
    case U'』':
    case U'）':
    case U'】':
    case U'》':
    case U'〉':
    case U'］':
    case U'｝':
    case U'〕':
    case U'＂':
    case U'＇':
      return true;
    default:
      return false;
  }
}

bool is_low_closing(char32_t character) {
  switch (character) {
    case U'“':
    case U'‘':
    case U'«':
    case U'‹':
      return true;
    default:
      return false;
  }
}

bool is_opening(char32_t character) {
  switch (character) {
    case U'"':
    case U'\'':
    case U'(':
    case U'[':
    case U'{':
    case U'_':
    case U'¿':
    case U'¡':
    case U'“':
    case U'‘':
    case U'„':
    case U'‚':
    case U'‹':
    case U'›':
    case U'»':
    case U'”':
    case U'’':
    case U'…':
    case U'「':
    case U'『':
    case U'（':
    case U'【':
    case U'《':
    case U'〈':
    case U'［':
    case U'｛':
    case U'〔':
    case U'＂':
    case U'＇':
      return true;
    default:
      return is_opening_with_blank(character);
  }
}

bool is_opening_with_blank(char32_t character) {
  switch (character) {
    case U'-':
    case U'–':
    case U'—':
    case U'―':
    case U'*':
    case U'•':
    case U'·':
    case U'#':
    case U'>':
    case U'«':
      return true;
    default:
      return false;
  }
}

Blanks blanks_at(std::string_view text, std::size_t at) {
  Blanks blanks{at, 0, false};
  for (;;) {
    while (blanks.end < text.size() && text[blanks.end] == ' ') {
      ++blanks.end;
      blanks.can_break = true;
    }
    const Character next = character_at(text, blanks.end);
    if (next.value > ' ' && next.value < 0x80) return blanks;
    const char32_t c = next.value;
    if (!is_in(kWhiteSpace, c)) return blanks;
    blanks.end += next.length;
    blanks.can_break |= c != 0xA0 && c != 0x202F;
    const bool is_line_end =
        c == '\n' || (c == '\r' && character_at(text, blanks.end).value != '\n');
    if (is_line_end) ++blanks.line_ends;
  }
}

}  // namespace trireme::data
