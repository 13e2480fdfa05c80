# tests/style/function_length.py — no function is longer than LONGEST lines, from its name to
# its closing brace, in src/, apps/, perf/ and the headers that tests share; a test itself
# may be a long list of what it expects. Called as a program, function_length.py prints
# median, p90 and maximum, and the longest functions.
#
# There is no parser of C++ among the tools that a build needs, and none is needed: what
# encloses a body can be told from the text before its brace. Walking through a file, every {
# is a scope of names (namespace, class, extern "C"), a function, or something inside a
# function, where nothing further has to be told apart: lambdas, loops and initialisers belong
# to the function around them. Outside of functions a { is a body if, in what stands between
# it and the last ; { or }, a parameter list is closed: `R f(A a) const -> B`, and for a
# constructor what follows it, `: a_(a), b_{b}`, whose braces are not the body's.
import re
import statistics
import sys
from pathlib import Path

import source_tree

LONGEST = 60
DIRECTORIES = ("src", "apps", "tests", "perf")

_SCOPE = re.compile(r"^\s*(?:(?:inline|export)\s+)*(?:namespace\b|extern\s*$)"
                    r"|\b(?:class|struct|union|enum)\b(?![^<>]*>)[^()=]*(?:alignas\s*\([^()]*\))?"
                    r"[^()=]*$")
_NAME = re.compile(r"((?:[\w:~]|<[^()]*>)+|operator\s*(?:\(\)|\[\]|[^\s\w(]+|[\w:&*\s]+))\s*$")


def _code(text):
    """The text without comments, literals and directives, every line where it was."""
    code = source_tree.blank(text)
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
                  lambda match: re.sub(r"[^\n]", " ", match.group(0)), code, flags=re.M)
    return code


def _closing(code, start):
    """Where the brace opened at `start` closes; the end where it does not."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(code, start):
        depth += 1 if match.group(0) == "{" else -1
        if depth == 0:
            return match.start()
    return len(code)


def _parameters(head):
    """Where the parameter list of a declaration opens: its first ( outside of <>, of
    attributes, and of what only looks like a call (alignas, decltype, __attribute__, a
    macro in capitals before the type). -1 if there is none."""
    position, angle = 0, 0
    while position < len(head):
        sign = head[position]
        if head.startswith("operator", position) and re.match(r"operator\b", head[position:]):
            match = re.match(r"operator\s*(?:\(\s*\)|[^\s\w(]+|[^(]*)", head[position:])
            position += match.end()
            continue
        if sign == "<":
            angle += 1
        elif sign == ">" and angle and head[position - 1] != "-":
            angle -= 1
        elif sign == "(" and not angle:
            before = re.search(r"([\w:~]+(?:<.*>)?)\s*$", head[:position], re.S)
            word = before.group(1) if before else ""
            if not re.fullmatch(r"alignas|decltype|noexcept|requires|explicit|__attribute__",
                                word):
                return position
            position = _matching(head, position)
        position += 1
    return -1


def _matching(text, start):
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return len(text)


def functions(text):
    """(name, first line, number of lines) of every function with a body."""
    code = _code(text)
    found, position, start = [], 0, 0  # start: where the declaration under way begins
    mark = re.compile(r"[;{}]|(?:public|private|protected)\s*:(?!:)")
    paren = 0
    while match := mark.search(code, position):
        position = match.end()
        sign = match.group(0)
        head = code[start:match.start()]
        if sign != "{":
            if sign == ";" and head.count("(") > head.count(")"):
                continue  # for (;;) does not stand here, but macros' arguments may
            start = position
            continue
        if _SCOPE.search(head):
            start = position
            continue
        opens = _parameters(head)
        if opens < 0 or _is_value(head[:opens]):
            position = _closing(code, match.start()) + 1  # of a variable: T a{...}, = {...}
            continue
        if head.count("(") > head.count(")"):
            position = _closing(code, match.start()) + 1  # an argument: f(a = {})
            continue
        after = head[_matching(head, opens) + 1:]
        if re.match(r"[^:]*(?<!:):(?!:)", after) and re.search(r"[\w>]\s*$", after) and \
                not re.search(r"\)\s*$", after):
            position = _closing(code, match.start()) + 1  # : a_{b}, of an initialiser list
            continue
        end = _closing(code, match.start())
        name = _NAME.search(head[:opens])
        first = source_tree.line_of(code, start + len(head) - len(head.lstrip()))
        found.append((" ".join((name.group(1) if name else "?").split()), first,
                      source_tree.line_of(code, end) - first + 1))
        position = start = end + 1
    return found


def _is_value(before):
    """`T a = f(x)` and `T a = {`: an initialiser, where a function has its parameter list."""
    before = re.sub(r"operator\s*[^\s\w(]+|<[^<>]*(?:<[^<>]*>[^<>]*)*>", "", before)
    return "=" in before


def check(root):
    found = []
    for name in source_tree.cpp_files(root, *DIRECTORIES):
        if name.startswith("tests/") and not name.endswith(".hpp"):
            continue
        for function, line, lines in functions(source_tree.text_of(root, name)):
            if lines <= LONGEST:
                continue
            found.append(f"{name}:{line}: {function}() has {lines} lines; {LONGEST} at most: "
                         "give its parts names")
    return found


def figures(root, *directories):
    every = sorted(((lines, name, function)
                    for name in source_tree.cpp_files(root, *directories)
                    for function, _, lines in functions(source_tree.text_of(root, name))),
                   reverse=True)
    lengths = [lines for lines, _, _ in every]
    p90 = statistics.quantiles(lengths, n=10)[-1]
    print(f"{', '.join(directories)}: {len(lengths)} functions; median "
          f"{statistics.median(lengths):g}, p90 {p90:g}, maximum {lengths[0]} lines")
    for lines, name, function in every[:20]:
        print(f"  {lines:4}  {function}  {name}")


if __name__ == "__main__":
    for chosen in (("src", "apps"), ("tests", "perf")):
        figures(Path(__file__).resolve().parents[2], *chosen)
