# tests/style/direct_includes.py — the textual half of "every header stands alone".
#
# The other half compiles each header by itself (CMakeLists.txt). To stay affordable that is
# done with the precompiled header, Kokkos taking a second or more to parse; so what the
# precompiled header brings along (Kokkos, fmt, much of the standard library) must be asked
# for by name: a header that says std::vector includes <vector>, itself or through one of our
# own headers that it includes.
import re
from pathlib import Path

import source_tree
from layers import INCLUDE

# what is used -> headers of which one must be included
NEEDS = [
    (r"\b(?:Kokkos::|KOKKOS_\w+)",
     ["Kokkos_Core.hpp"]),
    (r"\bfmt::", ["fmt/format.h", "fmt/core.h"]),
    (r"\bTRIREME_REQUIRE(?:_INPUT)?\b", ["base/error.hpp"]),
    (r"\bstd::(?:string|to_string)\b", ["string"]),
    (r"\bstd::string_view\b", ["string_view"]),
    (r"\bstd::vector\b", ["vector"]),
    (r"\bstd::array\b", ["array"]),
    (r"\bstd::span\b", ["span"]),
    (r"\bstd::optional\b|\bstd::nullopt\b", ["optional"]),
    (r"\bstd::variant\b", ["variant"]),
    (r"\bstd::map\b", ["map"]),
    (r"\bstd::set\b", ["set"]),
    (r"\bstd::deque\b", ["deque"]),
    (r"\bstd::unordered_map\b", ["unordered_map"]),
    (r"\bstd::unordered_set\b", ["unordered_set"]),
    (r"\bstd::(?:unique_ptr|shared_ptr|make_unique|make_shared)\b", ["memory"]),
    (r"\bstd::function\b", ["functional"]),
    (r"\bstd::filesystem\b", ["filesystem"]),
    (r"\bstd::(?:chrono)\b", ["chrono"]),
    (r"\bstd::(?:mutex|lock_guard|unique_lock|scoped_lock)\b", ["mutex"]),
    (r"\bstd::condition_variable\b", ["condition_variable"]),
    (r"\bstd::(?:thread|jthread)\b", ["thread"]),
    (r"\bstd::atomic\b", ["atomic"]),
    (r"\bstd::exception_ptr\b", ["exception"]),
    (r"\bstd::u?int(?:8|16|32|64)_t\b", ["cstdint"]),
    (r"\bstd::(?:ostream|ostringstream)\b", ["ostream", "sstream", "iosfwd", "iostream"]),
]


def closure(root, name, seen):
    """Every header that `name` includes, through our own headers too."""
    if name in seen:
        return seen[name]
    seen[name] = set()
    path = Path(root) / name
    text = source_tree.text_of(root, name) if path.exists() else ""
    headers = set()
    for match in INCLUDE.finditer(source_tree.blank(text, literals=False)):
        headers.add(match.group(2))
        if match.group(1) == '"':
            headers |= closure(root, "src/" + match.group(2), seen)
    seen[name] = headers
    return headers


def check(root):
    found, seen = [], {}
    for name in source_tree.cpp_files(root, "src", "apps"):
        if not name.endswith(".hpp"):
            continue
        included = closure(root, name, seen)
        code = source_tree.blank(source_tree.text_of(root, name))
        for pattern, headers in NEEDS:
            match = re.search(pattern, code)
            if match and not included & set(headers) and name[len("src/"):] not in headers:
                found.append(f"{name}:{source_tree.line_of(code, match.start())}: uses "
                             f"{match.group(0)} without including <{headers[0]}>")
    return found
