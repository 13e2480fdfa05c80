// data/unicode_tables.hpp — the classes and mappings of characters that BERT's basic
// tokenizer goes by, as Hugging Face's `tokenizers` have them.
//
// Ascending lists of Unicode 14's, with the differences of `tokenizers` 0.23 to it, which
// tools/make_unicode_tables.py names: its marks and punctuation are those of Unicode 8,
// its decompositions those of Unicode 9, its lower case that of Unicode 17.
#ifndef TRIREME_DATA_UNICODE_TABLES_HPP_
#define TRIREME_DATA_UNICODE_TABLES_HPP_

#include <cstdint>
#include <span>

#include "data/code_point_ranges.hpp"

namespace trireme::data {

// Characters with their canonical combining class (0: what follows is not moved before).
struct MarkRange {
  char32_t first;
  char32_t last;
  std::uint8_t combining_class;
};

// What a character becomes; 0 where there are fewer than three.
struct Mapping {
  char32_t from;
  char32_t to[3];
};

// Categories Cc, Cf and Co, the tabulator and ends of lines among them.
extern const std::span<const CodePointRange> kControls;
// The property White_Space.
extern const std::span<const CodePointRange> kWhiteSpace;
// Categories P*, and the ASCII symbols that are none ("$+<=>^`|~").
extern const std::span<const CodePointRange> kPunctuation;

// Decomposed canonically (NFD) and stripped of nonspacing marks (Mn): characters of which
// nothing stays; marks that stay and are put in order by their class; and what stays of
// characters that do not stay as they are. Hangul syllables follow a rule and are in no
// list.
extern const std::span<const MarkRange> kStrippedMarks;
extern const std::span<const MarkRange> kReorderedMarks;
extern const std::span<const Mapping> kBases;

// Lower case of a character alone, whatever stands beside it.
extern const std::span<const Mapping> kLowerCase;

}  // namespace trireme::data

#endif  // TRIREME_DATA_UNICODE_TABLES_HPP_
