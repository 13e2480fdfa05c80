# tests/style/direct_includes.py — the textual half of "every header stands alone".
#
# The other half compiles each header by itself (CMakeLists.txt). What a header that it
# includes happens to include as well is not to be leaned on, so what is used is asked for by
# name: a header that says std::vector includes <vector>, itself or through one of our own
# headers that it includes.
#
# Of our own modules the same is asked of sources, too: a file that uses a name of another
# module includes a header of that module, itself or in its own header, so that the first
# lines of a file say what it is built from. `io::Path` needs a header of io. The names of
# base and tensor stand in the namespace trireme without the module's: of these every type
# that only one header declares counts (`Arena`, `index_t`).
import re
from pathlib import Path

import source_tree
from layers import INCLUDE, module_order

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


MODULES_WITHOUT_NAMESPACE = ("base", "tensor")
_TYPE = re.compile(r"\b(?:class|struct|enum|concept|using)\s+(?:class\s+)?(\w+)\s*"
                   r"(?:final\s*)?[:={]")


def own_headers(root, name):
    """The own headers that a file includes."""
    text = source_tree.blank(source_tree.text_of(root, name), literals=False)
    return {match.group(2) for match in INCLUDE.finditer(text) if match.group(1) == '"'}


def types_of(root):
    """Type in the namespace trireme itself -> the header of base or tensor that declares it;
    only where no other header of ours declares a type of that name."""
    declared = {}
    for name in source_tree.cpp_files(root, "src"):
        for line in source_tree.blank(source_tree.text_of(root, name)).split("\n"):
            match = None if line.startswith((" ", "#")) else _TYPE.search(line)
            if match and name.endswith(".hpp"):
                declared.setdefault(match.group(1), set()).add(name[len("src/"):])
    return {word: min(headers) for word, headers in declared.items() if len(headers) == 1 and
            min(headers).split("/")[0] in MODULES_WITHOUT_NAMESPACE}


def uses_of(code, module, order, types):
    """(module, what is used of it, where) for what a file uses of lower modules."""
    lower = order[:order.index(module)] if module in order else order
    for match in re.finditer(r"(?<![\w:])(?:trireme::)?(\w+)::(\w+)", code):
        if match.group(1) in lower:
            yield match.group(1), match.group(0), match.start()
    for match in re.finditer(r"(?<![\w.:>])(?:[A-Z]\w+|index_t)\b(?!\s*\()", code):
        header = types.get(match.group(0), "")
        if header.split("/")[0] in lower:
            yield header.split("/")[0], match.group(0), match.start()


def check_own(root):
    order, types = module_order(root), types_of(root)
    for name in source_tree.cpp_files(root, "src", "apps"):
        module = "apps" if name.startswith("apps/") else name.split("/")[1]
        included = own_headers(root, name)
        own = re.sub(r"\.cpp$", ".hpp", name)
        if name.endswith(".cpp") and (Path(root) / own).exists() and \
                re.sub("^src/", "", own) in included:
            included |= own_headers(root, own)
        there = {header.split("/")[0] for header in included} | {module}
        code = source_tree.blank(source_tree.text_of(root, name))
        for used, word, start in uses_of(code, module, order, types):
            if used in there:
                continue
            there.add(used)
            header = types.get(word, f"{used}/...")
            yield (f"{name}:{source_tree.line_of(code, start)}: uses {word} without including "
                   f'a header of {used} ("{header}")')


def check(root):
    found, seen = list(check_own(root)), {}
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
