#!/usr/bin/env python3
"""Makes src/data/unicode_tables.cpp: what BERT's basic tokenizer knows of characters.

    python3 tools/make_unicode_tables.py [FILE]

Classes, decompositions and lower case are those of Python's unicodedata, and where Hugging
Face's `tokenizers` does otherwise, as it does: vocabularies and ids in use are of theirs.
`tokenizers` 0.23 has the categories of Unicode 8, the decompositions of Unicode 9 and the
lower case of Unicode 17, which tells on the characters listed below.
tests/parity/make_basic_tokenizer_fixtures.py asks `tokenizers` itself about all characters.
"""
import pathlib
import sys
import unicodedata

UNICODE = "14.0.0"  # the version that the differences below are to: that of Python 3.11
OUTPUT = pathlib.Path(__file__).resolve().parents[1] / "src/data/unicode_tables.cpp"

# Format characters that Unicode 8 does not have: kept as unassigned ones are.
LATER_FORMATS = "890-891 8E2 110CD 13430-13438"
# Nonspacing marks that Unicode 8 does not have, or has in another category: not stripped.
LATER_MARKS = """
7FD 898-89F 8CA-8E1 9FE AFA-AFF B55 C04 C3C D00 D3B-D3C D81 EBA 180F 1885-1886 1ABF-1ACE
1DF6-1DFB A82C A8C5 A8FF A9BD 10D24-10D27 10EAB-10EAC 10F46-10F50 10F82-10F85 11070
11073-11074 110C2 111C9 111CF 1123E 1133B 11438-1143F 11442-11444 11446 1145E 1182F-11837
11839-1183A 1193B-1193C 1193E 11943 119D4-119D7 119DA-119DB 119E0 11A01-11A0A 11A33-11A38
11A3B-11A3E 11A47 11A51-11A56 11A59-11A5B 11A8A-11A96 11A98-11A99 11C30-11C36 11C38-11C3D
11C3F 11C92-11CA7 11CAA-11CB0 11CB2-11CB3 11CB5-11CB6 11D31-11D36 11D3A 11D3C-11D3D
11D3F-11D45 11D47 11D90-11D91 11D95 11D97 11EF3-11EF4 16F4F 16FE4 1CF00-1CF2D 1CF30-1CF46
1E000-1E006 1E008-1E018 1E01B-1E021 1E023-1E024 1E026-1E02A 1E130-1E136 1E2AE 1E2EC-1E2EF
1E944-1E94A"""
FORMER_MARKS = "1734"  # a spacing mark since Unicode 14
LATER_PUNCTUATION = """
61D 9FD A76 C77 C84 1B7D-1B7E 2E43-2E4F 2E52-2E5D 10EAD 10F55-10F59 10F86-10F89 1144B-1144F
1145A-1145B 1145D 11660-1166C 116B9 1183B 11944-11946 119E2 11A3F-11A46 11A9A-11A9C
11A9E-11AA2 11C41-11C45 11C70-11C71 11EF7-11EF8 11FFF 12FF1-12FF2 16E97-16E9A 16FE2
1E95E-1E95F"""
FORMER_PUNCTUATION = "166D 111C9"
# Marks, not stripped, whose combining class Unicode 9 does not have: they stay in place.
LATER_CLASSES = """
7FD 898-89F 8CA-8D3 9FE C3C 1715 D3B-D3C EBA 1ABF-1ACE 1DF6-1DFA A82C 10D24-10D27
10EAB-10EAC 10F46-10F50 10F82-10F85 11070 1133B 1145E 11839-1183A 1193D-1193E 11943 119E0
11A34 11A47 11A99 11D42 11D44-11D45 11D97 16FF0-16FF1 1E130-1E136 1E2AE 1E2EC-1E2EF"""
LATER_DECOMPOSITIONS = "11938"
# Lower case since Unicode 15: ranges of capitals, and how far their small letters are.
LATER_LOWER_CASE = (("1C89", 1), ("A7CB", 0x264 - 0xA7CB), ("A7CC", 1), ("A7CE", 1),
                    ("A7D2", 1), ("A7D4", 1), ("A7DA", 1), ("A7DC", 0x19B - 0xA7DC),
                    ("10D50-10D65", 0x20), ("16EA0-16EB8", 0x1B))

HANGUL = range(0xAC00, 0xAC00 + 11172)  # decomposed by a rule, not by a table
ALL = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def codes(ranges):
    found = set()
    for part in ranges.split():
        first, _, last = part.partition("-")
        found |= set(range(int(first, 16), int(last or first, 16) + 1))
    return found


def of_categories(*categories):
    return {code for code in ALL if unicodedata.category(chr(code)) in categories}


