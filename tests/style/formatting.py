# tests/style/formatting.py — clang-format 14 leaves every file as it is. Other versions
# format otherwise, so exactly that one is asked.
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count, environ
from pathlib import Path

import source_tree

VERSION = "14"


def find_clang_format():
    """The system's, or what tools/bootstrap put in place of it."""
    tree = Path(__file__).resolve().parents[2]
    deps = Path(environ.get("TRIREME_DEPS", tree / ".deps"))
    for program in (f"clang-format-{VERSION}", "clang-format",
                    deps / "clang-format" / f"clang-format-{VERSION}"):
        path = shutil.which(program)
        if path:
            shown = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
            if re.search(rf"version {VERSION}\.", shown):
                return path
    return None


def check(root):
    program = find_clang_format()
    if program is None:
        return [f"clang-format {VERSION} is not here: tools/bootstrap --tests installs it"]
    if not (Path(root) / ".clang-format").exists():
        return [".clang-format: missing"]
    names = source_tree.cpp_files(root, "src", "apps", "tests", "perf")

    def offenders(part):
        shown = subprocess.run([program, "--dry-run", "-Werror", "--style=file", *part],
                               cwd=root, capture_output=True, text=True)
        lines = re.findall(r"^(\S+?:\d+):\d+: error: code should be clang-formatted",
                           shown.stderr, re.M)
        if shown.returncode != 0 and not lines:
            return [f"clang-format failed: {shown.stderr.strip()[:400]}"]
        first = {}
        for line in lines:
            first.setdefault(line.rsplit(":", 1)[0], line)
        return [f"{line}: not as clang-format {VERSION} writes it (clang-format -i)"
                for line in first.values()]

    workers = min(cpu_count() or 1, 8)
    parts = [part for part in (names[i::workers] for i in range(workers)) if part]
    with ThreadPoolExecutor(workers) as pool:
        return [line for part in pool.map(offenders, parts) for line in part]
