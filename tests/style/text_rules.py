# tests/style/text_rules.py — what is read off the text of a file: banner, include guard,
# line length, blanks, no exit or assert, no swallowed exception, no type that a model
# computes in above the step, no test that no entry of ctest runs, no path or package host of
# somebody's machine.
import re
from pathlib import Path

import source_tree

LINE_LENGTH = 90  # of C++, as in .clang-format
SCRIPT_LINE_LENGTH = 100
CODE_SUFFIXES = {".hpp", ".cpp", ".cmake", ".py", ".sh", ".yaml", ".sbatch"}

# Written so that this file does not match itself.
FORBIDDEN_TEXT = [
    (re.compile(r"/(?:tmp/w|work/(?:main|shared)|root/[.\w]|home/[a-z]\w*/|Users/\w)"),
     "a path of one machine"),
    (re.compile(r"\b(?:pypi[.]org|pythonhosted[.]org|(?:deb|security)[.]debian[.]org"
                r"|archive[.]ubuntu[.]com|anaconda[.]org|registry[.]npmjs[.]org"
                r"|proxy[.]golang[.]org)"),
     "the address of a package host: the machine's own configuration decides where from"),
]
FORBIDDEN_CALLS = re.compile(r"(?<![\w.>:])(?:std\s*::\s*|::\s*)?"
                             r"(assert|exit|_exit|_Exit|quick_exit)\s*\(|\bstd::(abort)\s*\(")
MAY_EXIT = {
    "apps/early_limits.cpp",     # before main()
    "src/comm/environment.cpp",  # the way down for all ranks, where MPI_Abort returns
    "src/job/stop_request.cpp",  # a handler, of a rank that may hang
    "src/io/guarded_call.cpp",   # a forked child, which has nothing to unwind
}
# What talks to a model through step::Replica alone. Fields of a batch have types of their own,
# and selftest and preflight try kernels and messages one by one.
ABOVE_THE_STEP = ("src/run/", "src/plan/", "src/inference/", "src/job/", "src/check/", "apps/")
BELOW_THE_REPLICA = ("src/check/selftest", "src/check/preflight")
COMPUTE_TYPE = re.compile(r"(?<!field)[<,]\s*(?:float|bf16|fp16)\s*[,>]"
                          r"|\bDType::|\bdtype_of\b|TRIREME_FOR_EACH_\w*(?:TYPE|REAL)\b")


# What a test is called by: its suite, or what stands before it where a suite has parameters.
TEST_NAMES = re.compile(r"^(?:TEST|TEST_F|TYPED_TEST)\(\s*(\w+)"
                        r"|^INSTANTIATE_(?:TYPED_)?TEST_SUITE_P\(\s*(\w*)\s*,\s*(\w+)", re.M)


def guard_of(name):
    """TRIREME_BASE_ERROR_HPP_ for src/base/error.hpp."""
    parts = name.split("/")
    path = parts[1:] if parts[0] == "src" else parts
    return "TRIREME_" + re.sub(r"\W", "_", "/".join(path)).upper() + "_"


def check_banner(name, lines):
    shown = name[len("src/"):] if name.startswith("src/") else name
    suffix = Path(name).suffix
    if suffix in (".hpp", ".cpp"):
        if name.split("/")[0] in ("src", "apps"):
            if not lines[0].startswith(f"// {shown} — "):
                yield 1, f'the first line is not "// {shown} — what it is for"'
        elif not lines[0].startswith("// "):
            yield 1, "does not begin with a comment that says what it is for"
    elif suffix in (".py", ".sh", ".cmake"):
        first = next((line for line in lines if not line.startswith("#!")), "")
        if lines and not first.startswith("#") and not first.startswith('"""'):
            yield 1, "does not begin with a comment that says what it is for"