def white_space():
    """White_Space: str.isspace() but for the four separators, which it adds."""
    return {code for code in ALL if chr(code).isspace()} - set(range(0x1C, 0x20))


def punctuation():
    symbols = {code for code in range(0x21, 0x7F) if not chr(code).isalnum()}
    named = of_categories("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po")
    return named - codes(LATER_PUNCTUATION) | codes(FORMER_PUNCTUATION) | symbols


WITHOUT_CLASS, WITHOUT_PARTS = codes(LATER_CLASSES), codes(LATER_DECOMPOSITIONS)


def combining_class(code):
    return 0 if code in WITHOUT_CLASS else unicodedata.combining(chr(code))


def decomposed(code):
    if code in WITHOUT_PARTS:
        return [code]
    return [ord(part) for part in unicodedata.normalize("NFD", chr(code))]


def stripped():
    """{code: combining class} of characters of which nothing stays (a class of 0 where a part
    has it), and {code: parts} of those of which something else than themselves stays."""
    marks = of_categories("Mn") - codes(LATER_MARKS) | codes(FORMER_MARKS)
    removed, bases = {}, {}
    for code in ALL:
        if code in HANGUL:
            continue
        parts = decomposed(code)
        stay = [part for part in parts if part not in marks]
        if not stay:
            removed[code] = min(combining_class(part) for part in parts)
        elif stay != [code]:
            bases[code] = stay
    return removed, bases


def lower_case():
    mapped = {code: [ord(small) for small in chr(code).lower()] for code in ALL
              if chr(code).lower() != chr(code)}
    for ranges, distance in LATER_LOWER_CASE:
        mapped.update({code: [code + distance] for code in codes(ranges)})
    return mapped


def joined(values):
    """{code: value} as (first, last, value) of runs with one value."""
    runs = []
    for code in sorted(values):
        if runs and runs[-1][1] == code - 1 and runs[-1][2] == values[code]:
            runs[-1][1] = code
        else:
            runs.append([code, code, values[code]])
    return runs


def table(kind, name, entries):
    lines, line = [], " "
    for entry in entries:
        if len(line) + len(entry) + 2 > 88:
            lines.append(line)
            line = " "
        line += f" {entry},"
    body = "\n".join(lines + [line])
    return (f"constexpr {kind} {name}Table[] = {{\n{body}\n}};\n"
            f"const std::span<const {kind}> {name} = {name}Table;\n")


def ranges_table(name, members):
    return table("CodePointRange", name, (f"{{0x{first:X}, 0x{last:X}}}" for first, last, _ in
                                          joined(dict.fromkeys(members, 0))))


def marks_table(name, classes):
    return table("MarkRange", name, (f"{{0x{first:X}, 0x{last:X}, {value}}}"
                                     for first, last, value in joined(classes)))


def mappings_table(name, mappings):
    return table("Mapping", name, (
        f"{{0x{code:X}, {{" + ", ".join(f"0x{part:X}" for part in parts) + "}}"
        for code, parts in sorted(mappings.items())))


HEADER = f"""// data/unicode_tables.cpp — see unicode_tables.hpp.
//
// Made by tools/make_unicode_tables.py from Unicode {UNICODE}, with the differences that
// Hugging Face's `tokenizers` 0.23 has to it: change that program and not this file. The
// tables are lists, short to read and to compare; what looks characters up makes of them
// what is fast for it. Nothing here depends on how a tokenizer is set up.
#include "data/unicode_tables.hpp"

namespace trireme::data {{

// clang-format off
"""


def contents():
    controls = of_categories("Cc", "Cf", "Co") - codes(LATER_FORMATS)
    removed, bases = stripped()
    spacing = {code: combining_class(code) for code in ALL
               if code not in removed and combining_class(code) != 0}
    small = lower_case()
    assert max(map(len, [*bases.values(), *small.values()])) <= 3, "Mapping::to is too short"
    return HEADER + "\n".join([
        ranges_table("kControls", controls), ranges_table("kWhiteSpace", white_space()),
        ranges_table("kPunctuation", punctuation()), marks_table("kStrippedMarks", removed),
        marks_table("kReorderedMarks", spacing), mappings_table("kBases", bases),
        mappings_table("kLowerCase", small),
    ]) + "// clang-format on\n\n}  // namespace trireme::data\n"


def main():
    if unicodedata.unidata_version != UNICODE:
        sys.exit(f"This Python has Unicode {unicodedata.unidata_version}; the differences "
                 f"listed here are to {UNICODE}: take Python 3.11")
    output = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    output.write_text(contents(), encoding="utf-8")


if __name__ == "__main__":
    main()
