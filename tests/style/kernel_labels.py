# tests/style/kernel_labels.py — every kernel can be told from every other in a profile: a
# launch, or a launch_* of a module's own, is given as second argument a literal
# "trireme::<module>::<function>" or "...[variant]" that stands once in src/, alone or in
# braces before its cost. Where a choice of launches is made elsewhere, `kernels.name` is
# given, and the literals are what a `...Kernels kernels` is made of.
import re

import source_tree

LAUNCH = re.compile(r"(?<!void )\blaunch(?:_[a-z]+)?\s*\(")
DIRECT = re.compile(r"\bKokkos\s*::\s*parallel_(?:for|reduce|scan)\s*\(")
LISTED = re.compile(r"\w*Kernels kernels\s*\{")
LABEL = re.compile(r'\s*("(?:[^"\\]|\\.)*"\s*)+')
WITH_COST = re.compile(r'\s*\{(?P<label>\s*("(?:[^"\\]|\\.)*"\s*)+)(,.*)?\}\s*', re.DOTALL)
FORM = re.compile(r"trireme::(\w+)::[a-z0-9_]+(\[[a-z0-9_, ]+\])?")
# Where the launches themselves are written.
DEFINITIONS = {"src/base/exec.hpp"}
# Loops inside a kernel have no label of their own.
NESTED = re.compile(r"\b(?:Team|Thread|TeamVector)(?:Thread|Vector|)Range\b")


def arguments(text, start):
    """The top-level arguments of the call whose '(' is at text[start - 1]."""
    depth, begin, index, result = 0, start, start, []
    while index < len(text):
        char = text[index]
        if char == '"':
            index += 1
            while index < len(text) and text[index] != '"':
                index += 2 if text[index] == "\\" else 1
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            if depth == 0:
                return result + [text[begin:index]]
            depth -= 1
        elif char == "," and depth == 0:
            result.append(text[begin:index])
            begin = index + 1
        index += 1
    return result


def check(root):
    found, seen = [], {}
    for name in source_tree.cpp_files(root, "src"):
        if name in DEFINITIONS:
            continue
        text = source_tree.blank(source_tree.text_of(root, name), literals=False)
        module = name.split("/")[1]
        calls = [(match, 1) for match in LAUNCH.finditer(text)]
        calls += [(match, 0) for match in DIRECT.finditer(text)]
        for match in LISTED.finditer(text):
            calls += [(match, i) for i in range(len(arguments(text, match.end())))]
        for match, position in calls:
            where = f"{name}:{source_tree.line_of(text, match.start())}"
            given = arguments(text, match.end())
            if match.re is DIRECT and NESTED.search(given[0]):
                continue
            is_listed = match.re is LISTED
            if not is_listed and position == 1 and len(given) > 1 and re.fullmatch(
                    r"kernel|kernels\.\w+", given[1].strip()):
                continue  # a launch_* of the module's own, which is given the literal
            argument = given[position] if len(given) > position else ""
            if (position == 1 or is_listed) and (braced := WITH_COST.fullmatch(argument)):
                argument = braced["label"]
            if not LABEL.fullmatch(argument):
                found.append(f"{where}: this launch has no literal label as argument "
                             f"{position + 1}")
                continue
            label = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', argument))
            form = FORM.fullmatch(label)
            if not form:
                found.append(f'{where}: label "{label}" is not of the form '
                             f'"trireme::{module}::function" or "...[variant]"')
            elif form.group(1) != module:
                found.append(f'{where}: label "{label}" names another module than {module}')
            if label in seen:
                found.append(f'{where}: label "{label}" is also at {seen[label]}')
            seen.setdefault(label, where)
    return found