def check_cpp(name, text, lines):
    code = source_tree.blank(text)
    product = name.split("/")[0] in ("src", "apps")
    for match in FORBIDDEN_CALLS.finditer(code):
        if product and name not in MAY_EXIT:
            call = match.group(1) or match.group(2)
            yield (source_tree.line_of(code, match.start()),
                   f"{call}(): throw by TRIREME_REQUIRE; only main returns a status")
    for match in re.finditer(r"\bcatch\s*\(\s*\.\.\.\s*\)\s*\{", code):
        if not product:
            continue
        handler = code[match.end():code.find("}", match.end())]
        if not re.search(r"\bthrow\b|current_exception|MPI_Abort", handler):
            yield (source_tree.line_of(code, match.start()),
                   "catch (...) that neither rethrows nor keeps the exception")
    if name.startswith(ABOVE_THE_STEP) and not name.startswith(BELOW_THE_REPLICA):
        for match in COMPUTE_TYPE.finditer(code):
            yield (source_tree.line_of(code, match.start()),
                   f"{match.group(0)}: the type that a model computes in ends at step::Replica")
    if name.endswith(".hpp"):
        guard = guard_of(name)
        if name.startswith("tests/") and f"#ifndef {guard}" not in lines:
            guard = guard.replace("TRIREME_TESTS_", "TRIREME_", 1)  # either is unique
        for directive in (f"#ifndef {guard}", f"#define {guard}", f"#endif  // {guard}"):
            if directive not in lines:
                yield 1, f"no line '{directive}' (include guard)"


def check_test_names(name, text):
    """trireme_add_tests() runs what begins with the file's name: LayerNorm... of
    test_layer_norm.cpp. A test that begins with something else would never run."""
    words = Path(name).stem.removeprefix("test_").split("_")
    begin = "".join(word[:1].upper() + word[1:] for word in words)
    code = source_tree.blank(text)
    for match in TEST_NAMES.finditer(code):
        called = match.group(1) or match.group(2) or match.group(3)
        if not called.startswith(begin):
            yield (source_tree.line_of(code, match.start()),
                   f"{called}: no entry of ctest runs it; tests of this file begin with {begin}")
    instantiated = set(re.findall(r"\bINSTANTIATE_\w+\(\s*\w*\s*,\s*(\w+)", code))
    for match in re.finditer(r"^(?:TEST_P|TYPED_TEST_P)\(\s*(\w+)", code, re.M):
        if match.group(1) not in instantiated:
            yield (source_tree.line_of(code, match.start()),
                   f"{match.group(1)}: never instantiated, and so never run")


def check(root):
    found = []
    for name in source_tree.files(root):
        text = source_tree.text_of(root, name)
        if text is None or "/fixtures/" in name:
            continue
        lines = text.split("\n")
        raw = source_tree.lines_in_raw_strings(text) if name.endswith((".hpp", ".cpp")) else ()
        suffix = ".cmake" if name.endswith("CMakeLists.txt") else Path(name).suffix
        script = lines[0].startswith("#!")
        problems = []
        for number, line in enumerate(lines, 1):
            for pattern, what in FORBIDDEN_TEXT:
                match = pattern.search(line)
                if match:
                    problems.append((number, f"{what}: {match.group(0)}"))
            if suffix in CODE_SUFFIXES or script:
                limit = LINE_LENGTH if suffix in (".hpp", ".cpp") else SCRIPT_LINE_LENGTH
                if len(line) > limit and number not in raw:
                    problems.append((number, f"{len(line)} columns; {limit} at most"))
                if line != line.rstrip():
                    problems.append((number, "blanks at the end of the line"))
                if "\t" in line:
                    problems.append((number, "a tab"))
        if (suffix in CODE_SUFFIXES or script) and text and not text.endswith("\n"):
            problems.append((len(lines), "no newline at the end of the file"))
        problems += check_banner(name, lines)
        if suffix in (".hpp", ".cpp"):
            problems += check_cpp(name, text, lines)
        if name.startswith("tests/") and Path(name).match("test_*.cpp"):
            problems += check_test_names(name, text)
        found += [f"{name}:{number}: {what}" for number, what in problems]
    return found
